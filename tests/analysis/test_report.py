from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from benchmarks.commands import report as command
from stn_tune.analysis import FIGURES, AnalysisError, Figure, MissingData, load, report
from stn_tune.analysis.reporting.page import compose, inline
from stn_tune.record import HyperparameterInfo, Invocation, MethodInfo
from tests.analysis import logs

mpl.use("Agg")
LABEL = 'my "<b>own & best'
REBUILD = "make report <out>"
EVIL = "<script>alert('µ & 1')</script>"
VOID = {"meta", "br", "link", "img", "input", "hr"}


def no_ink(results):
    raise MissingData("no ink")


BLANK = Figure("blank", "Nothing at all.", no_ink, lambda frame: pytest.fail("there is nothing to draw"))


def self_tuned(seed: int) -> list[dict]:
    reported = logs.rows([3.0 - seed / 10, 2.0, 1.5])
    for k, row in enumerate(reported):
        row |= {
            "hp/input_dropout": 0.1 * k,
            "hp/alpha": 1.0 + k,
            "scale/input_dropout": 1.0,
            "scale/alpha": 1.0 - k / 5,
        }
    return reported


def searched(seed: int) -> list[dict]:
    return [
        row
        for trial in range(3)
        for row in logs.rows(
            [3.5, 2.5 - trial / 10 + seed / 20],
            trial=trial,
            start=20.0 * trial,
            **{"hp/input_dropout": 0.2 * trial + seed / 10, "hp/alpha": 2.0 - trial},
        )
    ]


def write_results(folder: Path) -> Path:
    """Two methods on two seeds, a label that has to be escaped, and one experiment that never ended."""
    infos = []
    for seed in range(2):
        infos.append(logs.write_run(folder, "stn", seed, self_tuned(seed)))
        infos.append(logs.write_run(folder, "random", seed, searched(seed)))
    infos.append(logs.write_run(folder, LABEL, 0, logs.rows([3.0, 2.9])))
    infos.append(replace(infos[1], seed=2))
    invocation = Invocation(
        f"python -m benchmarks run ptb {EVIL}",
        "2026-11-16T05:00:00+00:00",
        "abc123def456" + "0" * 28,
        True,
        {"torch": "2.13.0"},
        {"cpu": "abacus", "cores": 2, "gpus": []},
    )
    domain = {"kind": "uniform", "lower": 0.0, "upper": 4.0}
    settings = {"lr": 10.0, "stn": {"warmup": 1}, "space": {"alpha": domain}}
    task = replace(logs.TASK, space={"alpha": HyperparameterInfo("α", "coefficient", domain, 1.0)})
    logs.write_record(folder, infos, settings=settings, invocations=(invocation,), task=task)
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    return write_results(tmp_path_factory.mktemp("results") / "mine")


@pytest.fixture(scope="module")
def page(results) -> str:
    path = report(results, formats=["svg"], rebuild=REBUILD)
    assert path == results / "report" / "report.html"
    return path.read_text()


