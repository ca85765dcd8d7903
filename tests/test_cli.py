"""stn-tune: the command that comes with the wheel, on experiments that no code of ours has written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import stn_tune
from stn_tune.cli import main
from tests.analysis import logs
from tests.wheel import installed

ROOT = Path(__file__).parents[1]
SCHEDULE = {
    "format": "stn_tune.schedule",
    "version": 1,
    "space": {
        "drop": {"kind": "uniform", "lower": 0, "upper": 0.75},
        "holes": {"kind": "randint", "lower": 0, "upper": 4},
    },
    "total_steps": 30,
    "steps": [0, 10, 20],
    "values": {"drop": [0.1, 0.2, 0.3], "holes": [0, 1, 2]},
    "scales": {},
}


def write_foreign(folder: Path) -> Path:
    """Two searchers, three seeds each: a function trainable that reports ``acc``; Tune records that it is maximised."""
    for name, gain in {"random": 0.1, "tpe": 0.2}.items():
        for seed in range(3):
            experiment = folder / f"{name}_s{seed}"
            for trial in range(2):
                metrics = [{"acc": gain * k + 0.01 * seed + 0.02 * trial, "test_acc": gain * k} for k in range(1, 4)]
                logs.write_trial(experiment, f"t{trial}", logs.tune_rows(f"t{trial}", metrics, config={"lr": 0.1}))
            logs.write_tuner(experiment, metric="acc", mode="max")
    return folder


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    return write_foreign(tmp_path_factory.mktemp("ray_results"))


@pytest.fixture
def schedule(tmp_path):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(SCHEDULE))
    return path


def one_line(capsys) -> str:
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return error


def test_a_report_of_somebody_elses_experiments(foreign, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    assert main(["report", str(foreign), "--seed", r"_s(\d+)", "--out", str(out), "--format", "svg"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert lines[-1] == str(out / "report.html")
    first = next(line.split() for line in lines if line.startswith("tpe"))
    assert first[:3] == ["tpe", "3", "2"], "three seeds, two trials each; the best accuracy first"
    assert "p (Holm)" in " ".join(shown.split())
    page = (out / "report.html").read_text()
    assert "best acc" in page
    assert "random search" not in page, "a user's experiment keeps its name"
    assert "of the paper" not in page
    assert "set-up included" not in page
    assert "no record.json" not in page
    (rebuild,) = re.findall(r"byte for byte:</p>\n<pre>stn-tune (.*)</pre>", page)
    (out / "report.html").unlink()
    assert main(shlex.split(unescape(rebuild))) == 0
    assert (out / "report.html").read_text() == page


def test_the_reference_and_another_metric(foreign, tmp_path, capsys):
    options = [
        "--seed",
        r"_s(\d+)",
        "--reference",
        "random",
        "--metric",
        "test_acc",
        "--mode",
        "max",
        "--figure",
        "time",
    ]
    assert main(["report", str(foreign), *options, "--out", str(tmp_path), "--format", "png"]) == 0
    assert "Differences to random" in capsys.readouterr().out


def test_an_overview_of_two_tasks(foreign, tmp_path, capsys):
    other = write_foreign(tmp_path / "other")
    out = tmp_path / "out"
    assert main(["overview", str(foreign), str(other), "--seed", r"_s(\d+)", "--out", str(out)]) == 0
    drawn = {f"{name}{kind}" for name in ("overview", "profiles") for kind in (".png", ".svg", "-dark.svg")}
    assert {path.name for path in out.iterdir()} == {"overview.md", "summary.md", *drawn}
    assert "other: test acc" in (out / "overview.md").read_text()
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "profiles-dark.svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "nowhere"], "nowhere: no such file or folder"),
        (["report", "EMPTY"], "no results"),
        (["report", "FOREIGN", "--metric", "accc"],
         "no row has a number for 'accc'; columns with numbers: acc, test_acc"),
        (["report", "FOREIGN", "--metric", "accc"], "did you mean 'acc'?"),
        (["report", "FOREIGN", "--metric", "test_acc"], 'whether test_acc is to be low or high: give the mode'),
        (["report", "FOREIGN", "--reference", "tpe_s"], "unknown reference 'tpe_s'; known: "),
        (["report", "FOREIGN", "--seed", "(x)(y)"], "no seed by '(x)(y)'"),
        (["report", "FOREIGN", "--seed", "("], "it is not a regular expression"),
        (["report", "FOREIGN", "FOREIGN"], "give the report's folder (--out)"),
        (["report", "FOREIGN", "--out", "FILE"], "is a file; the report needs a folder"),
        (["report", "FOREIGN", "--out", "FILE/below"], "is a file; the report needs a folder"),
        (["report", "FOREIGN", "--figure", "tiem"], "did you mean 'time'?"),
        (["overview", "FOREIGN", "--out", "FILE"], "is a file; the overview needs a folder"),
        (["overview", "nowhere", "--out", "OUT"], "nowhere: no such file or folder"),
        (["schedule", "nowhere"], "nowhere: No such file or directory"),
        (["schedule", "FILE"], "not a schedule, which is JSON"),
        (["schedule", "JSON"], 'not a schedule: its "format" is not "stn_tune.schedule"'),
        (["schedule", "SCHEDULE", "--out", "a.gif"], "--out a.gif: give a name that ends in .png, .svg, .pdf or .csv"),
        (["schedule", "SCHEDULE", "--out", "no/such/folder/a.png"], "cannot write: No such file or directory"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)  # fmt: skip
def test_bad_input_is_one_line_and_code_2(arguments, message, foreign, schedule, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "a.json").write_text("{}")
    places = {"FOREIGN": foreign, "EMPTY": tmp_path / "empty", "FILE": tmp_path / "file", "JSON": tmp_path / "a.json"}
    places |= {"SCHEDULE": schedule, "OUT": tmp_path / "out"}
    before = sorted(tmp_path.rglob("*"))
    filled = [_filled(argument, places) for argument in arguments]
    assert main(filled) == 2
    error = one_line(capsys)
    assert error.startswith("stn-tune: ")
    assert message in error
    assert sorted(tmp_path.rglob("*")) == before, "nothing half-written"


def _filled(argument: str, places: dict[str, Path]) -> str:
    head, slash, rest = argument.partition("/")
    return f"{places[head]}{slash}{rest}" if head in places else argument


def test_a_near_name_only_is_suggested(foreign, capsys):
    assert main(["report", str(foreign), "--metric", "zzz"]) == 2
    assert "did you mean" not in one_line(capsys)


def test_without_a_recorded_metric_it_is_asked_for(tmp_path, capsys):
    logs.write_trial(tmp_path / "mine", "t", logs.tune_rows("t", [{"score": 1.0, "note": "x", "nothing": None}]))
    assert main(["report", str(tmp_path / "mine")]) == 2
    assert one_line(capsys) == "stn-tune: no log names the metric: give it; columns with numbers: score\n"
    assert main(["report", str(tmp_path / "mine"), "--metric", "score", "--mode", "max", "--format", "svg"]) == 0


@pytest.mark.parametrize("arguments", [["fly"], ["report"], ["report", "x", "--mode", "up"], []])
def test_bad_arguments_are_one_line(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "(see --help)" in one_line(capsys)


@pytest.mark.parametrize("command", [[], ["report"], ["overview"], ["schedule"]])
def test_help_fits_the_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"stn-tune {stn_tune.__version__}\n"


def test_a_schedule_as_a_figure_and_as_csv(schedule, capsys):
    assert main(["schedule", str(schedule)]) == 0
    assert schedule.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert "drop   0.1 -> 0.3" in out
    table, figure = schedule.with_name("a.csv"), schedule.with_name("a.svg")
    assert main(["schedule", str(schedule), "--out", str(table), "--out", str(figure)]) == 0
    assert table.read_text() == "step,hp/drop,hp/holes\n0,0.1,0\n10,0.2,1\n20,0.3,2\n"
    assert "<svg" in figure.read_text()
    assert main(["schedule", str(schedule), "--out", str(schedule)]) == 2


def test_neither_torch_nor_ray_is_imported(foreign, schedule, tmp_path):
    script = """
