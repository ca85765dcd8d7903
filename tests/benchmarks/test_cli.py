"""The command line, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main

REPO = Path(__file__).parents[2]


def test_help_names_every_command():
    result = subprocess.run([sys.executable, "-m", "benchmarks", "--help"], cwd=REPO, capture_output=True, text=True)
    assert result.returncode == 0
    commands = "demo data train run report schedules sensitivity theory searchers speed"
    for command in commands.split():
        assert command in result.stdout


@pytest.mark.parametrize("mode", [[], ["--self-tuned"]])
def test_train_prints_every_epoch_and_the_best(mode, capsys):
    command = ["train", "digits", "--preset", "smoke", "--set", "patience=3", "--value", "fc1_dropout=0.3"]
    assert main([*command, *mode, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert rows[-1]["best_val_loss"] == min(row["val_loss"] for row in rows[:-1])
    assert rows[-1]["epochs"] == rows[-2]["epoch"]
    assert main([*command, *mode, "--seconds", "0"]) == 0
    assert "best: best_val_loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "mnist"], "unknown task 'mnist'"),
        (["train", "digits", "--preset", "huge"], "digits has no preset 'huge'"),
        (["train", "digits", "--set", "hiden=3"], "did you mean 'hidden'?"),
        (["train", "digits", "--value", "fc1_dropout=0.9"], "--value fc1_dropout=0.9: fc1_dropout: "),
        (["train", "digits", "--value", "fc_dropout=0.1"], "--value fc_dropout=0.1: "),
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
    assert (
        main(
            [
                "speed",
                "--size",
                "smoke",
                "--rounds",
                "2",
                "--only",
                "lstm",
                "--only",
                "cnn",
                "--only",
                "tasks",
                "--json",
            ]
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 9
    for row in rows:
        assert {"name", "ratio", "limit", "target", "ms", "rss_mib"} <= set(row)
        assert row["ratio"] > 0
    assert main(["speed", "--size", "smoke", "--rounds", "1", "--only", "cnn"]) == 0
    assert "limit by" in capsys.readouterr().out


def test_speed_limits_are_those_of_counting_operations():
    from benchmarks.speed import limits

    lstm = limits(tuned=2 * 8 * 650 * 650, plain=650 * 10_000)
    assert lstm["weight"] == pytest.approx(1.51, abs=0.005)
    assert lstm["hyper, one λ"] == pytest.approx(0.84, abs=0.005)
    assert limits(1.0, 0.0)["hyper"] == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed", "--rounds", "0"], "'0' is not a positive whole number"),
        (["data", "mnist"], "invalid choice: 'mnist'"),
        (["run", "digits", "--cpus", "nan"], "argument --cpus: 'nan' is not a number from 0 on"),
        (["schedules", "ptb", "--heatmap", "-1"], "argument --heatmap: '-1' is not a whole number from 0 on"),
        (["train", "digits", "--seed", "99999999999"], "argument --seed: '99999999999' is not below 2**32"),
        (["fly"], "invalid choice: 'fly'"),
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
