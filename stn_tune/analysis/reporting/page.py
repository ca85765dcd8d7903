"""report: everything that the logs say in one folder, with one self-contained page."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.curves import AXES, curves
from stn_tune.analysis.figures import FIGURES, Figure
from stn_tune.analysis.figures.style import FORMATS, render
from stn_tune.analysis.logs import Upgrade
from stn_tune.analysis.results import Results, load
from stn_tune.analysis.tables import Table, as_csv, table
from stn_tune.errors import AnalysisError, unknown
from stn_tune.record import Invocation, RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PathLike = str | os.PathLike[str]


def report(
    paths: PathLike | Sequence[PathLike],
    out: PathLike | None = None,
    figures: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    extra_figures: Sequence[Figure] = (),
    reference: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    upgrade: Upgrade | None = None,
    rebuild: str | None = None,
) -> Path:
    """Writes the report of one or more experiments, and returns the path of its ``report.html``.

    Args:
        paths: what :func:`~stn_tune.analysis.load` reads.
        out: the folder to write to; by default ``report`` in the folder that was read.
        figures: names of figures; by default all that the logs have the data for.
        formats: of the figures' files: png, svg, pdf.
        extra_figures: figures beside those in ``FIGURES``.
        reference: the label that the others are compared with; by default the one that tunes online.
        metric: the metric that selects; by default the one the logs name.
        mode: "min" or "max"; by default the one the logs name.
        upgrade: reads runs of version 1.
        rebuild: the command that makes this report, for the page.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    places = [os.fspath(path) for path in given]
    folder = destination(places, out)
    frame = load(*places, metric=metric, mode=mode, upgrade=upgrade)
    made = compose(frame, figures, formats, extra_figures=extra_figures, reference=reference, rebuild=rebuild)
    return made.write(folder)


def destination(paths: Sequence[str], out: PathLike | None) -> Path:
    """The folder of the report."""
    if out is None and (len(paths) != 1 or "://" in paths[0]):
        raise AnalysisError("give the report's folder (out): there is no single local folder to put it in")
    folder = Path(out) if out is not None else Path(paths[0], "report")
    if out is None and Path(paths[0]).is_file():
        folder = Path(paths[0]).parent / "report"
    if folder.exists() and not folder.is_dir():
        raise AnalysisError(f"{folder} is a file; the report needs a folder")
    return folder


def compose(
    source: pd.DataFrame | Results,
    figures: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    extra_figures: Sequence[Figure] = (),
    reference: str | None = None,
    rebuild: str | None = None,
) -> Report:
    """The report of a frame, not yet written; the arguments are those of :func:`report`."""
    known = FIGURES | {figure.name: figure for figure in extra_figures}
    for name in figures or ():
        if name not in known:
            raise AnalysisError(unknown("figure", name, known))
    for kind in formats:
        if kind not in FORMATS:
            raise AnalysisError(unknown("format", kind, FORMATS))
    results = Results.of(source)
    if not len(results.frame):
        problems = results.frame.attrs.get("problems", ())
        raise AnalysisError("; ".join(problems) or "nothing to report: there are no results")
    drawn = dict(_draw(results, known, figures))
    return Report(results, table(results, reference), drawn, known, tuple(formats), bool(figures), rebuild)


def _draw(results: Results, known: Mapping[str, Figure], wanted: Sequence[str] | None) -> Iterator[tuple[str, Picture]]:
    """The figures asked for, or all that there is data for."""
    for name, figure in known.items():
        if wanted and name not in wanted:
            continue
        try:
            selected = figure.select(results)
        except AnalysisError as error:
            if wanted:
                raise AnalysisError(f"figure {name}: {error}") from None
        else:
            yield name, figure.draw(selected)


