"""How much a self-tuning step costs, as a ratio to the same plain model's training step on torch's own kernels."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from ray import tune
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

import stn_tune as stn
from benchmarks.microbenchmarks.timing import SpeedCase, SpeedRow, Step, measure_steps, peak_memory_mib, plain_step
from benchmarks.models.alexnet import AlexNet
from benchmarks.models.language_model import PLAIN_LAYERS, LanguageModel


def limits(tuned: float, plain: float) -> dict[str, float]:
    """Ratios by operation counts, for forward multiply-adds in layers that are converted and that are not.

    A plain step is forward, gradient of inputs, gradient of weights: 3. Per example, a converted layer does twice
    the work; a hyperparameter step needs no gradient of weights. Where all examples share one λ the weights are
    materialised: a weight step is a plain step, and a hyperparameter step needs the gradient of Ŵ(λ), but not of
    the layers that stay plain.
    """
    whole = 3 * (tuned + plain)
    return {
        "weight": 3 * (2 * tuned + plain) / whole,
        "weight, one ε": 1.0,
        "hyper": 2 * (2 * tuned + plain) / whole,
        "hyper, one λ": (3 * tuned + 2 * plain) / whole,
    }


def lstm(vocabulary: int, hidden: int, batch: int, time_steps: int, lr: float) -> tuple[Step, list[SpeedCase]]:
    """The ST-LSTM against the same LSTM on torch's kernels; both with the fused softmax and all dropouts."""
    rates = ("input_dropout", "hidden_dropout", "output_dropout", "embedding_dropout", "weight_dropout")
    space = dict.fromkeys(rates, tune.uniform(0, 0.95)) | dict.fromkeys(("alpha", "beta"), tune.uniform(0, 4))
    init = dict.fromkeys(space, 0.05)
    words = torch.randint(0, vocabulary, (time_steps + 1, batch))

    def loss(model: nn.Module, words: Tensor, hp: Mapping[str, Any]) -> Tensor:
        assert isinstance(model, LanguageModel)
        dropped, raw, _ = model(words[:-1])
        value = model.loss(dropped, words[1:])
        if model.training:
            value = value + stn.nn.activation_reg(dropped, hp.get("alpha", 0.05))
            value = value + stn.nn.temporal_activation_reg(raw, hp.get("beta", 0.05))
        return value

    def tuner(**options: Any) -> stn.SelfTuner:
        hyper = stn.Hyper(
            space,
            init,
            scale=1.0,
            tune_scale=False,
            per_batch=["embedding_dropout", "weight_dropout", "alpha", "beta"],
        )
        model = stn.self_tune(LanguageModel(vocabulary, hidden), hyper, exclude=PLAIN_LAYERS)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        return stn.SelfTuner(model, hyper, optimizer, clip=0.25, batch_size=lambda b: b.shape[1], **options)

    plain = LanguageModel(vocabulary, hidden)
    stn.fix(plain, init)
    optimizer = torch.optim.SGD(plain.parameters(), lr=lr)
    example, shared = tuner(draw="example"), tuner()
    tokens = batch * time_steps
    limit = limits(tokens * 2 * 8 * hidden * hidden, tokens * hidden * vocabulary)
    cases = [
        SpeedCase(
            "ST-LSTM weight step, ε per example",
            lambda: example.train_step(loss, words),
            limit["weight"],
            1.50,
        ),
        SpeedCase(
            "ST-LSTM hyperparameter step",
            lambda: example.valid_step(loss, words),
            limit["hyper, one λ"],
            0.85,
        ),
        SpeedCase(
            "ST-LSTM weight step, one ε per batch", lambda: shared.train_step(loss, words), limit["weight, one ε"], 1.10
        ),
    ]
    return plain_step(plain, optimizer, loss, words, 0.25), cases


