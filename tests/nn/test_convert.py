from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import stn_tune as stn


class Tied(nn.Module):
    """An embedding and a decoder that share one matrix, and an LSTM between them."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(11, 6)
        self.rnn = nn.LSTM(6, 6, batch_first=True)
        self.drop = nn.Dropout(0.5)
        self.decoder = nn.Linear(6, 11)
        self.decoder.weight = self.encoder.weight

    def forward(self, words):
        return self.decoder(self.drop(self.rnn(self.encoder(words))[0]))


def test_keeps_weights_ties_and_module_objects(hyper):
    model = Tied().double()
    before = dict(model.named_parameters())
    modules = list(model.modules())
    assert stn.self_tune(model, hyper) is model
    assert list(model.modules()) == modules
    after = dict(model.named_parameters())
    assert all(after[name] is p for name, p in before.items())
    assert model.decoder.weight is model.encoder.weight
    assert model.decoder.hyper_weight is model.encoder.hyper_weight
    assert [type(m).__name__ for m in (model.encoder, model.rnn, model.decoder)] == [
        "HyperEmbedding",
        "HyperLSTM",
        "HyperLinear",
    ]
    words = torch.randint(0, 11, (4, 5))
    with hyper.using(hyper.sample(4)):
        assert model(words).shape == (4, 5, 11)
    assert not any(name.startswith("source") for name in model.state_dict()), "λ is no weight of the model"


def test_bound_dropout_reads_its_hyperparameter(hyper):
    model = stn.self_tune(Tied().double(), hyper, bind={"drop": "rate"})
    assert isinstance(model.drop, stn.nn.Dropout)
    sample = hyper.sample(4)
    with hyper.using(sample):
        model(torch.randint(0, 11, (4, 5)))
    assert sample.read == {"rate"}


def test_frozen_layers_stay_as_they_are(hyper):
    """Fine-tuning: the optimizer of the head alone is the right one, and nothing else moves."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    stn.self_tune(model, hyper)
    assert [type(layer).__name__ for layer in model] == ["Linear", "ReLU", "HyperLinear"]
    assert "0: Linear stays plain, 16 frozen parameters" in stn.describe(model)
    stn.SelfTuner(model, hyper, torch.optim.SGD(model[2].parameters(), lr=0.1))


def test_frozen_layers_may_be_of_any_kind_and_named_in_options(hyper):
    model = nn.Sequential(nn.TransformerEncoderLayer(4, 2), nn.Linear(4, 4), nn.Linear(4, 2))
    model[:2].requires_grad_(False)
    stn.self_tune(model, hyper, batch_dim={"1": 1, "2": 1})
    assert [type(layer).__name__ for layer in model] == ["TransformerEncoderLayer", "Linear", "HyperLinear"]
    with pytest.raises(stn.ConversionError, match="not frozen"):
        stn.self_tune(nn.Sequential(nn.Linear(3, 4)).requires_grad_(False), hyper)
    partly = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    partly.bias.requires_grad_(False)
    with pytest.raises(stn.ConversionError, match="parametrization"):
        stn.self_tune(nn.Sequential(partly, nn.Linear(2, 2)), hyper)


def test_a_glob_of_batch_dim_leaves_what_a_dropout_says_of_itself(hyper):
    model = nn.Sequential(nn.Linear(3, 2), stn.nn.Dropout("rate", batch_dim=0), nn.Dropout(0.5))
    stn.self_tune(model, hyper, batch_dim={"*": 1})
    assert (model[0].batch_dim, model[1].batch_dim) == (1, 0)
    stn.self_tune(nn.Sequential(nn.Linear(3, 2), model[1]), hyper, batch_dim={"1": 1})
    assert model[1].batch_dim == 1
    with pytest.raises(stn.ConversionError, match="'1' matches no layer"):
        stn.self_tune(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)), hyper, batch_dim={"1": 1})


def test_a_bound_dropout_of_a_model_with_time_first(hyper):
    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.fc = nn.Dropout(0.5), nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(self.drop(x))

    def rates(options):
        model = stn.self_tune(TimeFirst().double(), hyper, bind={"drop": "rate"}, batch_dim={"fc": 1, **options})
        sample = hyper.sample(4)
        with hyper.using(sample):
            x = model.drop(torch.ones(50, 4, 300, dtype=torch.float64))
        return (x == 0).double().mean((0, 2)), sample["rate"]

    dropped, rate = rates({"drop": 1})
    assert torch.allclose(dropped, rate.detach(), atol=0.02), "each example at its own rate"
    with pytest.raises(stn.nn.LayoutError, match=r"^drop: .*: 1\}$"):
        rates({})


