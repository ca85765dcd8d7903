from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from benchmarks.__main__ import main as command
from stn_tune.analysis import FIGURES, AnalysisError, Figure, MissingData, load, overview, report
from stn_tune.analysis.reporting.page import compose
from stn_tune.analysis.reporting.pictures import inline
from stn_tune.plotting import contrast
from stn_tune.record import HyperparameterInfo, Invocation, MethodInfo, Style
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


def test_a_method_without_test_values_is_compared_by_what_selects(tmp_path):
    """One method reports a test value, the other does not: the figures and the headline have the value of both."""
    for method, extra in (("asha", {}), ("random", {"test_acc": 0.9})):
        for seed in range(3):
            reported = [{"acc": value + seed / 100} | extra for value in (0.1, 0.3 if extra else 0.5)]
            rows = logs.tune_rows("a", reported, config={"seed": seed})
            logs.write_trial(tmp_path / f"{method}_s{seed}", "a", rows)
    out = tmp_path / "out"
    report(sorted(tmp_path.glob("*_s?")), out, metric="acc", mode="max", seed=r"_s(\d)", formats=["png"])
    page = (out / "report.html").read_text().replace("\u00a0", " ")
    assert "asha has the highest acc: 0.510 ± 0.025 (n = 3); its lead cannot be tested" in page
    assert "Rank: by acc" in page
    overview({"task": load(*sorted(tmp_path.glob("*_s?")), metric="acc", mode="max", seed=r"_s(\d)")})


def test_the_page_holds_every_figure_and_loads_nothing(results, page):
    parsed = Page(page)
    assert parsed.open == []
    drawn = {path.stem for path in (results / "report" / "figures").iterdir()}
    assert drawn == {"time", "time-elapsed", "time-epochs", "schedules", "sigma", "configurations"}
    assert parsed.tags["figure"] == len(drawn)
    assert parsed.tags["svg"] == 2 * len(drawn), "one for wide screens, one for phones"
    assert {f"figure-{name}" for name in drawn} <= set(parsed.ids)
    assert [name for name, count in Counter(parsed.ids).items() if count > 1] == []
    inner = {address for address in parsed.addresses if address.startswith("#")}
    assert {address.removeprefix("#") for address in inner} <= set(parsed.ids), "references have targets on the page"
    files = {address for address in parsed.addresses if not address.startswith("#")}
    assert {"table.csv", "table.tex", "differences.csv", "figures/time.svg"} <= files
    assert all((results / "report" / path).is_file() for path in files), "the others are files beside the page"
    assert not re.search(r"https?:|@import|src=|fetch\(|XMLHttp|import\(", page)


def test_the_page_leads_with_the_result_and_folds_the_rest(page):
    above, folded = page.split("<details", 1)
    assert re.search(r"<h1>STN has the lowest test loss on Penn Treebank: .*, too few seeds for a test.</h1>", above)
    assert (
        above.index("<h1>")
        < above.index('id="warnings"')
        < above.index('id="table-1"')
        < above.index('id="figure-time"')
    )
    assert 'id="figure-' not in above.split('id="figure-time"')[1]
    assert folded.count("<details") + 1 >= 8


def test_every_picture_has_a_text_of_its_own(page):
    texts = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert len(texts) == page.count("<svg ") == 12
    assert len(set(texts)) == 6
    assert all(len(text) > 40 for text in texts)


def test_the_colours_of_the_page_can_be_read_on_both_papers(page):
    """WCAG AA: a contrast of 4.5 or more."""
    themes = re.findall(r":root \{([^}]*)\}", page)
    assert len(themes) == 2
    for theme in themes:
        colours = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", theme))
        for ink, paper in itertools.product(("ink", "soft", "link"), ("paper", "tint", "warn")):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    light, dark = (dict(re.findall(r"--c([0-9a-f]{6}): (#[0-9a-f]{6})", theme)) for theme in themes)
    assert set(light) == set(dark) == set(re.findall(r"var\(--c([0-9a-f]{6})\)", page))
    rules = dict(re.findall(r"\.(s\d+) \{([^}]*)\}", page))
    styles = [own or rules[name] for own, name in re.findall(r'<text (?:style="([^"]*)"|class="(\w+)")', page)]
    text = {colour for style in styles for colour in re.findall(r"fill: var\(--c([0-9a-f]{6})\)", style)}
    assert len(text) >= 3
    for colour in text:
        assert contrast(light[colour], "#ffffff") >= 4.5
        assert contrast(dark[colour], "#14171a") >= 4.5


