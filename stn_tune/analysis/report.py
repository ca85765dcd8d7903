"""report: everything the logs say in one folder, with one page that needs nothing else to be read."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from stn_tune.analysis import plots
from stn_tune.analysis.curves import AXES, curves
from stn_tune.analysis.frame import load
from stn_tune.analysis.labels import space_of
from stn_tune.analysis.order import HEATMAP, in_order, title
from stn_tune.analysis.style import FORMATS, render
from stn_tune.analysis.tables import PAPER, Table, as_csv, table
from stn_tune.errors import AnalysisError

PathLike = str | os.PathLike[str]


def report(
    paths: PathLike | Sequence[PathLike],
    out: PathLike | None = None,
    figures: Sequence[str] | None = None,
    formats: Sequence[str] = FORMATS,
) -> Path:
    """Writes the report of one or more experiments, and returns the path of its ``report.html``.

    Args:
        paths: what :func:`~stn_tune.analysis.load` reads.
        out: the folder to write to; by default ``report`` in the folder that was read.
        figures: names in ``FIGURES``; by default all that the logs have the data for.
        formats: of the figures' files: png, svg, pdf.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    places = [os.fspath(path) for path in given]
    folder = destination(places, out)
    return compose(load(*places), figures, formats).write(folder)


def destination(paths: Sequence[str], out: PathLike | None) -> Path:
    """Where the report goes."""
    if out is None and (len(paths) != 1 or "://" in paths[0]):
        raise AnalysisError("say where the report goes (out): there is no single local folder to put it in")
    folder = Path(out) if out is not None else Path(paths[0], "report")
    if out is None and Path(paths[0]).is_file():
        folder = Path(paths[0]).parent / "report"
    if folder.exists() and not folder.is_dir():
        raise AnalysisError(f"{folder}: the report needs a folder, and this is a file")
    return folder


def compose(frame: pd.DataFrame, figures: Sequence[str] | None = None, formats: Sequence[str] = FORMATS) -> Report:
    """The report of a frame, not yet written."""
    unknown = [name for name in figures or () if name not in plots.FIGURES]
    if unknown:
        raise AnalysisError(f"there is no figure {unknown[0]!r}; there are {', '.join(plots.FIGURES)}")
    for kind in formats:
        if kind not in FORMATS:
            raise AnalysisError(f"there is no format {kind!r}; there are {', '.join(FORMATS)}")
    if not len(frame):
        raise AnalysisError("; ".join(frame.attrs.get("problems", ())) or "nothing to report: there are no results")
    configs = frame.attrs.get("configs", [])
    compared = frame[frame["method"] != HEATMAP]
    summary = table(compared if len(compared) else frame, paper=_published(configs[0]) if configs else None)
    drawn = dict(_draw(frame, configs[0] if configs else None, figures))
    return Report(frame, summary, drawn, tuple(formats), list(figures or ()))


def _published(config: Mapping[str, Any]) -> str | None:
    """The experiment of the paper that a run is like: of all its hyperparameters, unless it is about others."""
    command = config.get("command", "run")
    name = str(config.get("task")) if command == "run" else f"{config.get('task')} {command}"
    part = command == "run" and "tuned" in config and set(config["tuned"]) != set(space_of(config))
    return name if name in PAPER and not part else None


def _draw(
    frame: pd.DataFrame, config: Mapping[str, Any] | None, wanted: Sequence[str] | None
) -> Iterator[tuple[str, Figure]]:
    """The figures asked for, or all that there is data for."""
    for name in plots.FIGURES:
        if wanted and name not in wanted:
            continue
        try:
            yield name, plots.FIGURES[name](frame, config)
        except AnalysisError as error:
            if wanted:
                raise AnalysisError(f"figure {name}: {error}") from None


