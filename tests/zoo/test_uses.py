"""What people do with a model: tracing, exporting, compiling, wrapping, moving it, and several optimizers."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from ray import tune
from torch import nn
from torch.nn import functional as F

import stn_tune as stn
from stn_tune.nn.response import required, self_tuning_of
from tests.zoo.models import BATCH, CASES, CLASSES, WIDTH, Wrapper, cnn, images, lora, mlp, vectors

pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),  # peft's
    pytest.mark.filterwarnings("ignore:.* merged with others in eval mode:UserWarning"),  # said, and tested elsewhere
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),  # dynamo looks
]


class Net(nn.Module):
    """A root that is a module of its own, and not a container."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(WIDTH, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES)
        self.to(dtype)

    def forward(self, x):
        return self.b(self.drop(F.relu(self.a(x))))


def loss_fn(model, batch, hp):
    loss = F.cross_entropy(model(batch[0]).float(), batch[1])
    return loss + stn.nn.l2(model, hp["decay"]) if model.training else loss


def tuned(build=Net, bind=None, steps=2, **options):
    hyper = stn.Hyper({"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1)}, init={"decay": 1e-2})
    model = stn.self_tune(build(), hyper, bind=bind or {"drop": "rate"})
    tuner = stn.SelfTuner(model, hyper, torch.optim.Adam(model.parameters(), lr=0.01), **options)
    for _ in range(steps):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
    return tuner


@pytest.mark.parametrize("build", [Net, mlp], ids=["module", "Sequential"])
class TestExported:
    @pytest.fixture
    def model(self, build):
        return tuned(build, {"drop": "rate"} if build is Net else {"2": "rate"}).model.eval()

    def test_jit_trace(self, model):
        x = vectors()[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            assert torch.equal(torch.jit.trace(model, x)(x), model(x))

    def test_export(self, model):
        x = vectors()[0]
        assert torch.equal(torch.export.export(model, (x,)).module()(x), model(x))

    def test_onnx(self, model, tmp_path):
        pytest.importorskip("onnx", reason="onnx is not installed")
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
        torch.onnx.export(model, (vectors()[0],), tmp_path / "model.onnx")

    def test_functional_call_with_grad_and_vmap(self, model):
        x, y = vectors()
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss(parameters, x, y):
            return F.cross_entropy(torch.func.functional_call(model, parameters, (x[None],)), y[None])

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                torch.testing.assert_close(each[name].mean(0), p.grad)
        assert not any(each[name].any() for name in each if "_stn." in name), "responses act in steps alone"


class Counting:
    """A backend of torch.compile that counts graphs."""

    def __init__(self, backend: str):
        torch._dynamo.reset()
        self.backend, self.graphs = torch._dynamo.lookup_backend(backend), 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return self.backend(graph, inputs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_steps_have_no_graph_break_and_are_not_compiled_again(backend):
    counting = Counting(backend)
    tuner = tuned(steps=1)
    plain = copy.deepcopy(tuner.model)
    tuner.model = torch.compile(tuner.model, backend=counting, fullgraph=True)
    x = vectors()[0]
    with torch.no_grad():
        torch.testing.assert_close(tuner.model.eval()(x), plain.eval()(x))
        tuner.model.train()
    assert counting.graphs == 1, "outside of steps it is the plain model"

    def one_round():
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
        return tuner.evaluate(loss_fn, [vectors()])

    one_round()
    assert counting.graphs == 4, "a graph each for weight steps, hyperparameter steps and evaluation"
    lam = tuner.hyper.lam.clone()
    for _ in range(4):
        one_round()
    assert (tuner.hyper.lam != lam).all()
    assert counting.graphs == 4


def test_a_rate_that_a_compiled_model_reads_as_a_number_gets_a_warning():
    case = CASES["gpt tied by F.linear"]
    hyper = case.hyper()
    model = torch.compile(stn.self_tune(case.build(), hyper, bind=case.bind), backend="eager")
    with pytest.warns(UserWarning, match="^dropout: read as a number, for every value of which torch.compile compiles"):
        stn.SelfTuner(model, hyper, torch.optim.Adam(model.parameters()))


def test_a_compiled_model_can_be_given_to_the_tuner():
    torch._dynamo.reset()
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    model = torch.compile(stn.self_tune(Net(), hyper), backend="eager")
    tuner = stn.SelfTuner(model, hyper, torch.optim.Adam(model.parameters()))
    for _ in range(2):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
    assert set(stn.plain_state_dict(model._orig_mod)) == set(Net().state_dict())


def test_the_order_of_parameters_is_kept_within_a_step():
    tuner = tuned()
    names = [name for name, _ in tuner.model.named_parameters()]
    with tuner.training(vectors()):
        assert [name for name, _ in tuner.model.named_parameters()] == names


def test_the_model_can_be_moved_to_another_precision_and_lambda_stays():
    tuner = tuned()
    model, hyper = tuner.model.eval(), tuner.hyper
    values, x = hyper.values_now(), vectors()[0]
    expected, lam = model(x), hyper.lam
    model.double()
    assert hyper.lam is lam, "its optimizer stays valid"
    assert hyper.lam.dtype == torch.float64
    torch.testing.assert_close(model(x.double()).float(), expected)
    model.to(torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    assert hyper.lam.dtype == torch.float64
    assert hyper.values_now() == values


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_have_lambda_in_single_precision(dtype):
    hyper = stn.Hyper({"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(Net(dtype), hyper, bind={"drop": "rate"})
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.01))
    lam = hyper.lam.clone()
    for _ in range(2):
        tuner.train_step(loss_fn, (vectors()[0].to(dtype), vectors()[1]))
        tuner.valid_step(loss_fn, (vectors()[0].to(dtype), vectors()[1]))
    assert hyper.lam.dtype == torch.float32
    assert (hyper.lam != lam).all()
    assert all(p.dtype == dtype for p in model.parameters())


def test_a_wrapper_around_the_self_tuned_model_is_trained():
    hyper = stn.Hyper({"rate": tune.uniform(0, 0.9), "decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(Net(), hyper, bind={"drop": "rate"})
    wrapper = Wrapper(model)
    tuner = stn.SelfTuner(wrapper, hyper, torch.optim.Adam(wrapper.parameters()))
    lam = hyper.lam.clone()
    for _ in range(2):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
    assert (hyper.lam != lam).all()
    assert set(stn.plain_state_dict(wrapper)) == {f"module.{name}" for name in Net().state_dict()}
    Net().load_state_dict(stn.plain_state_dict(model))


def test_data_parallel_without_devices_is_such_a_wrapper():
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    wrapper = nn.DataParallel(stn.self_tune(Net(), hyper))
    tuner = stn.SelfTuner(wrapper, hyper, torch.optim.Adam(wrapper.parameters()))
    tuner.train_step(loss_fn, vectors())
    tuner.valid_step(loss_fn, vectors())
    assert len(tuner.schedule) == 2


def test_several_optimizers_and_their_exact_resumption():
    def build():
        hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
        model = stn.self_tune(Net(), hyper)
        matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "_stn." not in n]
        others = [p for n, p in model.named_parameters() if p.dim() != 2 or "_stn." in n]
        return stn.SelfTuner(model, hyper, [torch.optim.Muon(matrices, lr=0.01), torch.optim.AdamW(others, lr=0.01)])

    def step(tuner):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())

    tuner = build()
    before = {name: p.detach().clone() for name, p in tuner.model.named_parameters()}
    step(tuner)
    assert not any(torch.equal(p, before[name]) for name, p in tuner.model.named_parameters())
    state = copy.deepcopy(tuner.state_dict())
    step(tuner)
    resumed = build()
    resumed.load_state_dict(state)
    step(resumed)
    for (name, a), b in zip(tuner.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_an_optimizer_is_missing_the_responses():
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(Net(), hyper)
    with pytest.raises(ValueError, match=r"the optimizer does not move the response of a.weight \(U\): build it after"):
        stn.SelfTuner(model, hyper, torch.optim.Adam(Net().parameters()))


def test_lbfgs_is_refused_in_one_line():
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(Net(), hyper)
    with pytest.raises(TypeError, match="LBFGS evaluates the loss several times") as error:
        stn.SelfTuner(model, hyper, torch.optim.LBFGS(model.parameters()))
    assert "\n" not in str(error.value)


def test_peft_merges_into_a_plain_model():
    pytest.importorskip("peft")
    case = CASES["peft lora"]
    tuner = case.tuner()
    case.steps(tuner, 3)
    batch = case.batch()
    tuner.model.eval()
    expected = case.predict(tuner.model, batch)
    merged = copy.deepcopy(tuner.model).merge_and_unload()
    torch.testing.assert_close(case.predict(merged, batch), expected, rtol=1e-4, atol=1e-6)
    assert self_tuning_of(merged) is None
    assert type(merged).__name__ == "GPT2LMHeadModel"
    base = type(merged)(merged.config)
    base.load_state_dict(merged.state_dict())
    assert torch.equal(case.predict(base.eval(), batch), case.predict(merged, batch))


def test_modes_are_restored_through_train_so_that_merged_weights_are_taken_apart():
    """loralib adds its update to the frozen weights in eval mode, and takes it off when training goes on."""
    case = CASES["lora, merged in eval mode"]
    tuner = case.tuner()
    weight = tuner.model[0].weight.detach().clone()
    case.steps(tuner, 3)
    with tuner.evaluation():
        tuner.model(case.batch()[0])
    assert not tuner.model[0].merged
    torch.testing.assert_close(tuner.model[0].weight, weight, rtol=0, atol=1e-6)


def test_modes_that_differ_are_restored_one_by_one_and_through_train():
    model = nn.Sequential(lora(True), nn.BatchNorm1d(CLASSES))
    model[0][1].eval()  # one module within has another mode
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    stn.self_tune(model, hyper)
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1))
    modes = [m.training for m in model.modules()]
    for _ in range(2):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
        assert [m.training for m in model.modules()] == modes
        assert not model[0][0].merged


class Fused(nn.Module):
    """As RepVGG: two branches in training, one fused weight in eval mode; a norm inside stays in eval mode."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES), nn.BatchNorm1d(CLASSES)
        self.fused = None

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        self.fused = None if mode else (self.a.weight + self.b.weight).detach()
        return self

    def forward(self, x):
        if self.fused is not None:
            return self.norm(F.linear(x, self.fused))
        return self.norm(F.linear(x, self.a.weight) + F.linear(x, self.b.weight))


def test_a_module_that_fuses_detached_weights_in_eval_mode_says_that_lambda_has_no_part_in_it():
    hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
    model = stn.self_tune(Fused().train(), hyper, exclude=["*.bias"])
    tuner = stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.1))
    tuner.train_step(loss_fn, vectors())
    with pytest.raises(ValueError, match="the validation loss does not depend on λ"):
        tuner.valid_step(loss_fn, vectors())
    assert model.training
    assert model.fused is None
    assert not model.norm.training
    tuner.train_step(loss_fn, vectors())


def test_frozen_weights_do_not_move_by_a_bit():
    case = CASES["bitfit"]
    tuner = case.tuner()
    before = {n: p.detach().clone() for n, p in tuner.model.named_parameters() if "_stn." not in n}
    case.steps(tuner, 5)
    for name, p in tuner.model.named_parameters():
        if name in before:
            assert torch.equal(p, before[name]) == name.endswith("weight"), name


def test_running_statistics_are_those_of_training_alone():
    tuner = tuned(cnn, {"3": "rate"}, steps=0)
    tuner.train_step(loss_fn, images())
    mean = tuner.model[1].running_mean.clone()
    tuner.valid_step(loss_fn, images())
    assert torch.equal(tuner.model[1].running_mean, mean)
    assert int(tuner.model[1].num_batches_tracked) == 1


class Keeps(nn.Module):
    """A model that holds its hyperparameters itself."""

    def __init__(self):
        super().__init__()
        self.hyper = stn.Hyper({"decay": tune.loguniform(1e-5, 1)})
        self.fc = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.fc(x)


def test_a_model_may_hold_the_hyperparameters_itself():
    model = Keeps()
    stn.self_tune(model, model.hyper)
    tuner = stn.SelfTuner(model, model.hyper, torch.optim.Adam(model.parameters()))
    for _ in range(2):
        tuner.train_step(loss_fn, vectors())
        tuner.valid_step(loss_fn, vectors())
    other = Keeps()
    other.load_state_dict(stn.plain_state_dict(model))
    assert torch.equal(other.hyper.lam, model.hyper.lam)
    x = vectors()[0]
    assert torch.equal(other(x), model(x))
    copied = copy.deepcopy(model)
    assert required(copied).hyper is copied.hyper


def test_lists_of_images_and_mappings_have_a_batch_size():
    from stn_tune.training import batch_size

    assert batch_size([torch.randn(3, 8, 8) for _ in range(5)]) == 5
    assert batch_size([torch.randn(3, 8, k) for k in range(4, 9)]) == 5, "of different sizes"
    assert batch_size(([torch.randn(3, 8, 8)] * 2, [{"boxes": torch.randn(7, 4)}] * 2)) == 2
    assert batch_size((torch.randn(BATCH, 3), torch.randn(BATCH))) == BATCH
    assert batch_size([torch.randn(6, BATCH, 3), torch.randn(6, BATCH, 2)]) == 6, "collated sequences are a list, too"
    assert batch_size({"x": torch.randn(BATCH, 3)}) == BATCH