def test_the_same_command_is_listed_once(tmp_path):
    infos = [logs.write_run(tmp_path, "stn", 0, logs.rows([2.0, 1.0]))]
    calls = tuple(replace(logs.INVOCATION, started=f"2026-11-1{k}T05:00:00+00:00") for k in range(3))
    other = replace(logs.INVOCATION, command="python -m benchmarks run ptb --resume")
    logs.write_record(tmp_path, infos, invocations=(*calls, other))
    page = report(tmp_path, figures=["time"], formats=[]).read_text()
    assert page.count(f"<pre>{logs.INVOCATION.command}</pre>") == 1
    assert "2026-11-10T05:00:00+00:00 to 2026-11-12T05:00:00+00:00, 3 times" in page
    assert page.count("<pre>") == 2
    assert page.count("cpu abacus") == page.count("torch 2.13.0") == 1, "what holds for all commands is said once"


def test_runs_that_were_slow_to_start_are_said_on_top(tmp_path):
    rows = [row | {"start_s": 100.0, "setup_s": 60.0} for row in logs.rows([2.0, 1.0])]
    quick = [row | {"start_s": 100.0, "setup_s": 49.0} for row in logs.rows([2.0, 1.0])]
    logs.write_runs(tmp_path, {("stn", 0): rows, ("stn", 1): quick, ("grid", 0): quick})
    said = compose(load(tmp_path), figures=["time"], formats=[]).warnings
    assert said == ["STN: 1 of 2 runs spent more than a quarter of the budget on starting and setting up trials (27 %)"]


def test_a_study_that_compares_nothing_leads_with_its_own_figure(results, tmp_path):
    info = logs.write_run(tmp_path, "stn", 0, logs.rows([2.0, 1.0]), variant={"scale": 1.0}, compared=False)
    logs.write_record(tmp_path, [info])
    toy = Figure("toy", "The losses.", lambda results: results.frame[["val_loss"]], lambda frame: Picture())
    page = report(tmp_path, formats=[], extra_figures=[toy]).read_text()
    above = page.split("<details", 1)[0]
    assert 'id="figure-toy"' in above
    assert "<table" not in above
    assert ">rank<" not in page
    assert "<h1>The losses</h1>" in above, "what the figure shows"


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


PROBE = """<script>
document.querySelectorAll("details").forEach(one => { one.open = true; });
const boxes = [...document.querySelectorAll("figure svg")].map(svg => svg.getBoundingClientRect());
const texts = [...document.querySelectorAll("figure svg text")].map(text => {
  const [own, frame] = [text, text.ownerSVGElement].map(one => one.getBoundingClientRect());
  return own.width > 0 && (own.left < frame.left - 1 || own.right > Math.min(frame.right + 1, innerWidth));
});
parent.postMessage({
  width: innerWidth,
  shown: boxes.filter(b => b.width > 250 && b.height > 100).length,
  cut: texts.filter(cut => cut).length,
  overflow: document.documentElement.scrollWidth - innerWidth,
  dark: matchMedia("(prefers-color-scheme: dark)").matches,
  paper: getComputedStyle(document.body).backgroundColor,
  switches: document.querySelectorAll(".switches button").length,
}, "*");
</script></body>"""
FRAMES = """<body><script>
addEventListener("message", event => {
  const found = document.createElement("output");
  found.textContent = JSON.stringify(event.data);
  document.body.append(found);
});
</script>%s</body>"""


needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on the PATH")


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_shows_every_figure_at_every_width(page, tmp_path, dark):
    """Laid out by a real browser for a desk, a tablet and a phone: nothing is empty, cut off or wider than the page."""
    widths = (1280, 768, 390)
    found = in_browser(page.replace("</body>", PROBE), tmp_path, widths, dark)
    assert sorted(one["width"] for one in found) == sorted(widths)
    for one in found:
        assert one["shown"] == page.count("<figure ") == 6
        assert one["overflow"] <= 0
        assert one["cut"] == 0, "all text of a figure is inside it"
        assert one["dark"] == dark
        assert one["paper"] == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
        assert one["switches"] >= 3


