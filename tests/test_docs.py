"""The site: it builds without a warning, its snippets run, its links lead somewhere, and it fits a phone."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import tomllib

import stn_tune as stn
from stn_tune.algorithms.registry import ALGORITHMS

REPO = Path(__file__).parents[1]
DOCS = REPO / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
SNIPPETS = {
    str(path.relative_to(DOCS)): blocks
    for path in PAGES
    if (blocks := re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))
}
WITH_RAY = {page for page, blocks in SNIPPETS.items() if "tune.Tuner(" in "".join(blocks)}
HEAVY = {"tutorials/lightning.md": "lightning", "tutorials/transformers.md": "transformers"}
SMALLER = [
    (r"epochs = \d+", "epochs = 2"),
    (r"num_samples=\d+", "num_samples=2"),
    (r'"training_iteration": \d+', '"training_iteration": 2'),
    (r"max_steps=\d+", "max_steps=8"),
]
"""Only the sizes of what a page runs are cut."""


def run_page(page: str, storage: Path) -> dict:
    """Every Python block of a page, in order, in one namespace."""
    source = "\n".join(SNIPPETS[page])
    for pattern, replacement in SMALLER:
        source = re.sub(pattern, replacement, source)
    source = source.replace("tune.RunConfig(", f"tune.RunConfig(verbose=0, storage_path={str(storage)!r}, ")
    namespace: dict = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, page, "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def _no_new_algorithms() -> Iterator[None]:
    before = dict(ALGORITHMS)
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(before)


@pytest.mark.usefixtures("_no_new_algorithms")
@pytest.mark.parametrize("page", sorted({*SNIPPETS} - WITH_RAY - {*HEAVY}))
def test_the_snippets_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(WITH_RAY))
@pytest.mark.usefixtures("ray_session")
def test_the_snippets_of_a_page_with_ray_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = run_page(page, tmp_path)
    assert len(found["schedule"]) > 1
    assert Path("report/report.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Lightning and Transformers, about loaders and logging
@pytest.mark.parametrize("page", sorted(HEAVY))
def test_the_snippets_of_an_integration_run(page, tmp_path, monkeypatch):
    pytest.importorskip(HEAVY[page])
    monkeypatch.chdir(tmp_path)
    found = run_page(page, tmp_path)
    tuner = found["tuning"].tuner if "tuning" in found else found["trainer"].tuner
    assert len(tuner.schedule) > 1, "λ has moved"


@pytest.mark.parametrize("kind", [stn.STNOptions, stn.DeltaOptions])
def test_help_has_every_option(kind):
    text = kind.__doc__ or ""
    for field in fields(kind):
        assert re.search(rf"^    {field.name}: \S.* ?", text, re.MULTILINE), field.name
        default = "{}" if field.name == "init" else repr(field.default)
        entry = re.search(rf"^    {field.name}: (.*?)(?=^    \w|\Z)", text, re.DOTALL | re.MULTILINE)
        assert entry is not None
        assert f"Default: ``{default}``." in " ".join(entry[1].split())
    assert len(text.splitlines()) > len(fields(kind))


@pytest.mark.parametrize("thing", [stn.STNOptions, stn.DeltaOptions, stn.SelfTuner, stn.self_tune])
def test_help_fits_a_terminal_of_80_columns(thing):
    """Its text does; the length of a signature is pydoc's own affair."""
    texts = [(4, thing)]
    if isinstance(thing, type):
        members = [getattr(thing, name) for name in dir(thing) if not name.startswith("_")]
        texts += [(8, one) for one in members if inspect.isfunction(one) or inspect.ismethod(one)]
    for indent, one in texts:
        for line in (inspect.getdoc(one) or "").splitlines():
            assert indent + len(line) <= 80, f"{one}: {line}"


def test_an_unknown_option_is_one_line_with_all_names():
    with pytest.raises(TypeError) as error:
        stn.DeltaOptions.of({"hyper_lrr": 1})
    message = str(error.value)
    assert "\n" not in message
    assert all(field.name in message for field in fields(stn.DeltaOptions))


def test_the_table_of_tested_versions_is_that_of_the_constraints():
    tested = dict(line.split("==") for line in (REPO / "constraints.txt").read_text().splitlines() if "==" in line)
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    bounds = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    lowest = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?>=([\d.]+)$", "\n".join(bounds), re.MULTILINE))
    rows = re.findall(
        r"^\| ([\w-]+) \| (\d[\d.]*).*? \| ([\d.]+) \|", (DOCS / "reference/versions.md").read_text(), re.M
    )
    assert len(rows) >= 10
    for name, version, least in rows:
        key = name.lower()
        assert key == "python" or tested[key] == version, name
        allowed = project["requires-python"].removeprefix(">=") if key == "python" else lowest[key]
        assert least.removesuffix(".0") == allowed.removesuffix(".0"), name