@dataclass
class Report:
    """A table and drawn figures; ``write`` puts them into a folder."""

    results: Results
    table: Table
    figures: Mapping[str, Picture]
    """What was drawn."""
    known: Mapping[str, Figure]
    """What could have been drawn."""
    formats: Sequence[str]
    partial: bool = False
    """Whether only some figures were asked for."""
    rebuild: str | None = None
    """The command that makes this report."""

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before trusting the numbers."""
        found = list(self.results.frame.attrs.get("problems", []))
        record = self.results.record
        if record is None:
            return [*found, "no record.json of a benchmark run: command, machine, versions and settings are unknown"]
        for invocation in record.invocations:
            if invocation.dirty:
                commit = (invocation.commit or "?")[:12]
                found.append(f"run on uncommitted changes to {commit}: {invocation.command}")
        return found

    def contents(self) -> dict[str, bytes]:
        """Relative path -> bytes: the same for the same logs."""
        texts = {
            "table.md": self.table.to_markdown(),
            "table.csv": self.table.to_csv(),
            "table.tex": self.table.to_latex(),
            "differences.csv": as_csv(self.table.differences),
            "times.csv": as_csv(self.table.times),
        }
        for x in AXES:
            try:
                texts[f"curves-{x}.csv"] = as_csv(curves(self.results, x=x).data)
            except AnalysisError:
                continue
        pictures = {name: render(figure, "svg") for name, figure in self.figures.items()}
        texts["report.html"] = self.html({name: picture.decode() for name, picture in pictures.items()})
        result = {name: (text or "").encode() for name, text in texts.items()}
        for name, figure in self.figures.items():
            for kind in self.formats:
                data = pictures[name] if kind == "svg" else render(figure, kind)
                result[f"figures/{name}.{kind}"] = data
        return result

    def write(self, folder: Path) -> Path:
        """Writes all files, or, if anything fails before the last is ready, none."""
        contents = self.contents()
        unfinished = folder / f".partial-{os.getpid()}"
        try:
            for name, data in contents.items():
                (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
                (unfinished / name).write_bytes(data)
            for name in contents:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(unfinished / name, folder / name)
            if not self.partial:
                self._remove_old_figures(folder, contents)
        except OSError as error:
            raise AnalysisError(f"{folder}: cannot write the report: {error.strerror or error}") from None
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        return folder / "report.html"

    def _remove_old_figures(self, folder: Path, contents: Mapping[str, bytes]) -> None:
        """Figures of an earlier report that these logs lack the data for."""
        for name in self.known:
            for kind in FORMATS:
                if f"figures/{name}.{kind}" not in contents:
                    (folder / "figures" / f"{name}.{kind}").unlink(missing_ok=True)

    def html(self, pictures: Mapping[str, str]) -> str:
        """The page; ``pictures`` are the figures as SVG."""
        import jinja2

        environment = jinja2.Environment(
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            undefined=jinja2.StrictUndefined,
        )
        text = files("stn_tune.analysis.reporting").joinpath("report.html.j2").read_text("utf-8")
        record = self.results.record
        sources = self.results.frame.attrs.get("sources", [])
        return environment.from_string(text).render(
            title=(record.name if record else "") or " and ".join(Path(source).name for source in sources),
            facts=_facts(record) if record else {},
            counts=_counts(self.results),
            warnings=self.warnings,
            sections=self.table.sections,
            figures=[self._entry(name, svg) for name, svg in pictures.items()],
            settings=_setting_lines(record.settings) if record else {},
            invocations=[_invocation(invocation) for invocation in record.invocations] if record else [],
            rebuild=self.rebuild,
        )

    def _entry(self, name: str, svg: str) -> dict[str, Any]:
        """A figure for the page."""
        caption = self.known[name].caption
        paths = [f"figures/{name}.{kind}" for kind in self.formats]
        return {"name": name, "caption": caption, "files": paths, "svg": inline(svg, name, caption)}


def inline(svg: str, name: str, caption: str) -> str:
    """An SVG for use inside a page: unique ids, no external address, no style that affects the page."""

    def own(tag: re.Match[str]) -> str:
        text = re.sub(r'(\sid="|url\(#|href="#)', rf"\g<1>{name}-", tag[0])
        return re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)

    body = svg[svg.index("<svg") :]
    body = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<[^>]+>", own, body)
    width = re.search(r'width="([\d.]+)pt"', body)
    style = "stroke-linejoin: round; stroke-linecap: butt"
    style += f"; max-width: {1.2 * float(width[1]):.0f}pt" if width else ""
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(caption)}" style="{style}"', 1)


def _counts(results: Results) -> str:
    """``STN (5), grid search (5)``: labels with their numbers of experiments."""
    numbers = results.frame.groupby("label")["experiment"].nunique()
    return ", ".join(f"{results.title(label)} ({numbers[label]})" for label in results.labels)


def _facts(record: RunRecord) -> dict[str, str]:
    """What was asked for, in a few words."""
    clocks = {"cpu": "CPU time", "device": "time on a GPU", "worker": "wall-clock time on a worker"}
    facts = {
        "task": record.task.title,
        "preset": record.preset,
        "changed settings": record.overrides,
        "budget per method and seed (compute-seconds)": record.budget_s,
        "compute-seconds count": clocks[record.clock],
        "workers": record.workers,
        "selected by": record.task.metric,
    }
    return {words: _text(value) for words, value in facts.items() if value not in (None, "", ())}


def _invocation(invocation: Invocation) -> dict[str, Any]:
    """One invocation of the runner, for the page."""
    commit = (invocation.commit or "unknown") + (", with uncommitted changes" if invocation.dirty else "")
    about = {
        "started": invocation.started,
        "code": commit,
        "machine": _pairs(invocation.machine),
        "versions": _pairs(invocation.versions),
    }
    return {"command": invocation.command, "about": about}


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_text(value)}" for key, value in values.items()) or "unknown"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return _pairs(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting_lines(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``stn.warmup`` -> its value; deeper values, such as a domain of the space, are one line."""
    result: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and not prefix:
            result |= _setting_lines(value, f"{key}.")
        else:
            result[f"{prefix}{key}"] = _text(value)
    return result