POINTER = """<script>
const svg = document.querySelector("#figure-time .wide svg");
const { panels } = JSON.parse(svg.nextElementSibling.textContent);
const at = seconds => {
  const [panel, frame] = [panels[1], svg.getBoundingClientRect()];
  const scale = frame.width / svg.viewBox.baseVal.width;
  const share = (seconds - panel.x[0]) / (panel.x[1] - panel.x[0]);
  const [x, y] = [panel.box[0] + share * (panel.box[2] - panel.box[0]), (panel.box[1] + panel.box[3]) / 2];
  const place = { clientX: frame.left + x * scale, clientY: frame.top + y * scale };
  svg.dispatchEvent(new PointerEvent("pointermove", place));
  return [...svg.closest(".picture").querySelectorAll(".tip div")].map(line => line.textContent);
};
const buttons = [...document.querySelectorAll("#lead .switches button")];
const parts = [...svg.querySelectorAll('[data-series="0"]')];
const shown = () => parts.filter(part => part.style.display !== "none").length;
const early = at(15), late = at(55), before = shown();
buttons[0].click();
const off = { without: at(15), hidden: shown(), pressed: buttons[0].getAttribute("aria-pressed") };
buttons[0].click();
parent.postMessage({
  early, late, off, before, after: shown(),
  names: buttons.map(button => button.textContent),
  dashes: buttons.map(button => getComputedStyle(button.querySelector("line")).strokeDasharray),
}, "*");
</script></body>"""


@needs_browser
def test_a_pointer_reads_values_and_switches_methods(tmp_path):
    runs = {("stn", s): logs.rows([4.0, 3.0]) for s in range(2)}
    runs |= {("grid", s): logs.rows([5.0, 4.5, 4.0, 3.5, 3.4, 3.3, 3.2]) for s in range(2)}
    styles = {"stn": Style("#8C6D1F", "dotted"), "grid": Style("#8C6D1F")}
    methods = [replace(info, style=styles[info.name]) for info in logs.METHODS if info.name in styles]
    logs.write_runs(tmp_path / "mine", runs, methods=tuple(methods))
    page = report(tmp_path / "mine", figures=["time"], formats=["svg"]).read_text()
    (found,) = in_browser(page.replace("</body>", POINTER), tmp_path, [1280])
    assert found["early"] == ["compute-seconds 15", "4  STN", "5  grid search"]
    assert found["late"] == ["compute-seconds 55", "3.0  STN (ended)", "3.4  grid search"]
    assert found["off"] == {"without": ["compute-seconds 15", "5  grid search"], "hidden": 0, "pressed": "false"}
    assert found["before"] == found["after"] > 0
    assert found["names"] == ["STN", "grid search"]
    assert found["dashes"][0] != found["dashes"][1] == "none", "two methods of one colour can be told apart"


def in_browser(page: str, folder: Path, widths: Sequence[int], dark: bool = False) -> list[dict]:
    """What a page posts to its parent at these widths."""
    (folder / "page.html").write_text(page)
    frames = "".join(f'<iframe src="page.html" style="width: {width}px; height: 900px"></iframe>' for width in widths)
    (folder / "frames.html").write_text(FRAMES % frames)
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-sync", *quiet, "--window-size=1400,900"]
    options += ["--virtual-time-budget=20000", f"--user-data-dir={folder / 'profile'}"]
    options += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--dump-dom"]
    command_line = ["chromium", *options, (folder / "frames.html").as_uri()]
    run = subprocess.run(command_line, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(unescape(text)) for text in re.findall(r"<output>(.*?)</output>", run.stdout)]


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
    assert "no record.json" not in page, "nobody expects one beside a Tune experiment"
    assert "of the paper" not in page
    assert "set-up included" not in page
    assert "rebuilds the page" not in page


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"figures": ["tiem"]}, r"unknown figure 'tiem'; known: time, improvement, .*; did you mean 'time'\?"),
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
    with pytest.raises(AnalysisError, match=r"give the report's folder \(--out\)"):
        report([results, results])
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="file is a file; the report needs a folder"):
        report(results, tmp_path / "file")


def test_the_command_prints_the_table_the_warnings_and_the_page(results, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    assert command(["report", str(results), "--out", str(tmp_path), "--figure", "time", "--format", "svg"]) == 0
    path = tmp_path / "report.html"
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