import sys
from stn_tune.cli import main
assert not {"torch", "ray", "pandas", "numpy", "matplotlib"} & set(sys.modules)
*report, schedule = sys.argv[1:]
assert main(["report", *report]) == 0
assert main(["overview", report[0], "--seed", report[2], "--out", report[-1]]) == 0
assert main(["schedule", schedule]) == 0
assert not {"torch", "ray"} & set(sys.modules), {"torch", "ray"} & set(sys.modules)
"""
    report = [str(foreign), "--seed", r"_s(\d+)", "--format", "svg", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-W", "error::UserWarning", "-c", script, *report, str(schedule)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_wheel_in_an_empty_environment_reports_a_foreign_experiment(foreign, tmp_path):
    """The wheel and what it requires; the checkout is not on the path."""
    there = installed(tmp_path)
    where = there.run("python", "-c", "import stn_tune; print(stn_tune.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(there.site)
    report = ["report", str(foreign), "--seed", r"_s(\d+)", "--out", str(tmp_path / "out")]
    assert "tpe" in there.run("stn-tune", *report, cwd=tmp_path).stdout
    assert "best acc" in (tmp_path / "out" / "report.html").read_text()
    assert there.run("stn-tune", "--version", cwd=tmp_path).stdout == f"stn-tune {stn_tune.__version__}\n"
