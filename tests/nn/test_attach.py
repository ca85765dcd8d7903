"""self_tune and what belongs to it: what responds, bindings, ties, containers, release, describe, dropouts, errors."""

from __future__ import annotations

import copy

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F

import stn_tune as stn
from benchmarks.models.alexnet import AlexNet
from benchmarks.models.language_model import LanguageModel
from stn_tune.nn.regularizers import alpha_dropout, feature_alpha_dropout
from stn_tune.nn.response import required, self_tuning_of

RATE = tune.uniform(0, 0.9)


class Tied(nn.Module):
    """An embedding and a decoder that share one matrix, and an LSTM between them."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(11, 6, padding_idx=0)
        self.rnn = nn.LSTM(6, 6, 2, batch_first=True, dropout=0.2)
        self.drop = nn.Dropout(0.5)
        self.decoder = nn.Linear(6, 11)
        self.decoder.weight = self.encoder.weight

    def forward(self, words):
        return self.decoder(self.drop(self.rnn(self.encoder(words))[0]))


def responding(model):
    return set(required(model).places)


def words():
    return torch.randint(0, 11, (4, 5))


class TestSelfTune:
    def test_returns_the_same_model_with_its_own_modules_parameters_and_outputs(self, hyper):
        model = Tied().double().eval()
        x = words()
        before, modules, expected = dict(model.named_parameters()), list(model.modules()), model(x)
        forwards = [type(m).forward for m in modules]
        assert stn.self_tune(model, hyper) is model
        assert [m for m in model.modules() if "stn_tune" not in type(m).__module__ and m in modules] == modules
        assert [type(m).forward for m in modules] == forwards
        after = dict(model.named_parameters())
        assert all(after[name] is p for name, p in before.items())
        assert list(after)[: len(before)] == list(before)
        assert torch.equal(model(x), expected)
        assert not any("forward" in m.__dict__ for m in modules)

    def test_weights_and_biases_respond_but_no_norms_embeddings_and_what_is_tied_to_one(self, hyper):
        model = nn.ModuleDict(
            {
                "tied": Tied(),
                "norms": nn.Sequential(
                    nn.BatchNorm1d(2), nn.LayerNorm(2), nn.GroupNorm(1, 2), nn.RMSNorm(2), nn.PReLU()
                ),
                "conv": nn.ConvTranspose1d(2, 3, 2),
                "bag": nn.EmbeddingBag(3, 2),
            }
        )
        rnn = {f"tied.rnn.{name}" for name, _ in model["tied"].rnn.named_parameters()}
        stn.self_tune(model, hyper)
        assert responding(model) == rnn | {"tied.decoder.bias", "conv.weight", "conv.bias"}

    def test_a_norm_of_ones_own_is_a_norm(self, hyper):
        class MyRMSNorm(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))

        assert responding(stn.self_tune(nn.Sequential(MyRMSNorm(), nn.Linear(3, 3)), hyper)) == {"1.weight", "1.bias"}

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"exclude": ["a"]}, {"b.0.weight", "b.0.bias"}),
            ({"exclude": ["a.bias", "b*"]}, {"a.weight"}),
            ({"exclude": ["*.bias"]}, {"a.weight", "b.0.weight"}),
            ({"include": ["norm"]}, {"a.weight", "a.bias", "b.0.weight", "b.0.bias", "norm.weight", "norm.bias"}),
            ({"include": ["norm.*"], "exclude": ["norm.bias", "[ab]*"]}, {"norm.weight"}),
            ({"exclude": ["b.0"]}, {"a.weight", "a.bias"}),
        ],
    )
    def test_include_and_exclude_take_paths_and_globs_of_modules_and_parameters(self, hyper, options, expected):
        model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Sequential(nn.Linear(2, 2)), "norm": nn.LayerNorm(2)})
        assert responding(stn.self_tune(model, hyper, **options)) == expected

    def test_ties_are_one_response_in_all_their_places(self, hyper):
        model = stn.self_tune(Tied().double(), hyper, include=["encoder"])
        tuning = required(model)
        assert tuning.places["encoder.weight"] == ("encoder.weight", "decoder.weight")
        assert torch.equal(tuning.responses["encoder/weight"].U[0], torch.zeros(6)), "the padding word stays zero"
        with tuning.applied(hyper.sample()):
            assert model.encoder.weight is model.decoder.weight
            assert not isinstance(model.encoder.weight, nn.Parameter)
        assert isinstance(model.encoder.weight, nn.Parameter)
        assert model.encoder.weight is model.decoder.weight

    def test_frozen_parameters_do_not_respond_and_the_optimizer_may_leave_them_out(self, hyper):
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        model[0].requires_grad_(False)
        stn.self_tune(model, hyper)
        assert responding(model) == {"2.weight", "2.bias"}
        assert "0.weight   4×3    plain: frozen" in stn.describe(model)
        moved = [p for p in model.parameters() if p.requires_grad]
        stn.SelfTuner(model, hyper, torch.optim.SGD(moved, lr=0.1))

    def test_twice_with_the_same_hyper_changes_nothing_and_with_another_is_refused(self, hyper):
        model = stn.self_tune(Tied(), hyper)
        names = list(model.state_dict())
        assert list(stn.self_tune(model, hyper).state_dict()) == names
        with pytest.raises(
            stn.ConversionError, match=r"self-tuned already, with another Hyper: release\(model\) first"
        ):
            stn.self_tune(model, stn.Hyper({"rate": RATE}))

    def test_a_step_computes_with_the_materialised_weights(self, hyper):
        model = stn.self_tune(Tied().double().eval(), hyper, include=["encoder"])
        tuning, sample, x = required(model), hyper.sample(), words()
        plain = Tied().double().eval()
        state = stn.plain_state_dict(model)
        for r in tuning.responding():
            for place in tuning.places[r.path]:
                state[place] = r.response.at(r.weight, sample.delta).detach()
        plain.load_state_dict(state)
        with tuning.applied(sample):
            assert torch.equal(model(x), plain(x))

    def test_an_error_in_a_step_puts_everything_back(self, hyper):
        model = stn.self_tune(Tied().double(), hyper, bind={"drop": "rate", "rnn": "rate"})
        tuning, before = required(model), dict(model.named_parameters())
        rates = model.drop.p, model.rnn.dropout
        with pytest.raises(ZeroDivisionError), tuning.applied(hyper.sample()):
            raise ZeroDivisionError
        assert all(p is before[name] for name, p in model.named_parameters())
        assert (model.drop.p, model.rnn.dropout) == rates
        assert all(a is b for a, b in zip(model.rnn._flat_weights, model.rnn.parameters(), strict=True))
        assert "forward" not in model.drop.__dict__
        assert type(model.drop._buffers) is dict


class TestContainers:
    """A container does something with all of its children, so nothing is added to it."""

    def test_a_sequential_stays_what_it_is(self, hyper):
        layers = [nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2)]
        model = stn.self_tune(nn.Sequential(*layers), hyper, bind={"2": "rate"}).eval()
        assert list(model) == layers
        assert len(model) == 4
        assert model[-1] is layers[-1]
        assert list(model.children()) == layers
        x = torch.randn(2, 3)
        assert torch.equal(model(x), layers[3](torch.relu(layers[0](x))))
        assert torch.equal(nn.Sequential(*model)(x), model(x))
        assert torch.equal(model[:2](x), torch.relu(layers[0](x)))

    def test_nested_containers(self, hyper):
        model = nn.Sequential(nn.Sequential(nn.Linear(3, 3)), nn.ModuleList([nn.Linear(3, 2)])[0])
        stn.self_tune(model, hyper)
        assert len(model) == 2
        assert len(model[0]) == 1
        assert required(model) is not None

    def test_a_module_list_and_a_module_dict_as_the_root(self, hyper):
        assert len(stn.self_tune(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), hyper)) == 2
        hyper = stn.Hyper({"rate": RATE})
        assert list(stn.self_tune(nn.ModuleDict({"a": nn.Linear(2, 2)}), hyper)) == ["a"]

    def test_a_single_layer_as_the_root(self, hyper):
        model = stn.self_tune(nn.Linear(3, 2), hyper)
        assert responding(model) == {"weight", "bias"}
        x = torch.randn(2, 3)
        assert torch.equal(model(x), F.linear(x, model.weight, model.bias))


class TestRelease:
    def test_leaves_the_users_model_with_its_dropouts_at_the_final_values(self, hyper):
        model = stn.self_tune(Tied(), hyper, bind={"drop": "rate", "rnn": "rate"})
        names = list(Tied().state_dict())
        with torch.no_grad():
            hyper.lam.add_(1.0)
        rate = hyper.values_now()["rate"]
        assert stn.release(model) is model
        assert list(model.state_dict()) == names
        assert (model.drop.p, model.rnn.dropout) == (rate, rate)
        assert type(model.drop.p) is float
        assert self_tuning_of(model) is None
        with pytest.raises(stn.ConversionError, match=r"Tied is not self-tuned: pass it through self_tune"):
            stn.release(model)

    def test_named_regularisers_keep_the_final_values(self, hyper):
        model = nn.Sequential(nn.Linear(3, 1000), stn.nn.Dropout("rate"))
        stn.release(stn.self_tune(model, hyper))
        assert (model(torch.randn(20, 3)) == 0).double().mean() == pytest.approx(0.3, abs=0.02)
        assert stn.self_tune(model, hyper) is model, "it can be self-tuned again"

    def test_a_released_model_loads_and_computes_as_before(self, hyper):
        model = stn.self_tune(Tied(), hyper).eval()
        x, state = words(), stn.plain_state_dict(model)
        expected = model(x)
        assert torch.equal(stn.release(model)(x), expected)
        model.load_state_dict(state)
        assert torch.equal(model(x), expected)


class TestPlainStateDict:
    def test_is_the_plain_models_own_and_a_copy(self, hyper):
        model = stn.self_tune(Tied(), hyper)
        state = stn.plain_state_dict(model)
        assert list(state) == list(Tied().state_dict())
        state["decoder.bias"].fill_(7)
        assert not (model.decoder.bias == 7).any()
        plain = Tied()
        assert all(torch.equal(value, plain.state_dict()[key]) for key, value in stn.plain_state_dict(plain).items())

    def test_a_layer_named_like_ours_is_kept(self, hyper):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.my_stn, self._stn2 = nn.Linear(2, 2), nn.Linear(2, 2)

        model = stn.self_tune(Own(), hyper)
        assert set(stn.plain_state_dict(model)) == set(Own().state_dict())


class TestFix:
    def test_named_regularisers_read_fixed_values_and_new_ones_later(self):
        model = nn.Sequential(nn.Linear(3, 1000), stn.nn.Dropout("rate"))
        values = stn.fix(model, {"rate": 1.0})
        assert (model(torch.randn(2, 3)) == 0).all()
        values.set({"rate": 0.0})
        assert (model(torch.randn(2, 3)) != 0).all()
        values.set({"rate": 0.5})
        assert (model(torch.randn(20, 3)) == 0).double().mean() == pytest.approx(0.5, abs=0.02)

    def test_bound_dropouts_follow(self):
        model = nn.Sequential(nn.Linear(3, 1000), nn.Dropout(0.5), nn.MultiheadAttention(4, 2))
        values = stn.fix(model, {"rate": 1.0}, bind={"1": "rate", "2": "rate"})
        assert (model[:2](torch.randn(2, 3)) == 0).all()
        values.set({"rate": 0.25})
        assert (model[1].p, model[2].dropout) == (0.25, 0.25)

    def test_a_named_regulariser_that_nobody_set_says_so(self):
        with pytest.raises(RuntimeError, match="reads the hyperparameter 'rate', but nothing sets it"):
            stn.nn.Dropout("rate")(torch.ones(3, 3))

    def test_an_unknown_name_is_an_error(self):
        with pytest.raises(
            stn.ConversionError, match=r"1: unknown hyperparameter 'rate'; known: rat; did you mean 'rat'"
        ):
            stn.fix(nn.Sequential(nn.Linear(2, 2), stn.nn.Dropout("rate")), {"rat": 0.5})


KINDS = {
    "Dropout": (nn.Dropout(0.5), torch.ones(400, 50)),
    "Dropout1d": (nn.Dropout1d(0.5), torch.ones(200, 100, 3)),
    "Dropout2d": (nn.Dropout2d(0.5), torch.ones(200, 100, 2, 2)),
    "Dropout3d": (nn.Dropout3d(0.5), torch.ones(200, 100, 1, 2, 2)),
    "AlphaDropout": (nn.AlphaDropout(0.5), torch.ones(400, 50)),
    "FeatureAlphaDropout": (nn.FeatureAlphaDropout(0.5), torch.ones(200, 100, 3)),
}


class TestBind:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("draw", ["batch", "example"])
    def test_dropouts_of_every_kind_drop_at_the_rates_of_the_sample(self, kind, draw):
        layer, x = KINDS[kind]
        hyper = stn.Hyper({"rate": RATE})
        model = stn.self_tune(nn.Sequential(nn.Linear(2, 2), copy.deepcopy(layer)), hyper, bind={"1": "rate"})
        sample = hyper.sample(len(x) if draw == "example" else None)
        with required(model).applied(sample):
            out = model[1](x).flatten(2) if x.dim() > 2 else model[1](x)[..., None]
            dropped = out[..., 0] < out.max(2).values.max(1, keepdim=True).values - 1e-4
            assert torch.equal(out, out[..., :1].expand_as(out)), "whole channels" if x.dim() > 2 else ""
            model.eval()
            assert torch.equal(model[1](x), x)
        rates = sample["rate"].expand(len(x))
        assert dropped.double().mean().item() == pytest.approx(rates.mean().item(), abs=0.02)
        slope = torch.linalg.lstsq(torch.stack([rates, torch.ones_like(rates)], 1), dropped.float().mean(1)[:, None])
        assert draw == "batch" or slope.solution[0].item() == pytest.approx(1, abs=0.15), "each example at its own"
        assert sample.read == {"rate"}

    def test_an_inplace_dropout_may_be_bound(self, hyper):
        model = stn.self_tune(
            nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5, inplace=True)).double(), hyper, bind={"1": "rate"}
        )
        with required(model).applied(hyper.sample()):
            model(torch.randn(2, 3).double()).sum().backward()

    def test_hooks_of_a_bound_dropout_are_called(self, hyper):
        model = stn.self_tune(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), hyper, bind={"1": "rate"})
        called = []
        model[1].register_forward_hook(lambda *_: called.append(1))
        with required(model).applied(hyper.sample()):
            model(torch.randn(2, 3))
        assert called == [1]

    @pytest.mark.parametrize("path", ["rnn", "rnn.dropout"])
    def test_the_dropout_between_recurrent_layers(self, hyper, path):
        model = stn.self_tune(Tied().double(), hyper, bind={path: "rate"})
        assert model.rnn.dropout == pytest.approx(0.3)
        sample = hyper.sample()
        with required(model).applied(sample):
            model(words())
            assert model.rnn.dropout == pytest.approx(float(dict.__getitem__(sample, "rate")))
        assert sample.read == {"rate"}
        assert model.rnn.dropout == pytest.approx(0.3)

    def test_the_dropout_of_attention(self, hyper):
        model = nn.Sequential(nn.MultiheadAttention(4, 2, dropout=0.1)).double()
        stn.self_tune(model, hyper, bind={"0": "rate"})
        sample, x = hyper.sample(), torch.randn(3, 2, 4).double()
        with required(model).applied(sample):
            model[0](x, x, x)
        assert sample.read == {"rate"}
        assert model[0].dropout == pytest.approx(0.3)

    @pytest.mark.parametrize("pattern", ["attn.dropout", "*.dropout"])
    def test_an_attribute_that_a_fused_kernel_reads(self, hyper, pattern):
        class Attention(nn.Module):
            def __init__(self):
                super().__init__()
                self.qkv, self.dropout = nn.Linear(4, 12), 0.1

            def forward(self, x):
                q, k, v = self.qkv(x).chunk(3, -1)
                rates.append(self.dropout)
                return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)

        rates = []
        model = stn.self_tune(nn.ModuleDict({"attn": Attention()}), hyper, bind={pattern: "rate"})
        sample = hyper.sample()
        with required(model).applied(sample):
            model["attn"](torch.randn(2, 5, 4))
        assert sample.read == {"rate"}
        assert rates == [pytest.approx(float(dict.__getitem__(sample, "rate")))]
        assert model["attn"].dropout == pytest.approx(0.3)

    def test_a_number_for_all_examples_cannot_be_drawn_for_each(self, hyper):
        model = stn.self_tune(Tied().double(), hyper, bind={"rnn": "rate"})
        with (
            pytest.raises(stn.nn.LayoutError, match=r"rnn.dropout is read as one number.*per_batch=\[...\]"),
            required(model).applied(hyper.sample(4)),
        ):
            pass
        per_batch = stn.Hyper({"rate": RATE}, per_batch=["rate"]).double()
        model = stn.self_tune(Tied().double(), per_batch, bind={"rnn": "rate"})
        with required(model).applied(per_batch.sample(4)):
            model(words())

    def test_a_bound_dropout_of_a_model_with_time_first(self, hyper):
        class TimeFirst(nn.Module):
            def __init__(self):
                super().__init__()
                self.drop, self.fc = nn.Dropout(0.5), nn.Linear(3, 2)

        def rates(options):
            model = stn.self_tune(TimeFirst().double(), hyper, bind={"drop": "rate"}, batch_dim={"fc": 1, **options})
            sample = hyper.sample(4)
            with required(model).applied(sample):
                x = model.drop(torch.ones(50, 4, 300, dtype=torch.float64))
            return (x == 0).double().mean((0, 2)), sample["rate"]

        dropped, rate = rates({"drop": 1})
        assert torch.allclose(dropped, rate, atol=0.02), "each example at its own rate"
        with pytest.raises(stn.nn.LayoutError, match=r"^drop: .*: 1\}$"):
            rates({})

    def test_a_named_regulariser_may_be_bound_to_another_name(self, hyper):
        model = stn.self_tune(nn.Sequential(nn.Linear(2, 2), stn.nn.Dropout("drop")), hyper, bind={"1": "rate"})
        assert model[1].names == ["rate"]


class TestDropouts:
    def test_one_each_named_after_its_path_and_starting_at_its_rate(self):
        model = nn.ModuleDict(
            {
                "a": nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2), nn.Dropout2d(0.0)),
                "rnn": nn.LSTM(2, 2, 2, dropout=0.4),
                "single": nn.LSTM(2, 2),
                "attn": nn.MultiheadAttention(4, 2, dropout=0.3),
            }
        )
        space, bind = stn.dropouts(model)
        assert bind == {"a.1": "a_1", "a.2": "a_2", "rnn": "rnn", "attn": "attn"}
        hyper = stn.Hyper(space)
        expected = {"a_1": 0.2, "a_2": 0.01, "rnn": 0.4, "attn": 0.3}
        assert hyper.values_now() == pytest.approx(expected)
        stn.self_tune(model, hyper, bind=bind)
        assert (model["rnn"].dropout, model["attn"].dropout) == (pytest.approx(0.4), pytest.approx(0.3))

    def test_grouped_by_globs(self):
        model = nn.Sequential(Tied(), Tied(), nn.Dropout(0.1))
        space, bind = stn.dropouts(model, {"*.drop": "output", "*.rnn": "hidden"}, upper=0.6)
        assert bind == {"0.drop": "output", "0.rnn": "hidden", "1.drop": "output", "1.rnn": "hidden"}
        assert stn.Hyper(space).values_now() == pytest.approx({"output": 0.5, "hidden": 0.2})

    def test_hyperparameters_of_ones_own_join_them_and_the_rates_stay_where_they_were(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2))
        space, _ = stn.dropouts(model)
        joined = space | {"noise": tune.uniform(0, 0.5)}
        expected = {"dropout_1": pytest.approx(0.2), "noise": pytest.approx(0.25)}
        assert stn.Hyper(joined).values_now() == expected
        assert stn.Hyper({"noise": tune.uniform(0, 0.5)} | space).values_now() == expected
        assert space.names == ("dropout_1",), "the first space is what it was"
        with pytest.raises(stn.SpaceError, match="dropout_1: appears twice"):
            space | {"dropout_1": tune.uniform(0, 0.5)}

    def test_three_lines_self_tune_a_model(self):
        model = Tied()
        space, bind = stn.dropouts(model)
        hyper = stn.Hyper(space)
        stn.self_tune(model, hyper, bind=bind)
        tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))

        def loss(model, batch, hp):
            return F.cross_entropy(model(batch).flatten(0, 1), batch.flatten())

        before = hyper.values_now()
        for _ in range(2):
            tuner.train_step(loss, words())
            tuner.valid_step(loss, words())
        assert all(hyper.values_now()[name] != value for name, value in before.items())

    def test_a_model_without_dropout_and_a_glob_without_match(self):
        with pytest.raises(stn.ConversionError, match="Linear has no dropout: name a rate of your own"):
            stn.dropouts(nn.Linear(2, 2))
        with pytest.raises(stn.ConversionError, match=r"dropouts: 'x\*' matches none of drop"):
            stn.dropouts(nn.ModuleDict({"drop": nn.Dropout(0.1)}), {"x*": "rate"})


class TestDescribe:
    def test_names_every_parameter_what_it_does_and_why(self, hyper, caplog):
        with caplog.at_level("INFO", logger="stn_tune"):
            model = stn.self_tune(Tied(), hyper, bind={"drop": "rate"}, exclude=["decoder.bias"])
        text = stn.describe(model)
        assert text in caplog.text
        assert text == "\n".join(
            [
                "Tied: 90 % of 749 parameters respond",
                "parameters: 749 before, 1,997 after",
                "memory: 3 kB before, 7.99 kB after, 2.69 kB more within a step",
                "",
                "parameter         shape  response",
                "encoder.weight    11×6   plain: tied embedding",
                "rnn.weight_ih_l0  24×6   responds",
                "rnn.weight_hh_l0  24×6   responds",
                "rnn.bias_ih_l0    24     responds",
                "rnn.bias_hh_l0    24     responds",
                "rnn.weight_ih_l1  24×6   responds",
                "rnn.weight_hh_l1  24×6   responds",
                "rnn.bias_ih_l1    24     responds",
                "rnn.bias_hh_l1    24     responds",
                "decoder.bias      11     plain: excluded",
                "",
                "hyperparameter  value  read by",
                "rate            0.3    drop.p (Dropout)",
                "holes           1      no module; use it in the loss",
                "decay           0.001  no module; use it in the loss",
            ]
        )

    def test_repeated_layers_are_one_line(self, hyper):
        block = nn.TransformerEncoderLayer(8, 2, 16)
        text = stn.describe(stn.self_tune(nn.TransformerEncoder(block, 12, enable_nested_tensor=False), hyper))
        assert "layers.{0..11}.linear1.weight " in text
        assert "* has no per-example form" in text
        assert len(text.splitlines()) < 30

    @pytest.mark.parametrize("build", [lambda: AlexNet((8, 8, 8, 8, 8), 16), lambda: LanguageModel(50, 8)])
    def test_the_papers_models_fit_into_100_columns(self, build):
        model = build()
        names = {name for m in model.modules() if isinstance(m, stn.nn.regularizers.Reader) for name in m.names}
        text = stn.describe(stn.self_tune(model, stn.Hyper(dict.fromkeys(sorted(names), RATE))))
        assert max(map(len, text.splitlines())) <= 100
        assert len(text.splitlines()) < 40
        assert "no module" not in text

    def test_transformers_fit_into_100_columns(self):
        pytest.importorskip("transformers")
        from tests.zoo.models import CASES

        for name in ("gpt2", "bert", "distilbert", "t5"):
            text = stn.describe(CASES[name].tuner().model)
            assert max(map(len, text.splitlines())) <= 100, name

    def test_what_was_frozen_or_added_later_is_said(self, hyper):
        model = stn.self_tune(Tied(), hyper)
        model.rnn.requires_grad_(False)
        model.extra = nn.Linear(2, 2)
        text = stn.describe(model)
        assert "rnn.bias_ih_l0    24     plain: frozen after self_tune" in text
        assert "extra.bias        2      plain: added after self_tune" in text

    def test_of_a_plain_model_is_an_error(self):
        with pytest.raises(stn.ConversionError, match="Linear is not self-tuned"):
            stn.describe(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.Sequential(nn.LazyLinear(3)), {}, r"0.weight: LazyLinear has no weights yet; run one batch"),
        (nn.Sequential(nn.ReLU()), {}, r"no parameter of Sequential would respond .*: it has none"),
        (nn.Sequential(nn.LayerNorm(3)), {}, r"no parameter of Sequential would respond .* 0.weight \(norm\)"),
        (nn.Linear(2, 2).requires_grad_(False), {}, r"no parameter of Linear would respond .* weight \(frozen\)"),
        (nn.Sequential(nn.Linear(2, 3)), {"exclude": ["fc"]}, r"'fc' matches no layer of Sequential; layers: 0"),
        (nn.Sequential(nn.Linear(2, 3)), {"include": ["x.*"]}, r"'x.\*' matches no layer of Sequential"),
        (nn.Sequential(nn.Linear(2, 3)), {"batch_dim": {"fc": 1}}, r"'fc' matches no layer of Sequential"),
        (nn.Sequential(nn.Linear(2, 3)), {"bind": {"drop": "rate"}}, r"bind: 'drop' matches no module"),
        (nn.Sequential(nn.Linear(2, 3)), {"bind": {"0": "rate"}}, r"bind: 0 is a Linear, which has no known dropout"),
        (nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)), {"bind": {"1": "rat"}}, r"1.p: unknown hyperparameter 'rat'"),
        (nn.Sequential(nn.Linear(2, 3)), {"fold": {"0": "both"}}, r"fold='both'; it must be 'inner' or 'outer'"),
        (
            nn.Sequential(nn.LSTM(2, 3)),
            {"batch_dim": {"0": 1}},
            r"0: an LSTM's batch dimension is set by its batch_first",
        ),
        (nn.Sequential(nn.Linear(2, 3), stn.nn.Dropout("rat")), {}, r"1: unknown hyperparameter 'rat'.*you mean 'rate"),
    ],
)
def test_what_cannot_be_done_gets_one_line_and_nothing_is_changed(hyper, module, options, message):
    names = list(module.state_dict())
    reads = [dict(m.reads) for m in module.modules() if isinstance(m, stn.nn.regularizers.Reader)]
    with pytest.raises((stn.ConversionError, stn.nn.LayoutError), match=message) as error:
        stn.self_tune(module, hyper, **options)
    assert "\n" not in str(error.value)
    assert list(module.state_dict()) == names
    assert reads == [dict(m.reads) for m in module.modules() if isinstance(m, stn.nn.regularizers.Reader)]


def test_a_model_with_a_self_tuned_part_is_refused(hyper):
    part = stn.self_tune(nn.Sequential(nn.Linear(2, 3)), hyper)
    with pytest.raises(stn.ConversionError, match=r"0 is self-tuned already, but not the whole Sequential: release"):
        stn.self_tune(nn.Sequential(part, nn.Linear(3, 2)), hyper)


def test_options_for_a_model_that_is_self_tuned_already_are_refused(hyper):
    model = stn.self_tune(nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.1)), hyper)
    assert stn.self_tune(model, hyper) is model
    for options in ({"bind": {"1": "rate"}}, {"exclude": ["0"]}):
        with pytest.raises(stn.ConversionError, match=rf"self-tuned already: {next(iter(options))} has no effect; rel"):
            stn.self_tune(model, hyper, **options)


def test_a_model_made_on_the_meta_device_gets_fresh_responses_by_reset_parameters(hyper):
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(4, 3), nn.Conv2d(2, 3, 3))
    stn.self_tune(model, hyper)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(torch.nan)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    torch.manual_seed(0)
    for r in required(model).responding():
        weight, rows = r.weight, len(r.response.V)
        bound = (weight.numel() // rows) ** -0.5 if weight.dim() > 1 else None
        assert r.response.V.isfinite().all()
        assert 0 < r.response.V.std() < 0.1
        assert r.response.U.isfinite().all()
        assert bound is None or 0.2 * bound < r.response.U.abs().max() <= bound


def test_options_that_are_no_lists(hyper):
    with pytest.raises(TypeError, match=r"exclude is 'head'; it must be a list of paths or globs, such as \['head'\]"):
        stn.self_tune(nn.Linear(2, 2), hyper, exclude="head")


class TestAlphaDropout:
    """The same formula as torch's, with a rate that may be a tensor."""

    @pytest.mark.parametrize(
        ("ours", "torchs", "shape"),
        [
            (alpha_dropout, F.alpha_dropout, (300, 200)),
            (feature_alpha_dropout, F.feature_alpha_dropout, (300, 200, 2)),
        ],
    )
    @pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9, 1.0])
    def test_kept_and_dropped_values_are_torchs(self, ours, torchs, shape, rate):
        x = torch.randn(shape, dtype=torch.float64)
        for ratelike in (rate, torch.tensor(rate), torch.full((300,), rate)):
            mine, theirs = ours(x, ratelike), torchs(x, rate, training=True)
            if rate in (0.0, 1.0):
                torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
                continue
            low_mine, low_theirs = mine.flatten().mode().values, theirs.flatten().mode().values
            torch.testing.assert_close(low_mine, low_theirs, rtol=1e-6, atol=1e-6)
            both = (mine != low_mine) & (theirs != low_theirs)
            torch.testing.assert_close(mine[both], theirs[both], rtol=1e-6, atol=1e-6)
            assert (mine == low_mine).double().mean().item() == pytest.approx(rate, abs=0.02)

    @pytest.mark.parametrize("rate", [0.1, 0.5])
    def test_mean_and_variance_of_a_normal_input_stay(self, rate):
        out = alpha_dropout(torch.randn(1000, 500), torch.tensor(rate))
        assert out.mean().item() == pytest.approx(0, abs=0.01)
        assert out.var().item() == pytest.approx(1, abs=0.02)
        assert torch.equal(alpha_dropout(out, 0.5, training=False), out)