def test_a_plain_model_reads_fixed_values_and_new_ones_later():
    model = nn.Sequential(nn.Linear(3, 1000), stn.nn.Dropout("rate"))
    values = stn.fix(model, {"rate": 1.0})
    assert (model(torch.randn(2, 3)) == 0).all()
    values.set({"rate": 0.0})
    assert (model(torch.randn(2, 3)) != 0).all()
    values.set({"rate": 0.5})
    assert (model(torch.randn(20, 3)) == 0).double().mean() == pytest.approx(0.5, abs=0.02)
    plain = nn.Sequential(nn.Linear(3, 1000), nn.Dropout(0.5))
    stn.fix(plain, {"rate": 1.0}, bind={"1": "rate"})
    assert (plain(torch.randn(2, 3)) == 0).all()


def test_excluded_layers_stay_plain(hyper):
    model = stn.self_tune(Tied(), hyper, exclude=["enc*", "decoder"])
    assert type(model.encoder) is nn.Embedding
    assert type(model.decoder) is nn.Linear
    nested = nn.ModuleDict({"head": nn.Sequential(nn.Linear(2, 2)), "body": nn.Linear(2, 2)})
    stn.self_tune(nested, hyper, exclude=["head"])
    assert type(nested["head"][0]) is nn.Linear


def test_says_what_it_converted(hyper, caplog):
    with caplog.at_level("INFO", logger="stn_tune"):
        model = stn.self_tune(Tied(), hyper, bind={"drop": "rate"}, exclude=["encoder"])
    text = stn.describe(model)
    assert text in caplog.text
    assert "rnn: HyperLSTM, 336 + 456 parameters" in text
    assert "encoder: Embedding stays plain, 66 parameters" in text
    assert "drop: Dropout reads rate" in text


def test_works_outside_a_step_at_the_deterministic_lambda(hyper):
    model = stn.self_tune(Tied().double(), hyper).eval()
    words = torch.randint(0, 11, (4, 5))
    outside = model(words)
    with hyper.using(hyper.mean()):
        torch.testing.assert_close(model(words), outside)
    for duplicate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(duplicate(words), outside)
        with torch.no_grad():
            duplicate.rnn.source.lam += 1
        assert hyper.lam is not duplicate.rnn.source.lam


def test_a_converted_model_starts_out_as_the_plain_one(hyper):
    plain = Tied().double().eval()
    words = torch.randint(0, 11, (4, 5))
    expected = plain(words)
    torch.testing.assert_close(stn.self_tune(plain, hyper)(words), expected, rtol=1e-12, atol=1e-12)


