"""The command line, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stn_tune
from baselines import METHODS
from benchmarks.__main__ import main
from benchmarks.arguments import seconds, seed_list
from benchmarks.commands import build_parser

REPO = Path(__file__).parents[2]


COMMANDS = [
    "demo",
    "data",
    "train",
    "run",
    "report",
    "overview",
    "schedules",
    "sensitivity",
    "theory",
    "searchers",
    "speed",
    "hypergradient",
    "faults",
]


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(f"    {command} " in text or f"    {command}\n" in text for command in COMMANDS)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=lambda command: " ".join(command) or "-")
def test_help_fits_the_terminal_and_explains_every_option(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    lines = text.partition("options:")[2].partition("\n\n")[0].splitlines()
    bare = [
        line
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("  -") and not after.startswith("   ") and "  " not in line.strip()
    ]
    assert not bare, "options without help"


def test_help_of_run_lists_the_methods(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["run", "--help"])
    text = capsys.readouterr().out
    for name, method in METHODS.items():
        assert f"  {name:10}{method.info.summary}" in text


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"stn_tune {stn_tune.__version__}\n"


LIGHT = [
    (["--help"], 0),
    (["--version"], 0),
    *(([name, "--help"], 0) for name in COMMANDS),
    ([], 2),
    (["fly"], 2),
    (["run", "mnist"], 2),
    (["run", "digits", "--preset", "huge"], 2),
    (["run", "digits", "--methods", "magic"], 2),
    (["run", "digits", "--methods", "replay"], 2),
    (["run", "digits", "--seeds", "x"], 2),
    (["run", "digits", "--budget", "soon"], 2),
    (["run", "digits", "--set", "hiden=3"], 2),
    (["run", "digits", "--set", "stn.warmpu=3"], 2),
    (["run", "digits", "--tune", "droput"], 2),
    (["run", "digits", "--cpus", "0"], 2),
    (["schedules", "digits"], 2),
    (["sensitivity", "digits", "--steps", "2"], 2),
    (["train", "mnist"], 2),
    (["train", "digits", "--set", "hiden=3"], 2),
    (["train", "digits", "--value", "fc_dropout=0.1"], 2),
    (["train", "digits", "--seed", "-1"], 2),
    (["hypergradient", "mnist"], 2),
    (["hypergradient", "digits", "--repeats", "1"], 2),
    (["hypergradient", "digits", "--step", "0"], 2),
    (["hypergradient", "digits", "--epochs", "0"], 2),
    (["data", "mnist"], 2),
    (["demo", "--budget", "soon"], 2),
    (["report"], 2),
    (["faults", "--kinds", "flood"], 2),
    (["run", "digits", "--workers", "500"], 2),
    (["run", "digits", "--dry-run", "--out", "/nowhere/at/all"], 0),
]


def test_help_and_bad_arguments_do_not_wait_for_heavy_imports():
    """In one process of its own: this one has imported everything."""
    script = """
import contextlib, io, json, sys
import stn_tune
from baselines import METHODS
from benchmarks.__main__ import main
from benchmarks.arguments import seconds, seed_list
from benchmarks.commands import build_parser
for argv, expected in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            code = main(argv)
        except SystemExit as end:
            code = end.code
    assert code == expected, (argv, code)
    assert len(errors.getvalue().splitlines()) == (1 if code else 0), (argv, errors.getvalue())
    heavy = {"torch", "ray", "pandas", "numpy", "matplotlib", "rich"} & set(sys.modules)
    assert not heavy, (argv, heavy)
