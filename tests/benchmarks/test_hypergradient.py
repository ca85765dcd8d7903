"""Hypergradients against finite differences: the measurement is right, and leaves the run alone."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.microbenchmarks.hypergradient import measure_all, report, variants_of
from benchmarks.microbenchmarks.hypergradient.agreement import agreement
from benchmarks.microbenchmarks.hypergradient.checkpoints import Checkpoint, Log, read_folder
from benchmarks.microbenchmarks.hypergradient.figures import (
    draw_cosine,
    draw_gradients,
    draw_ratios,
    select,
    select_ratios,
)
from benchmarks.microbenchmarks.hypergradient.measure import (
    Measurement,
    estimated_gradients,
    finite_differences,
    measure,
)
from benchmarks.microbenchmarks.hypergradient.tables import theory_ratios
from benchmarks.tasks import problem
from stn_tune.errors import NonFiniteError

QUICK = Measurement(step=0.7, passes=1, repeats=2)


def started(task: str, *sets: str, tuned=(), **options):
    torch.set_num_threads(1)
    p = problem(task, "smoke", sets, tuned=tuned)
    return p.self_tuned(**options)(config={**p.initial, "seed": 0})


def test_both_gradients_match_the_closed_form():
    trainable = started("theory")
    for _ in range(8):
        result = trainable.train()
    truth = result["val_response/gradient_exact"]
    found = finite_differences(trainable, Measurement(step=0.02, passes=4, repeats=2), seed=1)
    assert found == [pytest.approx(truth, rel=0.02)]
    estimate, sizes = estimated_gradients(trainable)
    assert estimate.tolist() == [[pytest.approx(result["val_response/gradient"], rel=1e-4)]]
    assert sizes == [200]


@pytest.mark.parametrize("algorithm", ["stn", "delta"])
@pytest.mark.parametrize(
    ("task", "setting", "tuned"),
    [
        ("digits", "patience=9", ("conv1_dropout", "cutout_holes")),
        ("pydoc", "tokens=2000", ("weight_dropout", "alpha")),
    ],
)
def test_a_measured_run_is_the_same_run(task, setting, tuned, algorithm):
    """The language model carries hidden states, the images are shuffled by the global generators."""
    rows: list[list[dict]] = [[], []]
    quiet = started(task, setting, tuned=tuned, algorithm=algorithm, warmup=0)
    for _ in range(3):
        rows[0].append(quiet.train())
    expected = quiet._state()
    measured = started(task, setting, tuned=tuned, algorithm=algorithm, warmup=0)
    for _ in range(3):
        rows[1].append(measured.train())
        found = measure(measured, rows[1][-1], QUICK, seed=3)
        assert np.isfinite(found["truth"]).all()
        assert np.isfinite(found["estimate"]).all()
    for one, other in zip(*rows, strict=True):
        for key in one:
            if key.startswith(("val_", "hp/", "scale/", "train_loss")):
                assert one[key] == other[key], key
    state = measured._state()
    for part in ("trainer", "task", "streams", "scheduler"):
        same = torch.utils._pytree.tree_map(_equal, expected[part], state[part])
        assert all(torch.utils._pytree.tree_leaves(same)), part


def _equal(a, b) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_repeats_differ_and_a_repeat_is_reproducible():
    trainable = started("digits")
    result = trainable.train()
    first, again, other = (measure(trainable, result, QUICK, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["truth"] != other["truth"]
    assert first["truth"][0] != first["truth"][1]
    assert first["estimate"] == other["estimate"]


def test_training_that_diverges_has_no_gradient(monkeypatch):
    trainable = started("digits")
    trainable.train()

    def diverge(*args):
        raise NonFiniteError("the training loss is nan")

    monkeypatch.setattr("stn_tune.algorithms.fixed.FixedTrainer.epoch", diverge)
    assert np.isnan(finite_differences(trainable, QUICK, seed=0)).all()


def arguments(out, *more):
    sizes = ["--passes", "1", "--repeats", "2", "--seeds", "1", "--algorithms", "stn", "--preset", "smoke"]
    return ["hypergradient", "digits", *sizes, "--out", str(out), *more]


def test_a_run_resumes_and_measures_only_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(arguments(tmp_path, "--epochs", "1")) == 0
    line = (tmp_path / "stn-0.jsonl").read_text()
    calls: list[int] = []

    def counted(trainable, result, *rest):
        calls.append(result["epoch"])
        return measure(trainable, result, *rest)

    monkeypatch.setattr("benchmarks.microbenchmarks.hypergradient.measure.measure", counted)
    capsys.readouterr()
    assert main(arguments(tmp_path, "--epochs", "1", "2")) == 0
    assert calls == [2]
    lines = (tmp_path / "stn-0.jsonl").read_text().splitlines()
    assert lines[0] == line.strip()
    assert [json.loads(text)["epoch"] for text in lines] == [1, 2]
    text = capsys.readouterr().out
    table = [part for part in text.splitlines() if "jsonl" not in part and ".svg" not in part]
    assert max(map(len, table)) <= 80
    assert "…" not in text
    assert {path.name for path in tmp_path.glob("*.svg")} == {"gradients.svg", "cosine.svg"}
    before = (tmp_path / "gradients.svg").read_bytes()
    assert main(arguments(tmp_path, "--draw-only")) == 0
    assert calls == [2]
    assert (tmp_path / "gradients.svg").read_bytes() == before
    capsys.readouterr()
    assert main(arguments(tmp_path, "--step", "0.3")) == 2
    assert "was measured with step = 0.7, not 0.3: use another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--draw-only"], "has no measured checkpoints"),
        (["--algorithms", "magic"], "unknown algorithm 'magic'; known: stn, delta"),
        (["--repeats", "1"], "--repeats is 1; it must be at least 2"),
        (["--set", "hiden=3"], "did you mean 'hidden'?"),
        (["--set", "stn.direct=true"], "stn.direct is set"),
    ],
)
def test_bad_input_is_one_line_and_code_2(more, message, tmp_path, capsys):
    assert main(arguments(tmp_path, *more)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_file_that_is_no_log_is_named(tmp_path, capsys):
    (tmp_path / "stn-0.jsonl").write_text('{"epoch": 1}\n')
    assert main(arguments(tmp_path, "--draw-only")) == 2
    assert "stn-0.jsonl, line 1: not a checkpoint" in capsys.readouterr().err


def checkpoint(truth, estimate, **more) -> Checkpoint:
    n = len(truth[0])
    about = {"variant": "stn", "seed": 0, "epoch": 10, "val_loss": 1.0, "options": {"algorithm": "stn"}}
    settings = {"task": "digits", "preset": "small", "step": 0.7, "passes": 3, "repeats": len(truth)}
    values = {f"h{k}": 0.1 for k in range(n)}
    return Checkpoint(
        **{**about, **more},
        values=values,
        truth=truth,
        estimate=estimate,
        sizes=[10] * len(estimate),
        settings=settings,
    )


def test_agreement_of_known_gradients():
    truth = [[1.0, -2.0, 0.1], [1.1, -2.1, -0.1], [0.9, -1.9, 0.0]]
    same = agreement(checkpoint(truth, [[2.0, -4.0, 0.1], [2.0, -4.0, -0.1]]))
    assert same.cosine == pytest.approx(1.0, abs=1e-3)
    assert (same.right_signs, same.certain) == (2, 2)
    assert same.size == pytest.approx(2.0, rel=1e-3)
    assert same.low <= same.cosine <= same.high
    assert same.conclusive
    opposite = agreement(checkpoint(truth, [[-2.0, 4.0, 0.1]]))
    assert opposite.cosine < -0.99
    assert (opposite.right_signs, opposite.certain) == (0, 2)
    noise = agreement(checkpoint([[1.0, 0.0], [-1.0, 0.1], [0.0, -1.0]], [[1.0, 1.0]]))
    assert not noise.conclusive
    lost = agreement(checkpoint([[np.nan, 1.0], [1.0, 1.0]], [[1.0, 1.0]]))
    assert np.isnan(lost.itself)
    assert not lost.conclusive


def test_batches_count_by_their_size():
    found = checkpoint([[1.0], [1.0]], [[1.0], [4.0]])
    assert agreement(found).estimate.mean.tolist() == [2.5]
    found.sizes[:] = [20, 10]
    assert agreement(found).estimate.mean.tolist() == [2.0]


def test_what_cannot_be_concluded_is_said(tmp_path, capsys):
    log = Log(tmp_path / "stn-0.jsonl", checkpoint([[1.0]], [[1.0]]).settings)
    for epoch, truth in ((10, [[1.0, 0.0], [-1.0, 0.1]]), (20, [[1.0, np.nan], [1.0, 0.1]])):
        found = checkpoint(truth, [[1.0, 1.0]], epoch=epoch)
        log.add(**{key: value for key, value in vars(found).items() if key != "settings"})
    report(tmp_path)
    assert "nothing can be concluded" in " ".join(capsys.readouterr().out.split())
    frame = select(read_folder(tmp_path))
    figure = draw_gradients(frame)
    assert len(figure.axes) == 2
    assert "too uncertain" in figure.axes[0].get_title("left")
    assert draw_cosine(frame).axes[0].get_ylabel() == "cosine of estimate and truth"


def test_theory_has_algorithm_1_and_all_combinations_of_delta():
    p = problem("theory", "smoke")
    variants = variants_of(p, ["stn", "delta"])
    assert len(variants) == len({v.name for v in variants}) == 2 * (1 + 8)
    switches = {tuple(v.options.get(k) for k in ("separate", "centred", "linearised")) for v in variants}
    assert switches == {(None, None, None), *product((True, False), repeat=3)}


def test_theory_gives_a_table_of_ratios_to_the_closed_form(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    measure_all("theory", tmp_path, algorithms=["stn"], seeds=[0], epochs=[1, 6], preset="smoke")
    report(tmp_path)
    *lines, drawn = capsys.readouterr().out.splitlines()
    assert drawn == str(tmp_path / "ratios.svg"), "a path is not broken, however long"
    (row,) = (line.split() for line in lines if "Algorithm 1" in line)
    early, late, *moving = map(float, row[2:])
    assert 0 < early < 0.5 < late < 1.1, "a response that is learned grows from 0"
    assert len(moving) == 2
    assert max(map(len, lines)) <= 80


def test_the_committed_measurement_of_the_theory_task_is_drawn():
    checkpoints = read_folder(Path(__file__).parents[2] / "results" / "hypergradient-theory")
    ratios = theory_ratios(checkpoints)
    assert len(ratios) == 9, "Algorithm 1 and the eight combinations of Δ-STN"
    assert all(np.median(found[False, 18]) == pytest.approx(1, abs=0.1) for found in ratios.values()), "λ held"
    held, moving = draw_ratios(select_ratios(checkpoints)).axes
    rows = [label.get_text() for label in held.get_yticklabels()]
    assert rows[0] == "Algorithm 1"
    assert rows[-4:-2] == ["Δ-STN: separate, centred", "Δ-STN: separate, centred, linearised"]
    assert [ax.get_title(loc="left") for ax in (held, moving)] == ["λ is held", "λ moves in small steps"]
