from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import benchmarks
import stn_tune as stn
from benchmarks.data.embedded import load_digits, load_pydoc
from benchmarks.data.ptb import Corpus
from benchmarks.tasks import TASKS, problem
from benchmarks.tasks.language import IGNORED, LanguageSettings, LanguageTask, Text
from benchmarks.tasks.settings import load_settings
from tests.test_trainable import exact

DATA = os.environ.get("STN_TUNE_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="needs the real PTB and CIFAR-10: set STN_TUNE_DATA to their folder")
EMBEDDED = ["digits", "pydoc"]
ALL = [*EMBEDDED, *(pytest.param(name, marks=needs_data) for name in ("ptb", "cifar10"))]


def data() -> Path | None:
    return Path(DATA) if DATA else None


@pytest.mark.parametrize("name", ALL)
def test_fixed_and_self_tuned_train_the_same_task_from_the_same_weights(name):
    p = problem(name, "smoke", data=data())
    fixed = p.fixed()(config=p.settings.initial())
    tuned = p.self_tuned(warmup=1)(config={})
    plain, hyper = dict(fixed._trainer.model.named_parameters()), dict(tuned._trainer.model.named_parameters())
    assert all(torch.equal(plain[key], hyper[key]) for key in plain)
    start = fixed._evaluate(fixed._loaders.valid)["loss"]
    for trainable in (fixed, tuned):
        results = [trainable.train() for _ in range(6)]
        assert results[-1]["best_val_loss"] < start
        assert {f"hp/{key}" for key in p.space} <= set(results[0])
        assert math.isfinite(results[-1]["test_loss"])
    assert {f"scale/{key}" for key in p.space} <= set(results[0])
    moved = [key for key in p.space if results[-1][f"hp/{key}"] != results[0][f"hp/{key}"]]
    assert len(moved) >= len(p.space) - 2, "all but perhaps the discrete ones have moved"
    trainable.stop()


@pytest.mark.parametrize("name", EMBEDDED)
def test_a_restored_trial_goes_on_bit_for_bit(name, tmp_path):
    """Hidden states and positions in the middle of a pass included."""
    p = problem(name, "smoke")
    whole = p.self_tuned(steps_per_iteration=7, warmup=0)(config={})
    expected = [exact(whole.train()) for _ in range(4)]
    first = p.self_tuned(steps_per_iteration=7, warmup=0)(config={})
    for _ in range(2):
        first.train()
    first.save_checkpoint(str(tmp_path))
    second = p.self_tuned(steps_per_iteration=7, warmup=0)(config={})
    second.load_checkpoint(str(tmp_path))
    assert [exact(second.train()) for _ in range(2)] == expected[2:]


@pytest.mark.parametrize("name", EMBEDDED)
def test_trials_end_by_the_tasks_own_rule(name):
    p = problem(name, "smoke", ["lr_patience=1", "lr=1e-30", "lr_min=1e-31"])
    trainable = p.fixed()(config=p.settings.initial())
    results = []
    while not results or not results[-1]["done"]:
        results.append(trainable.train())
        assert len(results) < 10
    assert len(results) > 1


def words(*tokens: int) -> torch.Tensor:
    return torch.tensor(tokens)


class TestText:
    def test_every_token_is_predicted_once_whatever_the_batch_size(self):
        tokens = torch.arange(100, 138)
        for batch in (1, 3, 5, 37):
            for sequence in (1, 4, 70):
                chunks = list(Text(tokens, batch, sequence, "x"))
                assert len(chunks) == len(Text(tokens, batch, sequence, "x"))
                targets = torch.cat([c.targets.flatten() for c in chunks])
                assert sorted(targets[targets != IGNORED].tolist()) == list(range(101, 138))
                for c in chunks:
                    known = c.targets != IGNORED
                    assert (c.words[known] + 1 == c.targets[known]).all()
                assert [c.first for c in chunks] == [True] + [False] * (len(chunks) - 1)

    def test_texts_carry_on_from_chunk_to_chunk(self):
        first, second, *_ = Text(torch.arange(50), 2, 10, "x")
        assert (second.words[0] == first.targets[-1]).all()


def language_task(batch: int) -> LanguageTask:
    tokens = torch.randint(0, 20, (401,), generator=torch.Generator().manual_seed(0))
    corpus = Corpus(tokens, tokens[:200], tokens[:157], [str(i) for i in range(20)])
    settings = load_settings("ptb", "smoke", LanguageSettings, [f"batch_size={batch}"])
    return LanguageTask(settings, lambda: corpus)


def test_perplexity_is_over_every_token_with_carried_state():
    """One text: chunks of 10 and one chunk of everything must agree, to the token."""
    task = language_task(1)
    trainable = stn.FixedTrainable.of(task)(config=task.settings.initial())
    found = trainable._evaluate(trainable._loaders.test)
    model = trainable._trainer.model.eval()
    tokens = trainable._loaders.test.tokens
    dropped, _, _ = model(tokens[:-1, None])
    expected = torch.nn.functional.cross_entropy(
        (dropped @ model.encoder.weight.t() + model.decoder_bias).flatten(0, 1), tokens[1:]
    ).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(expected), rel=1e-5)
    for batch in (2, 7):
        other = language_task(batch)
        again = stn.FixedTrainable.of(other)(config=task.settings.initial())
        assert again._evaluate(again._loaders.test)["loss"] == pytest.approx(expected, rel=0.01)


