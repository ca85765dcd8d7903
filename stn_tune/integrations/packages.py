"""Whether an optional package is there, and new enough: one line where it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module, metadata
from typing import Any


def require(extra: str, **lowest: str) -> None:
    """Raises ImportError unless each package, named by keyword, is installed in its ``lowest`` version or a newer one.

    Args:
        extra: the extra of stn-tune that installs them.
    """
    for package, version in lowest.items():
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise ImportError(
                f"stn_tune.integrations.{extra} needs {package} {version} or newer, which is not installed: "
                f"pip install 'stn-tune[{extra}]'"
            ) from None
        if _parts(found) < _parts(version):
            raise ImportError(
                f"stn_tune.integrations.{extra} needs {package} {version} or newer, here is {found}: "
                f"pip install --upgrade '{package}>={version}'"
            )


def found_in(extra: str, version: str, modules: Mapping[str, str], name: str) -> tuple[Any, ...]:
    """``name`` from the module of each package that is there in that version or a newer one; at least one must be."""
    found, errors = [], []
    for package, module in modules.items():
        try:
            require(extra, **{package: version})
        except ImportError as error:
            errors.append(error)
        else:
            found.append(getattr(import_module(module), name))
    if not found:
        raise errors[0]
    return tuple(found)


def _parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:2]]
