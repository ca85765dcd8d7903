from __future__ import annotations

from dataclasses import fields

import pytest

from benchmarks.errors import SettingsError
from benchmarks.presets import setting_names, task_names
from benchmarks.tasks import TASKS
from benchmarks.tasks.images import ImageSettings
from benchmarks.tasks.language import LanguageSettings
from benchmarks.tasks.settings import Settings, load_settings
from stn_tune import HyperSpace
from stn_tune.algorithms.options import DeltaOptions
from stn_tune.algorithms.registry import options_of


@pytest.mark.parametrize(
    ("task", "preset"),
    [(t, p) for t in TASKS for p in ("smoke", "small", "medium", "paper") if p != "medium" or t in ("ptb", "cifar10")],
)
def test_every_preset_loads(task, preset):
    settings = load_settings(task, preset, TASKS[task].settings)
    space = HyperSpace(settings.domains())
    assert len(space.unconstrain(settings.initial())) == len(space)


def test_the_paper_preset_is_the_papers_appendix_d():
    s = load_settings("ptb", "paper", LanguageSettings)
    assert (s.layers, s.hidden, s.batch_size, s.sequence, s.vocabulary) == (2, 650, 40, 70, 10_000)
    assert (s.lr, s.lr_decay, s.lr_patience, s.lr_min, s.clip) == (30.0, 0.25, 5, 0.0003, 0.25)
    assert (s.tokens, s.valid_tokens, s.test_tokens) == (None, None, None)
    assert len(s.space) == 7
    for name, h in s.space.items():
        assert (h.lower, h.upper) == ((0, 4) if name in ("alpha", "beta") else (0, 0.95))
        assert h.init == 0.05
    assert {name for name, h in s.space.items() if h.per_batch} == {
        "embedding_dropout",
        "weight_dropout",
        "alpha",
        "beta",
    }
    stn = s.stn
    assert (stn["hyper_lr"], stn["train_steps"], stn["valid_steps"], stn["warmup"]) == (0.01, 2, 1, 1)
    assert (stn["scale"], stn["tune_scale"]) == (1.0, False)


def test_the_paper_preset_is_the_papers_appendix_e():
    s = load_settings("cifar10", "paper", ImageSettings)
    assert (s.channels, s.hidden) == ((64, 192, 384, 256, 256), 4096)
    assert (s.batch_size, s.valid_fraction, s.lr, s.momentum) == (128, 0.2, 0.01, 0.9)
    assert (s.lr_decay, s.lr_patience, s.lr_min, s.patience) == (0.1, 60, 1e-5, 75)
    assert len(s.space) == 15
    ends = {"hue": (0, 0.5), "cutout_holes": (0, 5), "cutout_length": (0, 25)}
    ends |= dict.fromkeys(("saturation", "brightness", "contrast", "input_scale"), (0, 1))
    for name, h in s.space.items():
        assert (h.lower, h.upper) == ends.get(name, (0, 0.75)), name
        assert h.init == {"cutout_holes": 1, "cutout_length": 4}.get(name, 0.05)
    space = HyperSpace(s.domains())
    assert list(space.transform("cutout_length").values()) == list(range(25))
    assert list(space.transform("cutout_holes").values()) == list(range(5))
    stn = s.stn
    assert (stn["hyper_lr"], stn["train_steps"], stn["valid_steps"], stn["warmup"]) == (0.003, 2, 1, 5)
    assert (stn["tune_scale"], stn["entropy_weight"]) == (True, 0.001)


