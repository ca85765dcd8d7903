"""Results of this version for an analysis that reads version 1; to be deleted with that analysis."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stn_tune.record import LOG_SUFFIX, ExperimentInfo, RunRecord, label_of


@contextmanager
def readable(places: Sequence[str]) -> Iterator[list[str]]:
    """The same places, with copies in version 1 of those that are a run's folder."""
    with tempfile.TemporaryDirectory() as folder:
        yield [_copied(Path(place), Path(folder, str(k))) for k, place in enumerate(places)]


def _copied(folder: Path, to: Path) -> str:
    record = RunRecord.read(folder) if folder.is_dir() else None
    if record is None:
        return str(folder)
    (to / "runs").mkdir(parents=True)
    config = {
        "format": 1,
        "name": record.name,
        "command": record.study,
        "task": record.task.name,
        "preset": record.preset,
        "settings": record.settings,
        "tuned": record.tuned,
        "budget_s": record.budget_s,
        "workers": record.workers,
        "cpus": record.cpus,
        "gpus": record.gpus,
        "metric": "val_loss",
        "mode": "min",
        "set": record.overrides,
        "experiments": [e.name for e in record.experiments],
        "goes": [{"git": i.commit, **i.to_json()} for i in record.invocations],
    }
    (to / "config.json").write_text(json.dumps(config))
    for path in (folder / "runs").glob(f"*{LOG_SUFFIX}"):
        first, *rows = gzip.decompress(path.read_bytes()).splitlines()
        head = json.loads(first)
        known = {f for f in ExperimentInfo.__dataclass_fields__ if f in head}
        old = {key: value for key, value in head.items() if key not in known - {"method", "seed", "tuned", "machine"}}
        old |= {"version": 1, "label": label_of(head["method"], head["variant"]), "versions": head["versions"]}
        old["trials"] = [{**t, "trial": t["number"]} for t in head["trials"]]
        lines = [json.dumps(old).encode(), *rows]
        (to / "runs" / path.name).write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    return str(to)