def test_converting_twice_changes_nothing(hyper):
    model = stn.self_tune(Tied(), hyper)
    names = list(model.state_dict())
    assert list(stn.self_tune(model, hyper).state_dict()) == names


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (nn.Sequential(nn.GRU(2, 3)), {}, r"0: GRU has no hyper counterpart .* exclude=\['0'\]"),
        (nn.Sequential(nn.Conv3d(2, 3, 1)), {}, "0: Conv3d has no hyper counterpart"),
        (nn.Sequential(nn.MultiheadAttention(4, 2)), {}, "0: MultiheadAttention has no hyper counterpart"),
        (nn.TransformerEncoderLayer(4, 2), {}, "TransformerEncoderLayer has no hyper counterpart"),
        (nn.Sequential(nn.LazyLinear(3)), {}, "0: LazyLinear has no weights yet; run one batch"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))), {}, "parametrization"),
        (nn.Sequential(nn.LSTM(2, 3, bidirectional=True)), {}, "0: HyperLSTM has no bidirectional=True"),
        (nn.Sequential(nn.LSTM(2, 3, proj_size=2)), {}, "0: HyperLSTM has no proj_size=2"),
        (nn.Sequential(nn.Embedding(2, 3, max_norm=1.0)), {}, "max_norm=1.0"),
        (nn.Sequential(nn.Embedding(2, 3, sparse=True)), {}, "0: a hyper layer cannot be sparse"),
        (nn.Sequential(nn.ReLU()), {}, "Sequential has no layer to convert"),
        (
            nn.Sequential(nn.Linear(2, 3)),
            {"exclude": ["fc"]},
            "'fc' matches no layer of Sequential; layers: 0",
        ),
        (nn.Sequential(nn.Linear(2, 3)), {"bind": {"drop": "rate"}}, "'drop' matches no module"),
        (
            nn.Sequential(nn.Linear(2, 3)),
            {"bind": {"0": "rate"}},
            "0 is a Linear; a hyperparameter can be bound",
        ),
        (nn.Sequential(nn.Linear(2, 3)), {"fold": {"0": "both"}}, "'inner' or 'outer'"),
        (
            nn.Sequential(nn.Linear(2, 3), stn.nn.Dropout("rat")),
            {},
            "1: unknown hyperparameter 'rat'.*did you mean 'rate",
        ),
    ],
)
def test_what_it_cannot_honour_gets_an_error_and_nothing_is_changed(hyper, module, options, message):
    types = [type(layer) for layer in module.modules()]
    with pytest.raises((stn.ConversionError, stn.nn.LayoutError), match=message):
        stn.self_tune(module, hyper, **options)
    assert [type(layer) for layer in module.modules()] == types


def test_a_subclass_with_a_forward_of_its_own_is_not_converted_silently(hyper):
    class Scaled(nn.Linear):
        def forward(self, input):
            return 2 * super().forward(input)

    with pytest.raises(stn.ConversionError, match="fc: Scaled has no hyper counterpart"):
        stn.self_tune(nn.ModuleDict({"fc": Scaled(2, 2)}), hyper)


def test_a_named_regulariser_that_nobody_set_says_so():
    with pytest.raises(RuntimeError, match="reads the hyperparameter 'rate', but nothing sets it"):
        stn.nn.Dropout("rate")(torch.ones(3, 3))


class Mixed(nn.Module):
    """Every kind of layer that is converted, one of them used twice, and a norm that stays plain."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 4, num_layers=2, batch_first=True)
        self.conv1 = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm1d(4)
        self.conv2 = nn.Conv2d(1, 2, 3, bias=False)
        self.drop = nn.Dropout(0.5)
        self.fc = self.again = nn.Linear(16, 16)

    def forward(self, words):
        x = self.lstm(self.words(words))[0].transpose(1, 2)
        x = self.conv2(self.norm(self.conv1(x)).unsqueeze(1))
        return self.again(self.fc(self.drop(x.flatten(1))))


def test_the_plain_state_dict_computes_the_same_with_torch_alone(hyper):
    model = stn.self_tune(Mixed().double(), hyper, bind={"drop": "rate"})
    words = torch.randint(0, 7, (5, 6))
    with torch.no_grad():
        model(words)  # running statistics of the norm
        for parameter in [hyper.lam, *model.parameters()]:
            parameter.normal_()
    plain = Mixed().double()
    plain.load_state_dict(stn.plain_state_dict(model))
    torch.testing.assert_close(plain.eval()(words), model.eval()(words), rtol=1e-10, atol=1e-10)
    before = plain.eval()(words)
    with torch.no_grad():
        hyper.lam.add_(1.0)
    assert not torch.allclose(model(words), before), "λ has its part in it"
    state = stn.plain_state_dict(plain)
    assert all(torch.equal(value, state[key]) for key, value in plain.state_dict().items())


def test_a_tie_that_no_plain_model_has_is_an_error(hyper):
    model = stn.self_tune(Tied().double(), hyper)
    with torch.no_grad():
        hyper.lam.fill_(1.0)
    with pytest.raises(stn.ConversionError, match=r"encoder.weight and decoder.weight are tied, but respond"):
        stn.plain_state_dict(model)
    kept = stn.self_tune(Tied().double(), hyper, exclude=["encoder", "decoder"])
    plain, words = Tied().double(), torch.randint(0, 11, (4, 5))
    plain.load_state_dict(stn.plain_state_dict(kept))
    torch.testing.assert_close(plain.eval()(words), kept.eval()(words), rtol=1e-10, atol=1e-10)
    assert plain.decoder.weight is plain.encoder.weight