def cnn(channels: tuple[int, ...], hidden: int, batch: int) -> tuple[Step, list[SpeedCase]]:
    """The ST-CNN against the same AlexNet on torch's kernels, both with all dropouts."""
    names = [*(f"conv{k}_dropout" for k in range(1, 6)), "fc1_dropout", "fc2_dropout"]
    space = dict.fromkeys(names, tune.uniform(0, 0.75))
    init = dict.fromkeys(names, 0.05)
    data = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor], hp: Mapping[str, Any]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def tuner(**options: Any) -> stn.SelfTuner:
        hyper = stn.Hyper(space, init)
        model = stn.self_tune(AlexNet(channels, hidden), hyper)
        return stn.SelfTuner(model, hyper, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), **options)

    plain = AlexNet(channels, hidden)
    stn.fix(plain, init)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01, momentum=0.9)
    example, shared = tuner(draw="example"), tuner()
    limit = limits(1.0, 0.0)
    cases = [
        SpeedCase("ST-CNN weight step, ε per example", lambda: example.train_step(loss, data), limit["weight"], 1.95),
        SpeedCase("ST-CNN hyperparameter step", lambda: example.valid_step(loss, data), limit["hyper"], 1.10),
        SpeedCase(
            "ST-CNN weight step, one ε per batch", lambda: shared.train_step(loss, data), limit["weight, one ε"], 1.35
        ),
    ]
    return plain_step(plain, optimizer, loss, data, None), cases


def augmentation(preset: str) -> tuple[Step, list[SpeedCase]]:
    """Augmentation and evaluation of the CIFAR-10 task on random pictures, against its plain training step."""
    task, plain, tuned = _images(preset)
    x, y = torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (128,))
    strengths = tuned.hyper.sample(128)
    step = plain_step(
        plain.model,
        plain.optimizer,
        lambda model, batch, _: task.loss(model, batch, plain.source.current),
        (x, y),
        None,
    )
    return step, [
        SpeedCase("CIFAR-10 augmentation, per example", lambda: task.inputs(x, strengths, training=True), None, 0.15)
    ]


def evaluation(preset: str) -> tuple[Step, list[SpeedCase]]:
    """Evaluating a self-tuned model, whose weights are materialised once, against evaluating the plain one."""
    task, plain, tuned = _images(preset)
    batches = [(torch.randint(0, 256, (128, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 10, (128,)))] * 10
    case = SpeedCase("STN evaluation, CIFAR-10", lambda: task.evaluate(tuned, batches), 1.0, 1.10)
    return (lambda: task.evaluate(plain, batches)), [case]


def language_evaluation(preset: str) -> tuple[Step, list[SpeedCase]]:
    """The same for the language model."""
    from benchmarks.data.ptb import Corpus
    from benchmarks.tasks.language import LanguageSettings, LanguageTask
    from benchmarks.tasks.settings import load_settings

    settings = load_settings("ptb", preset, LanguageSettings)
    tokens = torch.randint(0, settings.vocabulary, (5_000,))
    task = LanguageTask(settings, lambda: Corpus(tokens, tokens, tokens, [str(i) for i in range(settings.vocabulary)]))
    plain, tuned, loaders = _trainers(task)
    case = SpeedCase("STN evaluation, PTB", lambda: task.evaluate(tuned, loaders.valid), 1.0, 1.10)
    return (lambda: task.evaluate(plain, loaders.valid)), [case]


def _images(preset: str) -> tuple[Any, Any, Any]:
    from benchmarks.data.cifar10 import Images
    from benchmarks.tasks.images import CIFAR10_MEAN, CIFAR10_STD, ImageSettings, ImageTask, alexnet
    from benchmarks.tasks.settings import load_settings

    settings = load_settings("cifar10", preset, ImageSettings)
    x, y = torch.zeros(500, 3, 32, 32, dtype=torch.uint8), torch.zeros(500, dtype=torch.long)
    task = ImageTask(settings, lambda: Images(x, y, x, y), alexnet, CIFAR10_MEAN, CIFAR10_STD)
    plain, tuned, _ = _trainers(task)
    return task, plain, tuned


def _trainers(task: Any) -> tuple[Any, Any, stn.Loaders]:
    """A task's plain and self-tuned trainer, as its trainables make them."""
    settings = task.settings
    fixed = stn.FixedTrainable.of(task)(config=settings.initial())
    tuned = stn.STNTrainable.of(task, space=settings.domains(), **settings.stn_options())(config={})
    return fixed._trainer, tuned._trainer, fixed._loaders


def tune_overhead(seconds: float) -> list[SpeedRow]:
    """Time per iteration of 100 steps of the digits task inside Tune, against the SelfTuner calls in that iteration.

    Both are taken in the same process and the same iteration: two processes on this machine differ by more than what
    is measured. Tune adds some 10 to 30 ms per iteration, for its loggers and the way to the driver and back.
    """
    import ray
    from ray.tune import RunConfig, Tuner

    from benchmarks.tasks import problem

    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    digits = problem("digits", "small", ["patience=1000000", "lr_patience=1000000"])
    started = not ray.is_initialized()
    if started:
        quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init("local", num_cpus=1, runtime_env=worker_env(), **quiet)
    with tempfile.TemporaryDirectory() as folder:
        results = Tuner(
            digits.self_tuned(steps_per_iteration=100),
            param_space={},
            run_config=RunConfig(storage_path=folder, stop=lambda _, r: r["wall_s"] > seconds, verbose=0),
        ).fit()
        frame = results[0].metrics_dataframe
    if started:
        ray.shutdown()
    inside = frame["wall_s"].diff().dropna()
    own = (frame["train_s"] + frame["eval_s"]).diff().dropna()
    name = "100 digits steps inside Tune"
    ratio = float((inside / own).median())
    return [SpeedRow(name, ratio, None, 1.05, inside.median() * 1e3, own.median() * 1e3, peak_memory_mib())]


def worker_env() -> dict[str, Any]:
    """Lets Ray's workers import ``benchmarks`` from this checkout."""
    return {"env_vars": {"PYTHONPATH": str(Path(__file__).parents[2])}}


SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "paper": {
        "lstm": {"vocabulary": 10_000, "hidden": 650, "batch": 40, "time_steps": 70, "lr": 1.0},
        "cnn": {"channels": (64, 192, 384, 256, 256), "hidden": 4096, "batch": 128},
        "augmentation": {"preset": "small"},
        "evaluation": {"preset": "small"},
        "language evaluation": {"preset": "small"},
        "tune": {"seconds": 60.0},
    },
    "smoke": {
        "lstm": {"vocabulary": 50, "hidden": 8, "batch": 4, "time_steps": 5, "lr": 1.0},
        "cnn": {"channels": (4, 4, 4, 4, 4), "hidden": 16, "batch": 4},
        "augmentation": {"preset": "smoke"},
        "evaluation": {"preset": "smoke"},
        "language evaluation": {"preset": "smoke"},
        "tune": {"seconds": 2.0},
    },
}
GROUPS: dict[str, Callable[..., tuple[Step, list[SpeedCase]]]] = {
    "lstm": lstm,
    "cnn": cnn,
    "augmentation": augmentation,
    "evaluation": evaluation,
    "language evaluation": language_evaluation,
}
NAMES = {
    "lstm": ["lstm"],
    "cnn": ["cnn"],
    "tasks": ["augmentation", "evaluation", "language evaluation"],
    "tune": ["tune"],
}
"""What ``--only`` takes."""