def test_overrides():
    overrides = ["lr=10", "hidden = 200", "stn.warmup=3", "space.alpha.upper=2", "tokens=500"]
    s = load_settings("ptb", "small", LanguageSettings, overrides)
    assert (s.lr, s.hidden, s.stn["warmup"], s.space["alpha"].upper, s.tokens) == (10.0, 200, 3, 2.0, 500)
    delta = ["stn.algorithm=delta", "stn.response_every=3", "stn.draw=example", "stn.direct=true"]
    options = load_settings("ptb", "small", LanguageSettings, delta).stn_options()
    assert [options[name] for name in ("algorithm", "response_every", "draw", "direct")] == [
        "delta",
        3,
        "example",
        True,
    ]
    assert load_settings("cifar10", "small", ImageSettings, ["channels=[1,2,3,4,5]"]).channels == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("task", "preset", "override", "message"),
    [
        ("ptb", "small", "hiden=3", r"--set hiden=3: unknown setting 'hiden'; known: .*; did you mean 'hidden'\?"),
        (
            "ptb",
            "small",
            "stn.warmpu=3",
            r"unknown setting 'warmpu'; known: algorithm, .*; did you mean 'warmup'\?",
        ),
        ("ptb", "small", "space.alfa.upper=3", r"unknown setting 'alfa'; known: .*; did you mean 'alpha'\?"),
        ("ptb", "small", "hidden=big", "ptb.small.hidden is 'big'; it must be a whole number"),
        ("ptb", "small", "hidden=1.5", "hidden is 1.5; it must be a whole number"),
        ("ptb", "small", "lr=-1", "lr is -1.0; it must be finite and not negative"),
        ("ptb", "small", "stn.tune_scale=1", "tune_scale is 1; it must be true or false"),
        ("ptb", "small", "lr", "--set lr: write KEY=VALUE"),
        ("ptb", "small", "space.alpha.init=9", "space.alpha: .*9"),
        ("ptb", "small", "space.alpha.lower=5", "space.alpha: .*empty"),
        (
            "ptb",
            "small",
            "space.alpha.kind=normal",
            "space.alpha: kind is 'normal'; it must be one of uniform, loguniform, randint",
        ),
        ("ptb", "small", "lr=nan", "lr is nan; it must be finite"),
        ("ptb", "small", "batch_size=0", "batch_size is 0; it must be at least 1"),
        ("ptb", "small", "population=1", "population is 1; it must be at least 2"),
        ("ptb", "small", "perturbation_interval=0", "perturbation_interval is 0; it must be at least 1"),
        ("ptb", "small", "quantile_fraction=0.6", "quantile_fraction is 0.6; it must be above 0 and at most 0.5"),
        ("ptb", "small", "grace_period=0", "grace_period is 0; it must be at least 1"),
        ("ptb", "small", "reduction_factor=1", "reduction_factor is 1; it must be at least 2"),
        ("ptb", "small", "stn.train_steps=0", "stn: train_steps is 0; it must be a number, at least 1"),
        ("ptb", "small", "space=3", "space is 3; it must be a table"),
        ("cifar10", "small", "valid_fraction=2.0", "valid_fraction is 2.0; it must lie between 0 and 1"),
        ("cifar10", "small", "space.cutout_holes.init=1.7", "space.cutout_holes: .* must be whole numbers"),
        ("ptb", "tiny", "lr=1", r"ptb: unknown preset 'tiny'; known: paper, small, medium, smoke"),
        ("cifar", "small", "lr=1", r"unknown task 'cifar'; known: cifar10, .*; did you mean 'cifar10'\?"),
        ("ptb", "small", "space.alpha.uper=3", r"unknown setting 'uper'; .* did you mean 'upper'\?"),
        ("cifar10", "small", "space.cutout_holes.upper=1", "space.cutout_holes: .*single value"),
        ("cifar10", "small", "space.cutout_holes.levels=[5]", "levels has no value from 0 below 5"),
        ("ptb", "small", "space.alpha.levels=[5]", "levels has no value from 0 up to 4"),
        ("cifar10", "small", "channels=3", "channels is 3; it must be a list"),
        (
            "ptb",
            "small",
            "stn.algorithm=detla",
            "stn: unknown algorithm 'detla'; known: stn, delta",
        ),
        ("ptb", "small", "stn.response_every=3", "stn: unknown stn option 'response_every'"),
        ("cifar10", "small", "stn=3", "stn is 3; it must be a table"),
    ],
)
def test_mistakes_are_named(task, preset, override, message):
    with pytest.raises(SettingsError, match=message):
        load_settings(task, preset, LanguageSettings if task == "ptb" else ImageSettings, [override])


def test_every_task_has_presets_and_every_preset_a_task():
    assert sorted(TASKS) == task_names()


@pytest.mark.parametrize("task", TASKS)
def test_unknown_settings_can_be_told_from_the_presets_alone(task):
    """Without the task's own settings class, which needs torch: each of its fields is in some preset of the task."""
    own = {f.name for f in fields(TASKS[task].settings)} - {f.name for f in fields(Settings)}
    assert own <= set(setting_names(task))


def test_an_option_is_turned_off_by_none():
    s = load_settings("ptb", "small", LanguageSettings, ["stn.algorithm=delta", "stn.damping=none"])
    options = options_of(s.stn)
    assert isinstance(options, DeltaOptions)
    assert options.damping is None
    with pytest.raises(SettingsError, match="hidden"):
        load_settings("ptb", "small", LanguageSettings, ["hidden=none"])


def test_overrides_leave_the_presets_as_they_are():
    load_settings("ptb", "small", LanguageSettings, ["space.alpha.upper=2", "stn.warmup=7"])
    s = load_settings("ptb", "small", LanguageSettings)
    assert (s.space["alpha"].upper, s.stn["warmup"]) == (4.0, 1)


def test_levels_of_whole_numbers_stay_below_the_upper_end():
    s = load_settings("cifar10", "small", ImageSettings, ["space.cutout_holes.upper=4"])
    assert s.levels()["cutout_holes"] == [0, 1, 2]
