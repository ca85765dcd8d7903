"""torch.compile: the benchmark's models, in all steps, without graph breaks and without compiling again."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch._dynamo.utils import counters

import stn_tune as stn
from benchmarks.microbenchmarks.speed import cnn, lstm

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # dynamo looks at it
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated"),  # inductor imports what uses it
]
CASES = {
    "alexnet": (cnn.SIZES["smoke"].tuner, cnn.loss, lambda: (torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,)))),
    "language model": (lstm.SIZES["smoke"].tuner, lstm.loss, lstm.SIZES["smoke"].words),
}


def compiled(make, backend, algorithm):
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    tuner = make()
    tuner.model.compile(backend=backend)
    return stn.SelfTuner(
        tuner.model,
        tuner.hyper,
        tuner.optimizer,
        algorithm=algorithm,
        batch_size=tuner.batch_size,
        **({"response_every": 1} if algorithm == "delta" else {}),
    )


@pytest.mark.parametrize("algorithm", ["stn", "delta"])
@pytest.mark.parametrize("name", CASES)
def test_no_graph_break_and_no_second_compilation(name, algorithm):
    make, loss, batch = CASES[name]
    tuner = compiled(make, "aot_eager", algorithm)

    def one_round():
        tuner.train_step(loss, batch())
        tuner.valid_step(loss, batch())
        tuner.evaluate(loss, [batch()])

    for _ in range(2):
        one_round()
    graphs = counters["stats"]["unique_graphs"]
    assert graphs
    lam = tuner.hyper.lam.clone()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(4):
            one_round()
    assert counters["stats"]["unique_graphs"] == graphs
    assert not counters["graph_break"]
    assert (tuner.hyper.lam != lam).any()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("name", CASES)
def test_inductor_computes_what_eager_computes(name):
    make, loss, batch = CASES[name]
    losses = []
    data = batch()
    for backend in ("eager", "inductor"):
        tuner = compiled(make, backend, "stn")
        tuner.draw = "mean"  # dropout draws other masks when compiled
        for key in tuner.hyper.space.names:
            tuner.hyper.lam[tuner.hyper.index[key]] = tuner.hyper._lowest[tuner.hyper.index[key]]
        losses.append([float(tuner.evaluate(loss, [data])), float(tuner.valid_step(loss, data))])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
