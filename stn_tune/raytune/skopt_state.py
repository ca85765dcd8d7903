"""Saved states of SkOptSearch, of this version and of older ones."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import Any

from stn_tune.checkpoint import one_line
from stn_tune.errors import CheckpointError
from stn_tune.raytune.skopt_axis import Axis


class _Unpickler(pickle.Unpickler):
    """Finds the axes of version 0 where they are now."""

    def find_class(self, module: str, name: str) -> Any:
        return Axis if (module, name) == ("baselines.skopt_axis", "Axis") else super().find_class(module, name)


def read_state(path: str, version: int) -> dict[str, Any]:
    """The state of a file, as ``version`` has it."""
    with open(path, "rb") as file:
        try:
            saved = _Unpickler(file).load()
        except Exception as error:  # of damaged bytes pickle may say anything
            raise CheckpointError(f"{path}: not a saved state of SkOptSearch: {one_line(str(error))}") from None
    if not isinstance(saved, dict) or not {"version", "_axes"} & set(saved):
        raise CheckpointError(f"{path}: not a saved state of SkOptSearch")
    if not isinstance(saved.get("version", 0), int) or not isinstance(saved.get("state", {}), dict):
        raise CheckpointError(f"{path}: a damaged state of SkOptSearch")
    if saved.get("version", 0) > version:
        raise CheckpointError(
            f"{path}: saved by a newer stn_tune (state version {saved['version']}, here is {version}); upgrade it"
        )
    return dict(saved.get("state", {})) if "version" in saved else _from_version_0(saved)


def _from_version_0(saved: dict[str, Any]) -> dict[str, Any]:
    """Version 0 pickled the searcher's attributes as they were, with results negated where they are maximised."""
    sign = -1.0 if saved["_mode"] == "max" else 1.0
    return {
        **saved,
        "_random": saved["_random"].bit_generator.state,
        "_axes": [asdict(axis) for axis in saved["_axes"]],
        "_observed": [(point, None if value is None else sign * value) for point, value in saved["_observed"]],
    }