class Page(HTMLParser):
    """What a page holds: tags that do not match, ids, and every address that a browser would load or follow."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.addresses: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        self._attributes(attributes)

    def handle_startendtag(self, tag, attributes):
        self.tags[tag] += 1
        self._attributes(attributes)

    def _attributes(self, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "src", "xlink:href", "data", "action", "srcset", "poster"):
                self.addresses.append(value)
            self.addresses += re.findall(r"url\(([^)]*)\)", value or "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_holds_every_figure_and_loads_nothing(results, page):
    parsed = Page(page)
    assert parsed.open == []
    drawn = {path.stem for path in (results / "report" / "figures").iterdir()}
    assert drawn == {"time", "time-elapsed", "time-epochs", "schedules", "sigma", "configurations"}
    assert parsed.tags["svg"] == parsed.tags["figure"] == len(drawn)
    assert {f"figure-{name}" for name in drawn} <= set(parsed.ids)
    assert [name for name, count in Counter(parsed.ids).items() if count > 1] == []
    inner = [address for address in parsed.addresses if not address.startswith("data:image/png;base64,")]
    assert inner
    assert {address.removeprefix("#") for address in inner} <= set(parsed.ids), "references have targets on the page"
    assert not re.search(r"https?:|@import|src=", page)
    assert parsed.tags["script"] == 0


def test_the_page_says_what_was_run_and_what_is_missing(page):
    words = " ".join(Page(page).words)
    for fact in (
        "random-2: not finished",
        "run on uncommitted changes to abc123def456",
        f"python -m benchmarks run ptb {EVIL}",
        "cpu abacus, cores 2, gpus none",
        "torch 2.13.0",
        "lr = 10",
        "stn.warmup = 1",
        "space.alpha = kind uniform, lower 0, upper 4",
        "Differences to STN",
        "Time to each method's final value",
        "random search (2)",
        "figures/time.svg",
        "Penn Treebank",
        "CPU time",
        REBUILD,
        LABEL,
    ):
        assert fact in words, fact


def test_tables_and_curves_are_written_as_files(results, page):
    folder = results / "report"
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tables = {"table.md", "table.csv", "table.tex", "differences.csv", "times.csv"}
    assert names - {n for n in names if n.startswith("figures/")} == {
        *tables,
        *(f"curves-{x}.csv" for x in ("compute_s", "elapsed_s", "epochs")),
        "report.html",
    }
    long = pd.read_csv(folder / "table.csv")
    stn = long[(long["label"] == "stn") & (long["split"] == "val") & (long["metric"] == "loss")]
    assert stn["mean"].tolist() == [1.5]
    assert pd.read_csv(folder / "curves-compute_s.csv")["label"].unique().tolist()[:2] == ["stn", "random"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on the PATH")
def test_a_browser_shows_every_figure(results, page, tmp_path):
    """Laid out by a real browser, at a phone's width: no picture is empty, and the page does not overflow."""
    script = """<script>
    const boxes = [...document.querySelectorAll("figure svg")].map(s => s.getBoundingClientRect());
    const texts = [...document.querySelectorAll("figure svg text")].filter(t => t.getBoundingClientRect().width > 0);
    document.body.setAttribute("data-shown", boxes.filter(b => b.width > 300 && b.height > 100).length);
    document.body.setAttribute("data-texts", texts.length);
    document.body.setAttribute("data-overflow", document.documentElement.scrollWidth - window.innerWidth);
    </script></body>"""
    probe = tmp_path / "probe.html"
    probe.write_text(page.replace("</body>", script))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=500,900", "--dump-dom"]
    run = subprocess.run(
        ["chromium", *options, f"--user-data-dir={tmp_path / 'profile'}", probe.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = dict(re.findall(r'data-(shown|texts|overflow)="(-?\d+)"', run.stdout))
    assert int(found["shown"]) == page.count("<figure ") == 6
    assert int(found["texts"]) > 60
    assert int(found["overflow"]) <= 0


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_rebuilding_changes_no_byte_and_leaves_nothing_behind(results, tmp_path):
    names = ["time", "configurations"]
    first = digests(report(results, tmp_path, names, ["png", "svg"]).parent)
    assert {f"figures/{name}.{kind}" for name in names for kind in ("png", "svg")} <= set(first)
    assert digests(report(results, tmp_path, names, ["png", "svg"]).parent) == first


def test_an_error_leaves_the_last_report_whole(results, tmp_path, monkeypatch):
    report(results, tmp_path, ["time"], ["svg"])
    before = digests(tmp_path)
    monkeypatch.setitem(FIGURES, "time", replace(FIGURES["time"], draw=lambda frame: {}["ink"]))
    with pytest.raises(KeyError, match="ink"):
        report(results, tmp_path, ["time"], ["svg"])
    with pytest.raises(AnalysisError, match="figure blank: no ink"):
        report(results, tmp_path, ["blank"], ["svg"], extra_figures=[BLANK])
    assert digests(tmp_path) == before


def test_figures_without_data_any_more_go_other_files_stay(results, tmp_path, monkeypatch):
    for name in list(FIGURES):
        if name != "time":
            monkeypatch.setitem(FIGURES, name, replace(BLANK, name=name))
    (tmp_path / "figures").mkdir()
    for name in ("sigma.png", "blank.png", "mine.png"):
        (tmp_path / "figures" / name).write_bytes(b"old")
    report(results, tmp_path, formats=["svg"], extra_figures=[BLANK])
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["mine.png", "time.svg"]


def test_a_plain_tune_experiment_has_a_report_too(tmp_path):
    rows = logs.tune_rows("a", [{"val_loss": 2.0}, {"val_loss": 1.0}], config={"lr": 0.1})
    logs.write_trial(tmp_path / "tuned", "a", rows)
    page = report(tmp_path / "tuned", figures=["time"], formats=[]).read_text()
    assert "<title>tuned</title>" in page
    assert "no record.json of a benchmark run" in page
    assert "rebuilds the page" not in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figures": ["tiem"]}, r"unknown figure 'tiem'; known: time, time-elapsed, .*; did you mean 'time'\?"),
        ({"formats": ["gif"]}, "unknown format 'gif'; known: png, svg, pdf"),
        ({"figures": ["importance"]}, "figure importance: 6 configurations in finished black-box trials"),
    ],
)
def test_questions_without_an_answer_are_refused(results, tmp_path, options, message):
    with pytest.raises(AnalysisError, match=message):
        report(results, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_nothing_to_load_and_nowhere_to_write_are_said(results, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(AnalysisError, match="empty: no results"):
        report(tmp_path / "empty")
    with pytest.raises(AnalysisError, match="nowhere"):
        report(tmp_path / "nowhere")
    with pytest.raises(AnalysisError, match=r"give the report's folder \(out\)"):
        report([results, results])
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="file is a file; the report needs a folder"):
        report(results, tmp_path / "file")


def test_the_command_prints_the_table_the_warnings_and_the_page(results, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    path = command.write_report([results], tmp_path, ["time"], ["svg"])
    shown = capsys.readouterr().out
    assert shown.rstrip().endswith(str(path))
    assert "random search" in shown
    assert "…" not in shown, "columns that do not fit go below, none is cut"
    assert "warning: random-2: not finished" in shown
    assert all(len(line) <= 60 for line in shown.splitlines()[:20])


def test_inlined_pictures_keep_their_references_to_themselves():
    svg = '<?xml version="1.0"?><svg xmlns="http://w3" width="10pt"><defs><style>*{a}</style></defs>'
    svg += '<path id="p"/><use xlink:href="#p" clip-path="url(#p)"/><text>id="p" #p</text></svg>'
    result = inline(svg, "time", 'a "caption"')
    assert '<path id="time-p"/><use xlink:href="#time-p" clip-path="url(#time-p)"/>' in result
    assert '<text>id="p" #p</text>' in result
    assert "http" not in result
    assert "<style>" not in result
    assert 'aria-label="a &quot;caption&quot;"' in result


def test_a_figure_is_handed_in(results, tmp_path):
    """A toy figure: one object, nothing else to touch."""

    def select(results):
        return results.frame.groupby("label", as_index=False)["val_loss"].min()

    def draw(frame):
        figure = Picture()
        figure.subplots().bar(frame["label"], frame["val_loss"])
        return figure

    toy = Figure("toy", "The best loss of each label.", select, draw)
    page = report(results, tmp_path, formats=["svg"], extra_figures=[toy, BLANK]).read_text()
    assert 'id="figure-toy"' in page
    assert "The best loss of each label." in page
    assert (tmp_path / "figures" / "toy.svg").exists()
    assert "blank" not in page
    names = report(results, tmp_path / "only", ["toy"], ["svg"], extra_figures=[toy]).parent / "figures"
    assert [path.name for path in names.iterdir()] == ["toy.svg"]


def test_what_is_not_compared_is_data_for_figures(tmp_path):
    """It varies a hyperparameter that the others leave alone."""
    grid = [
        row
        for trial, (a, b) in enumerate([(0.1, 0.1), (0.1, 0.5), (0.5, 0.1), (0.5, 0.5)])
        for row in logs.rows([3.0, 1.0 + a], trial=trial, **{"hp/input_dropout": a, "hp/output_dropout": b})
    ]
    infos = [logs.write_run(tmp_path, "stn", 0, self_tuned(0))]
    infos.append(logs.write_run(tmp_path, "grid", 0, grid, variant={"view": "map"}, compared=False))
    logs.write_record(tmp_path, infos)
    made = compose(load(tmp_path), figures=["time", "configurations"])
    assert made.table.frame["method"].tolist() == ["STN"]
    assert [line.get_label() for line in made.figures["time"].axes[0].lines] == ["STN"]
    assert set(made.figures) == {"time", "configurations"}


def test_the_reference_of_a_report_can_be_chosen(results):
    made = compose(load(results), figures=["time"], formats=[], reference="random")
    assert made.table.sections[1].title == "Differences to random search"


def test_nothing_to_draw_is_said(tmp_path):
    logs.write_run(tmp_path, "stn", 0, logs.rows([2.0, 1.0]))
    logs.write_record(tmp_path, [], methods=(MethodInfo("stn", "STN", builds_on="grid"),))
    assert "No figures: the logs lack the needed data." in report(tmp_path, formats=[]).read_text()