def test_the_page_on_reports_has_every_figure():
    from stn_tune.analysis import FIGURES

    rows = re.findall(r"^\| ([a-z, -]+) \|", (DOCS / "howto/report.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(FIGURES) <= {name for row in rows for name in row.split(", ")}


MENTIONED = re.compile(r"`((?:examples|benchmarks|results|baselines|stn_tune|tests)/[a-z0-9_./-]+)`")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_files_of_the_repository_that_a_page_mentions_exist(path):
    for name in MENTIONED.findall(path.read_text(encoding="utf-8")):
        assert (REPO / name).exists(), name


def build(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    options = ["--quiet", "--fail-on-warning", "--keep-going", "-b", "html", "-d", str(out.parent / "doctrees")]
    command = [sys.executable, "-W", "ignore", "-m", "sphinx", *options, str(source), str(out)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    out = tmp_path_factory.mktemp("docs") / "html"
    made = build(DOCS, out)
    assert made.returncode == 0, made.stderr
    return out


class Links(HTMLParser):
    """Where a page's links lead, and what its own anchors are called."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.targets += [found[key] for key in ("href", "src") if found.get(key)]
        self.anchors |= {found["id"]} if found.get("id") else set()


@pytest.mark.slow
class TestSite:
    def test_no_link_is_broken(self, site):
        pages = {page: Links(page) for page in site.rglob("*.html")}
        assert len(pages) > 30
        for page, links in pages.items():
            for target in links.targets:
                where, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:|//", where):
                    continue
                path = (page.parent / unquote(where.split("?")[0])).resolve() if where else page.resolve()
                assert path.exists(), f"{page.name}: {target}"
                if anchor and path in pages:
                    assert unquote(anchor) in pages[path].anchors, f"{page.name}: {target}"

    def test_every_public_name_and_option_is_on_a_page(self, site):
        text = "\n".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
        for name in stn.__all__:
            assert f'id="stn_tune.{name}"' in text or f'id="module-stn_tune.{name}"' in text, name
        options = unescape((site / "reference/options.html").read_text(encoding="utf-8"))
        for field in fields(stn.DeltaOptions):
            assert f"<strong>{field.name}</strong>" in options, field.name

    def test_an_undocumented_name_and_a_broken_link_fail_the_build(self, tmp_path):
        """A small site with the same extensions."""
        pytest.importorskip("myst_parser")
        source = tmp_path / "source"
        shutil.copytree(DOCS / "extensions", source / "extensions")
        (source / "undocumented_names.py").write_text(
            '__all__ = ["known", "lost"]\n\n\ndef known(): ...\n\n\ndef lost(): ...\n'
        )
        (source / "conf.py").write_text(
            "import sys\nfrom pathlib import Path\nhere = Path(__file__).parent\n"
            "sys.path[:0] = [str(here), str(here / 'extensions')]\n"
            "extensions = ['myst_parser', 'sphinx.ext.autodoc', 'public_names']\n"
            "public_modules = ['undocumented_names']\nnitpicky = True\n"
        )
        (source / "index.md").write_text(
            "# Site\n\n```{eval-rst}\n.. autofunction:: undocumented_names.known\n```\n\n[away](nowhere.md)\n\n"
            "{func}`undocumented_names.gone`\n"
        )
        made = build(source, tmp_path / "html")
        assert made.returncode != 0
        assert "undocumented_names.lost is public, but has no entry" in made.stderr
        assert "undocumented_names.known has no docstring" in made.stderr
        assert "nowhere.md" in made.stderr
        assert "undocumented_names.gone" in made.stderr

    @pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on the PATH")
    @pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
    def test_pages_fit_the_window_in_light_and_dark(self, site, width):
        """Laid out by a real browser: nothing overflows sideways, and dark is dark."""
        pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html"))
        wide = (site / "index.html").read_text(encoding="utf-8")
        (site / "too-wide.html").write_text(re.sub("</article>", r'<p style="width: 1300px">x</p>\g<0>', wide))
        found = laid_out(site, [*pages, "too-wide.html"], width)
        (site / "too-wide.html").unlink()
        assert all(overflow > 0 for *_, overflow, _, _ in found[-2:]), "the check itself"
        found = found[:-2]
        assert len(found) == 2 * len(pages)
        for page, theme, overflow, brightness, height in found:
            assert overflow <= 0, f"{page} ({theme}) is {overflow} pixels too wide"
            assert height > 200, f"{page} is empty"
            assert (brightness > 0.8) == (theme == "light"), f"{page}: background {brightness} in {theme}"


def laid_out(site: Path, pages: list[str], width: int) -> list[list]:
    """(page, theme, pixels of sideways overflow, brightness of the background, height), from one run of the browser."""
    probe = site / f"probe-{width}.html"
    probe.write_text(PROBE.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width)), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"]
    options += [
        f"--window-size={width + 100},900",
        "--virtual-time-budget=120000",
        f"--user-data-dir={site.parent / 'profile'}",
    ]
    try:
        run = subprocess.run(
            ["chromium", *options, probe.as_uri()], capture_output=True, text=True, timeout=200, check=True
        )
    finally:
        probe.unlink()
    found = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, run.stdout[-2000:]
    return json.loads(unescape(found[1]))


PROBE = """<!doctype html><body><pre id="found">[]</pre><script>
const found = [];
function scrolls(element, view) {  // it, or what it is in, scrolls by itself
  for (let e = element; e && e.tagName !== "ARTICLE"; e = e.parentElement)
    if (view.getComputedStyle(e).overflowX !== "visible") return true;
  return false;
}
function overflow(view, root) {  // also of what the theme would cut off
  const ends = [...root.querySelectorAll("article *")].map(e => [e.getBoundingClientRect().right, e]);
  const out = ends.filter(([end, e]) => end > root.clientWidth + 1 && !scrolls(e, view)).map(([end, e]) => end);
  return Math.max(root.scrollWidth, ...out) - root.clientWidth;
}
function show(page) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.style = "border: 0; width: WIDTHpx; height: 900px";
    frame.onload = () => {
      const inner = frame.contentDocument, root = inner.documentElement;
      for (const theme of ["light", "dark"]) {
        inner.body.dataset.theme = theme;
        const colours = frame.contentWindow.getComputedStyle(inner.body).backgroundColor.match(/[0-9.]+/g).map(Number);
        const brightness = (colours[0] + colours[1] + colours[2]) / 765;
        found.push([page, theme, overflow(frame.contentWindow, root), brightness, root.scrollHeight]);
      }
      frame.remove();
      done();
    };
    frame.src = page;
    document.body.append(frame);
  });
}
(async () => {
  for (const page of PAGES) await show(page);
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script></body>"""
