"""report: everything that the logs say in one folder, with one self-contained page."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from stn_tune.analysis.curves import AXES, curves
from stn_tune.analysis.figures import FIGURES, Figure
from stn_tune.analysis.figures.style import FORMATS, render
from stn_tune.analysis.figures.time import TIME
from stn_tune.analysis.logs import Upgrade
from stn_tune.analysis.reporting.about import commands, counts, run_facts, setting_lines, warnings
from stn_tune.analysis.reporting.compact import share_styles
from stn_tune.analysis.reporting.headline import headline
from stn_tune.analysis.reporting.pictures import inlined, theme
from stn_tune.analysis.reporting.sections import sections
from stn_tune.analysis.results import PathLike, Results, Source, load, objective
from stn_tune.analysis.storage import check_folder
from stn_tune.analysis.tables import Table, as_csv, table
from stn_tune.errors import AnalysisError, unknown
from stn_tune.plotting import narrow_figures
from stn_tune.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


def report(
    source: Source,
    out: PathLike | None = None,
    figures: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    extra_figures: Sequence[Figure] = (),
    reference: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    seed: str | None = None,
    upgrade: Upgrade | None = None,
    rebuild: str | None = None,
) -> Path:
    """Writes the report of one or more experiments, and returns the path of its ``report.html``.

    Args:
        source: paths that :func:`~stn_tune.analysis.load` reads, or what it returned.
        out: the folder to write to; by default ``report`` in the folder that was read.
        figures: names of figures; by default all that the logs have the data for.
        formats: of the figures' files: png, svg, pdf.
        extra_figures: figures beside those in ``FIGURES``.
        reference: the label that the others are compared with; by default the one that tunes online.
        metric: the metric that selects; by default the one the logs name.
        mode: "min" or "max"; by default the one the logs name.
        seed: where the seeds of Tune experiments are, see :func:`~stn_tune.analysis.load`.
        upgrade: reads runs of version 1.
        rebuild: the command that makes this report, for the page.
    """
    if isinstance(source, (pd.DataFrame, Results)):
        results = Results.of(source, metric, mode, reference)
        folder = destination(results.frame.attrs.get("sources", ()), out)
    else:
        given = [source] if isinstance(source, (str, os.PathLike)) else source
        places = [os.fspath(path) for path in given]
        folder = destination(places, out)
        results = Results.of(load(*places, metric=metric, mode=mode, reference=reference, seed=seed, upgrade=upgrade))
    return compose(results, figures, formats, extra_figures=extra_figures, rebuild=rebuild).write(folder)


def destination(paths: Sequence[str], out: PathLike | None) -> Path:
    """The folder of the report."""
    if out is None and (len(paths) != 1 or "://" in paths[0]):
        raise AnalysisError("give the report's folder (--out): there is no single local folder to put it in")
    folder = Path(out) if out is not None else Path(paths[0], "report")
    if out is None and Path(paths[0]).is_file():
        folder = Path(paths[0]).parent / "report"
    return check_folder(folder, "the report")


def compose(
    source: Source,
    figures: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    extra_figures: Sequence[Figure] = (),
    reference: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
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
    results = Results.of(source, metric, mode, reference)
    if not len(results.frame):
        problems = results.frame.attrs.get("problems", ())
        raise AnalysisError("; ".join(problems) or "nothing to report: there are no results")
    results = Results.of(results, *objective(results))
    selected = dict(_select(results, known, figures))
    drawn = {name: known[name].draw(frame) for name, frame in selected.items()}
    with narrow_figures():
        narrow = {name: known[name].draw(frame) for name, frame in selected.items()}
    alts = {name: str(frame.attrs["alt"]) for name, frame in selected.items() if "alt" in frame.attrs}
    return Report(results, table(results), drawn, known, tuple(formats), narrow, alts, bool(figures), rebuild)


def _select(
    results: Results, known: Mapping[str, Figure], wanted: Sequence[str] | None
) -> Iterator[tuple[str, pd.DataFrame]]:
    """The data of the figures asked for, or of all that there is data for."""
    for name, figure in known.items():
        if wanted and name not in wanted:
            continue
        try:
            yield name, figure.select(results)
        except AnalysisError as error:
            if wanted:
                raise AnalysisError(f"figure {name}: {error}") from None


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
    narrow: Mapping[str, Picture]
    """The same figures for a phone."""
    alts: Mapping[str, str]
    """What the figures show, in words."""
    partial: bool = False
    """Whether only some figures were asked for."""
    rebuild: str | None = None
    """The command that makes this report."""

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before trusting the numbers."""
        return warnings(self.results)

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
        drawn = {name: picture.decode() for name, picture in pictures.items()}
        texts["report.html"] = self.html(drawn, list(texts))
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

    def html(self, pictures: Mapping[str, str], tables: Sequence[str] = ()) -> str:
        """The page; ``pictures`` are the figures as SVG, ``tables`` the files beside it."""
        import jinja2

        environment = jinja2.Environment(
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            undefined=jinja2.StrictUndefined,
        )
        environment.filters["together"] = _together
        folder = files("stn_tune.analysis.reporting")
        record = self.results.record
        sources = self.results.frame.attrs.get("sources", [])
        title = (record.name if record else "") or " and ".join(Path(source).name for source in sources)
        found = headline(self.results, self.table)
        entries = [self._entry(name, svg) for name, svg in pictures.items()]
        shapes = [svg for entry in entries for svg in (entry["drawn"].wide, entry["drawn"].narrow)]
        light, dark = theme(shapes)
        rules, shapes = share_styles(shapes)
        for entry, wide, narrow in zip(entries, shapes[::2], shapes[1::2], strict=True):
            entry["drawn"] = replace(entry["drawn"], wide=wide, narrow=narrow)
        lead = self._lead(entries)
        run, shared = commands(record) if record else ([], {})
        return environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8")).render(
            title=title,
            kicker=_kicker(title, record),
            claim=found.claim if found else _subject(lead, title),
            details=found.details if found else [],
            facts=run_facts(record) if record else {},
            counts=counts(self.results),
            warnings=self.warnings,
            ranked=self.ranked,
            sections=sections(self.results, self.table),
            lead=lead,
            figures=[entry for entry in entries if entry is not lead],
            settings=setting_lines(record.settings) if record else {},
            commands=run,
            shared=shared,
            rebuild=self.rebuild,
            files=[*tables, *(path for entry in entries for path in entry["files"])],
            light=light,
            dark=dark,
            rules=rules,
            script=folder.joinpath("report.js").read_text("utf-8"),
        )

    @property
    def ranked(self) -> bool:
        """Whether anything is compared: a study may be data for figures alone."""
        return bool(self.results.frame["compared"].astype(bool).any())

    def _lead(self, entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The figure on top: curves over time where methods are compared, else the study's own."""
        own = [entry for entry in entries if entry["name"] not in FIGURES]
        over_time = [entry for entry in entries if entry["name"] == TIME.name]
        return next(iter([*over_time, *own, *entries] if self.ranked else [*own, *entries]), None)

    def _entry(self, name: str, svg: str) -> dict[str, Any]:
        """A figure for the page."""
        caption = self.known[name].full_caption(self.results)
        drawn = inlined(name, self.alts.get(name, caption), svg, self.figures[name], self.narrow.get(name))
        paths = [f"figures/{name}.{kind}" for kind in self.formats]
        return {"name": name, "caption": caption, "files": paths, "drawn": drawn}


def _together(text: str) -> str:
    """Without breaks between a sign and its numbers: "4.6 ± 0.1", "p ≤ 0.02"."""
    return re.sub(r" ([±=≤≥]) ", "\u00a0\\1\u00a0", text)


def _subject(lead: Mapping[str, Any] | None, title: str) -> str:
    """What a page without a comparison is about: what its first figure shows."""
    return title if lead is None else re.sub(r" \([^()]*\)\.?$", "", lead["caption"]).rstrip(".")


def _kicker(title: str, record: RunRecord | None) -> str:
    """The line above the headline: what was run, and with how much."""
    if record is None:
        return title
    facts = [title, f"preset {record.preset}" if record.preset else ""]
    facts.append(f"{record.budget_s:g} compute-seconds per method and seed" if record.budget_s else "")
    return " · ".join(filter(None, facts))