"""
    command = [sys.executable, "-c", script, json.dumps(LIGHT)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("20m", 1200), ("6h", 21600), ("1h30m", 5400), ("7", 7)])
def test_durations(text, value):
    assert seconds(text) == value


@pytest.mark.parametrize(("text", "value"), [("3", [0, 1, 2]), ("0,3,7", [0, 3, 7]), ("7,", [7])])
def test_seeds(text, value):
    assert seed_list(text) == value


@pytest.mark.parametrize("mode", [[], ["--self-tuned"]])
def test_train_prints_every_epoch_and_the_best(mode, capsys):
    command = ["train", "digits", "--preset", "smoke", "--set", "patience=3", "--value", "fc1_dropout=0.3"]
    assert main([*command, *mode, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert rows[-1]["best_val_loss"] == min(row["val_loss"] for row in rows[:-1])
    assert rows[-1]["epochs"] == rows[-2]["epoch"]
    assert main([*command, *mode, "--seconds", "0"]) == 0
    text = capsys.readouterr().out
    assert "best: best_val_loss" in text
    assert "test at best" in text
    assert ("hyperparameters, initial -> final:" in text) == bool(mode)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "mnist"], "unknown task 'mnist'"),
        (["train", "digits", "--preset", "huge"], "digits: unknown preset 'huge'"),
        (["train", "digits", "--set", "hiden=3"], "did you mean 'hidden'?"),
        (["train", "digits", "--value", "fc1_dropout=0.9"], "--value fc1_dropout=0.9: fc1_dropout: "),
        (
            ["train", "digits", "--value", "fc_dropout=0.1"],
            "--value fc_dropout=0.1: unknown hyperparameter 'fc_dropout'; known: conv1_dropout",
        ),
        (["train", "ptb", "--data-dir", "/nowhere"], "python -m benchmarks data ptb"),
        (["train", "digits", "--set", "channels=[]"], "channels is []; it must have at least one layer"),
        (["train", "digits", "--set", "channels=[4, 0]"], "channels is [4, 0]; it must have at least one layer"),
        (["train", "digits", "--set", "examples=1"], "nothing is left to train, validate or test on"),
        (["train", "pydoc", "--set", "valid_tokens=1"], "valid_tokens is 1; it must be at least 2"),
    ],
)
def test_bad_input_of_train_is_one_line_and_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_speed_gives_every_row_as_json(capsys):
    groups = ["lstm", "cnn", "forward", "growth", "tasks"]
    only = [part for group in groups for part in ("--only", group)]
    assert main(["speed", "--size", "smoke", "--rounds", "2", *only, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len({row["name"] for row in rows}) == 7 + 8 + 6 + 4 + 3
    for row in rows:
        assert {"name", "ratio", "limit", "traffic", "target", "ms", "rss_mib"} <= set(row)
        assert row["ratio"] > 0
    ratios = {row["name"]: row["ratio"] for row in rows}
    epoch = ratios["ST-LSTM weight step"] + ratios["ST-LSTM hyper step"] / 4
    assert ratios["ST-LSTM epoch 4:1"] == pytest.approx(epoch)


def test_speed_table_fits_the_terminal(capsys, monkeypatch):
    from benchmarks.microbenchmarks.speed import print_speed_table
    from benchmarks.microbenchmarks.speed.timing import SpeedRow

    monkeypatch.setenv("COLUMNS", "80")
    rows = [SpeedRow("ST-LSTM weight, per example", 1.234, 1.51, 2.17, 1.5, 1234.5, 98.76, 1234.5)]
    print_speed_table(rows, "paper", rounds=7, threads=1)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "ST-LSTM weight, per example 1.23 ≤1.50 1.51 2.17 1,234 98.8 1,234" in [" ".join(x.split()) for x in lines]


def test_speed_choices_are_the_groups():
    from benchmarks.microbenchmarks.speed import GROUPS

    for group in GROUPS:
        assert build_parser().parse_args(["speed", "--only", group]).only == [group]


def test_speed_limits_are_those_of_counting_operations():
    from benchmarks.microbenchmarks.speed import limits

    lstm = limits(tuned=2 * 8 * 650 * 650, plain=650 * 10_000)
    assert lstm["weight"] == pytest.approx(1.51, abs=0.005)
    assert lstm["hyper, one λ"] == pytest.approx(0.84, abs=0.005)
    assert limits(1.0, 0.0)["hyper"] == pytest.approx(4 / 3)


def test_speed_traffic_counts_the_passes_over_the_weights():
    from benchmarks.microbenchmarks.speed import traffic

    assert traffic(0.0, 1.0, clip=True, momentum=False)["weight"] == 1
    assert traffic(1.0, 0.0, clip=True, momentum=False) == {"weight": (9 + 12) / 9, "hyper": 11 / 9}
    assert traffic(1.0, 0.0, clip=False, momentum=True) == {"weight": (9 + 12) / 8, "hyper": 11 / 8}


def test_a_dry_run_lists_what_would_run_and_says_that_trials_share_cores(tmp_path, capsys):
    workers = 2 * (os.cpu_count() or 1)
    words = ["run", "digits", "--methods", "stn", "tpe", "--seeds", "4,", "--budget", "60s", "--dry-run"]
    assert main([*words, "--workers", str(workers), "--cpus", "0.5", "--out", str(tmp_path / "out")]) == 0
    title, *listed, warning, time = capsys.readouterr().out.splitlines()
    assert title == f"digits, preset small, in {tmp_path / 'out'}: 2 of 2 to run"
    assert [line.split() for line in listed] == [["stn-4", "new"], ["tpe-4", "new"]]
    assert warning.startswith(f"warning: --workers {workers}: {workers} trials share {workers // 2} cores")
    assert time.startswith("2 experiments of 60 compute-seconds, 1 at a time on ")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_counts_cores_that_experiments_share_and_lists_long_names_in_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    out = ["--out", str(tmp_path / "out")]
    assert main(["run", "digits", "--seeds", "1", "--budget", "100s", "--cpus", "0.5", "--dry-run", *out]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "4 experiments of 100 compute-seconds, 4 at a time on 2 cores: at most about 3m30s on a free machine"
    )
    assert main(["run", "digits", "--methods", "stn", "--seeds", "1", "--budget", "100s", "--dry-run", *out]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "1 experiment of 100 compute-seconds, on 2 cores: at most about 1m50s on a free machine"
    )
    assert main(["theory", "--dry-run", *out]) == 0
    states = {line.rindex("new") for line in capsys.readouterr().out.splitlines()[1:-1]}
    assert len(states) == 1, "in a column"


def test_a_dry_run_refuses_what_a_run_would_not_be_able_to_write(capsys):
    assert main(["run", "digits", "--dry-run", "--out", "/dev/null/below"]) == 2
    assert capsys.readouterr().err == (
        "benchmarks: --out /dev/null/below cannot be written: /dev/null is no folder that you may write to\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed", "--rounds", "0"], "'0' is not a positive whole number"),
        (["data", "mnist"], "invalid choice: 'mnist'"),
        (["run", "digits", "--cpus", "nan"], "argument --cpus: 'nan' is not a non-negative number"),
        (["schedules", "ptb", "--heatmap", "-1"], "argument --heatmap: '-1' is not a non-negative whole number"),
        (
            ["train", "digits", "--seed", "99999999999"],
            "argument --seed: '99999999999' is too large; seeds must be below 2**32",
        ),
        (["fly"], "invalid choice: 'fly'"),
        (["trian"], "did you mean 'train'? (see --help)"),
        (["run", "digits", "--budget", "soon"], "--budget: 'soon' is not a valid duration; write 90s, 20m, 6h"),
        (["run", "digits", "--seeds", "x"], "--seeds: 'x' is neither a count (5) nor a list of different seeds"),
        (["run", "digits", "--seeds", "1,1"], "--seeds: '1,1' is neither a count"),
        (["run", "digits", "--seeds", "99999999999,"], "below 2**32"),
        (["run", "digits", "--seeds", "99999999999"], "below 2**32"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_bad_arguments_end_with_code_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert error.value.code == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.splitlines()) == 1


def test_a_data_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["data", "ptb", "--data-dir", str(tmp_path / "file" / "below")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("benchmarks: ")
    assert len(error.splitlines()) == 1
    assert os.listdir(tmp_path) == ["file"]