def time_steps(size: str = "paper", only: list[str] | None = None, rounds: int = 7, threads: int = 1) -> list[SpeedRow]:
    """All rows, one group of models after the other."""
    torch.set_num_threads(threads)
    rows: list[SpeedRow] = []
    groups = [group for name in only or NAMES for group in NAMES[name]]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        for group in groups:
            torch.manual_seed(0)
            if group == "tune":
                progress.add_task("timing Tune", total=None)
                rows += tune_overhead(**SIZES[size][group])
                continue
            plain, cases = GROUPS[group](**SIZES[size][group])
            task = progress.add_task(f"timing {group}", total=(len(cases) + 1) * (rounds + 1))
            rows += measure_steps(plain, cases, rounds, lambda task=task: progress.advance(task))  # type: ignore[misc]
    return rows


def print_speed_table(rows: list[SpeedRow], size: str, rounds: int, threads: int) -> None:
    """The ratios, beside what counting operations would give and what is to be reached."""
    table = Table(
        title=f"Cost of self-tuning, relative to the same model without it ({size} size)",
        caption=f"medians of {rounds} interleaved rounds, {threads} thread{'s' * (threads > 1)}, "
        f"torch {torch.__version__}",
    )
    table.add_column("step")
    for column in ("ratio", "limit by\nFLOPs", "target", "ms", "plain\nms", "peak\nMiB"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        reached = "green" if row.ratio <= row.target else "red"
        table.add_row(
            row.name,
            f"[{reached}]{row.ratio:.2f}[/]",
            "" if row.limit is None else f"{row.limit:.2f}",
            f"≤ {row.target:.2f}",
            f"{row.ms:,.1f}",
            f"{row.plain_ms:,.1f}",
            f"{row.rss_mib:,.0f}",
        )
    Console().print(table)