@dataclass
class Report:
    """What was read and drawn; ``write`` puts it into a folder."""

    frame: pd.DataFrame
    table: Table
    figures: Mapping[str, Figure]
    formats: Sequence[str]
    asked: Sequence[str] = field(default_factory=list)

    @property
    def configs(self) -> list[dict[str, Any]]:
        return list(self.frame.attrs.get("configs", []))

    @property
    def warnings(self) -> list[str]:
        """Everything a reader should know before believing the numbers."""
        found = list(self.frame.attrs.get("problems", []))
        if not self.configs:
            found.append("no config.json of the benchmark runner: command, machine, versions and settings are unknown")
        for go in _goes(self.configs):
            if go.get("dirty"):
                found.append(f"run on uncommitted changes to {str(go.get('git', '?'))[:12]}: {go.get('command', '?')}")
        return found

    def contents(self) -> dict[str, bytes]:
        """Relative path -> bytes: the same for the same logs, today and tomorrow."""
        texts = {
            "table.md": self.table.to_markdown(),
            "table.csv": self.table.to_csv(),
            "table.tex": self.table.to_latex(),
            "differences.csv": as_csv(self.table.differences),
            "times.csv": as_csv(self.table.times),
        }
        for x in AXES:
            try:
                texts[f"curves-{x}.csv"] = as_csv(curves(self.frame, x=x).data)
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
        """Writes all files, or, if anything goes wrong before the last is ready, none."""
        contents = self.contents()
        partial = folder / f".partial-{os.getpid()}"
        try:
            for name, data in contents.items():
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                (partial / name).write_bytes(data)
            for name in contents:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(partial / name, folder / name)
            if not self.asked:
                _remove_old_figures(folder, contents)
        except OSError as error:
            raise AnalysisError(f"{folder}: cannot write the report: {error.strerror or error}") from None
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return folder / "report.html"

    def html(self, pictures: Mapping[str, str]) -> str:
        """The page; ``pictures`` are the figures as SVG."""
        environment = jinja2.Environment(
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            undefined=jinja2.StrictUndefined,
        )
        template = environment.from_string(files("stn_tune.analysis").joinpath("report.html.j2").read_text("utf-8"))
        sources = list(self.frame.attrs.get("sources", []))
        rebuild = ["python", "-m", "benchmarks", "report", *sources, *(f"--figure={name}" for name in self.asked)]
        return template.render(
            title=" and ".join(str(c["name"]) for c in self.configs if c.get("name"))
            or " and ".join(Path(source).name for source in sources),
            facts=[_facts(config) for config in self.configs],
            counts=_counts(self.frame),
            warnings=self.warnings,
            sections=self.table.sections,
            figures=[_entry(name, svg, self.formats) for name, svg in pictures.items()],
            settings=[_flat(config.get("settings") or {}) for config in self.configs],
            goes=[_go(go) for go in _goes(self.configs)],
            rebuild=shlex.join(rebuild),
        )


def _remove_old_figures(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Figures of an earlier report that these logs have no data for."""
    for name in plots.FIGURES:
        for kind in FORMATS:
            if f"figures/{name}.{kind}" not in contents:
                (folder / "figures" / f"{name}.{kind}").unlink(missing_ok=True)


def _entry(name: str, svg: str, formats: Sequence[str]) -> dict[str, Any]:
    """A figure for the page: its name, its caption (the first paragraph of its function's docstring), its picture."""
    caption = " ".join((plots.FIGURES[name].__doc__ or name).split("\n\n")[0].split())
    return {
        "name": name,
        "caption": caption,
        "files": [f"figures/{name}.{kind}" for kind in formats],
        "svg": inline(svg, name, caption),
    }


def inline(svg: str, name: str, caption: str) -> str:
    """A picture for the inside of a page: ids that no other picture has, no address, no style that leaks out."""

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


def _counts(frame: pd.DataFrame) -> str:
    """``STN (5), grid search (5)``: methods with their numbers of experiments."""
    numbers = frame.groupby("method")["experiment"].nunique()
    return ", ".join(f"{title(method)} ({numbers[method]})" for method in in_order(numbers.index))


def _facts(config: Mapping[str, Any]) -> dict[str, str]:
    """What was asked for, in a few words."""
    names = {
        "task": "task",
        "preset": "preset",
        "set": "changed settings",
        "budget_s": "budget per method and seed (compute-seconds)",
        "workers": "workers",
        "metric": "selected by",
    }
    return {words: _text(config[key]) for key, words in names.items() if config.get(key) not in (None, "", [])}


def _goes(configs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [go for config in configs for go in config.get("goes", ())]


def _go(go: Mapping[str, Any]) -> dict[str, Any]:
    """One invocation of the runner, for the page."""
    commit = str(go.get("git") or "unknown") + (", with uncommitted changes" if go.get("dirty") else "")
    return {
        "command": str(go.get("command", "unknown")),
        "about": {
            "started": _text(go.get("started", "unknown")),
            "code": commit,
            "machine": _pairs(go.get("machine") or {}),
            "versions": _pairs(go.get("versions") or {}),
        },
    }


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {_text(value)}" for key, value in values.items()) or "unknown"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return _pairs(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """``stn.warmup`` -> its value; what lies deeper, such as a domain of the space, is one line."""
    result: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping) and not prefix:
            result |= _flat(value, f"{key}.")
        else:
            result[f"{prefix}{key}"] = _text(value)
    return result