def test_validation_loss_has_no_penalties_and_leaves_hidden_states_alone():
    task = language_task(5)
    trainable = stn.FixedTrainable.of(task)(config={**task.settings.initial(), "alpha": 4.0, "beta": 4.0})
    trainable.train()
    before = {name: [h.clone() for pair in state for h in pair] for name, state in trainable._task._states.items()}
    strong = trainable._evaluate(trainable._loaders.valid)["loss"]
    trainable._trainer.source.set({"alpha": 0.0, "beta": 0.0})
    assert trainable._evaluate(trainable._loaders.valid)["loss"] == strong
    for name, state in trainable._task._states.items():
        for saved, h in zip(before[name], [h for pair in state for h in pair], strict=True):
            assert torch.equal(saved, h)


def test_pydoc_splits_are_disjoint_topics_and_deterministic():
    corpus = load_pydoc(vocabulary=2000)
    again = load_pydoc(vocabulary=2000)
    assert torch.equal(corpus.train, again.train)
    assert len(corpus.words) == 2000
    sizes = [len(split) for split in (corpus.train, corpus.valid, corpus.test)]
    assert sizes[0] > 50_000
    assert [size / sum(sizes) for size in sizes] == pytest.approx([0.8, 0.1, 0.1], abs=0.02)
    assert len(corpus.valid) > 5_000
    assert len(corpus.test) > 5_000
    assert corpus.train.max() < 2000
    unknown = (corpus.valid == corpus.words.index("<unk>")).double().mean()
    assert 0 < unknown < 0.2


def test_images_are_split_the_same_way_for_everyone():
    p = problem("digits", "small")
    first, second = p.task.loaders({"seed": 1}), p.task.loaders({"seed": 2})
    assert torch.equal(first.train.rows, second.train.rows)
    assert not set(first.train.rows.tolist()) & set(first.valid.rows.tolist())
    assert len(first.train.rows) == 300
    assert len(first.valid.rows) == 200
    seen = torch.cat([y for _, y in first.train])
    assert sorted(seen.tolist()) == sorted(first.train.y[first.train.rows].tolist())


def test_strengths_of_zero_leave_the_pictures_alone():
    p = problem("digits", "smoke")
    x = torch.randint(0, 256, (6, 1, 8, 8), dtype=torch.uint8)
    plain = p.task.inputs(x, {}, training=False)
    zeros = dict.fromkeys(p.space, 0.0)
    torch.testing.assert_close(p.task.inputs(x, zeros, training=True), plain, rtol=0, atol=0)
    vectors = dict.fromkeys(p.space, torch.zeros(6))
    torch.testing.assert_close(p.task.inputs(x, vectors, training=True), plain, rtol=0, atol=0)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ptb", "cifar10"])
def test_the_paper_preset_runs_at_full_size(name):
    """Three training and two hyperparameter steps, and the parameter counts."""
    p = problem(name, "paper", data=data())
    trainable = p.self_tuned(steps_per_iteration=3, warmup=0)(config={})
    tuner = trainable._trainer
    n = len(p.space)
    elementary = sum(q.numel() for q in p.task.model({}).parameters())
    total = sum(q.numel() for q in tuner.model.parameters())
    if name == "ptb":
        lstm = 2 * (4 * 650 * (650 + 650))
        assert elementary == 10_000 * 650 + 10_000 + lstm + 2 * 2 * 4 * 650
        assert total == elementary + lstm + 2 * (2 * 4 * 650 + 4 * n * 4 * 650)
    else:
        convs = [(3, 64), (64, 192), (192, 384), (384, 256), (256, 256)]
        fcs = [(1024, 4096), (4096, 4096), (4096, 10)]
        expected = sum(9 * a * b + b for a, b in convs) + sum(a * b + b for a, b in fcs)
        rows = sum(b for _, b in [*convs, *fcs])
        assert elementary == expected
        assert total == 2 * expected + 2 * n * rows
    train, valid = iter(trainable._train_batches()), iter(trainable._valid_batches())
    losses = [tuner.train_step(p.task.loss, next(train)) for _ in range(3)]
    losses += [tuner.valid_step(p.task.loss, next(valid)) for _ in range(2)]
    assert all(math.isfinite(loss) for loss in losses)
    assert tuner.weight_steps == 3
    assert len(tuner.schedule) == 2


def test_the_names_of_the_tasks():
    assert sorted(TASKS) == ["cifar10", "digits", "ptb", "pydoc", "theory"]
    assert benchmarks.TASKS is TASKS


def test_digits_are_scikit_learns_own():
    from sklearn import datasets

    pictures, labels = datasets.load_digits(return_X_y=True)
    found = load_digits()
    values = torch.cat([found.train_x, found.test_x]).view(-1, 64).float().sum(0)
    assert values.numpy() == pytest.approx(np.round(pictures * (255 / 16)).sum(0))
    assert torch.bincount(torch.cat([found.train_y, found.test_y])).tolist() == np.bincount(labels).tolist()
