"""Warns, and so fails the build, where a public name has no entry in the reference, or an entry has no words."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

log = logging.getLogger(__name__)


def public_names(module: ModuleType) -> list[str]:
    """``__all__``; without one, what the module itself defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [name for name, value in vars(module).items() if not name.startswith("_") and _defined_in(module, value)]


def _defined_in(module: ModuleType, value: Any) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module.__name__


def missing(modules: Collection[str], documented: Collection[str]) -> Iterator[str]:
    """Public names of the modules that are not ``documented``, neither by that name nor by another public one."""
    found = {f"{path}.{name}": getattr(import_module(path), name) for path in modules for name in _names(path)}
    described = {id(value) for name, value in found.items() if _entry(name, value) in documented}
    yield from (name for name, value in found.items() if id(value) not in described)


def _names(path: str) -> list[str]:
    return public_names(import_module(path))


def _entry(name: str, value: Any) -> str:
    return value.__name__ if inspect.ismodule(value) else name


def check_entries(app: Sphinx, env: BuildEnvironment) -> None:
    """Every public name has an entry."""
    domain = env.get_domain("py")
    documented = {*domain.data["objects"], *domain.data["modules"]}
    for name in missing(app.config.public_modules, documented):
        log.warning("%s is public, but has no entry in docs/reference", name, type="public_names")


def check_words(app: Sphinx, doctree: nodes.document) -> None:
    """Every entry says what it is."""
    for entry in doctree.findall(addnodes.desc):
        signature, content = entry.children[0], entry.children[-1]
        if entry["domain"] == "py" and not content.children:
            name = ".".join(filter(None, [signature.get("module"), signature.get("fullname")]))
            log.warning("%s has no docstring", name, type="public_names")


PLAIN = ("attribute", "data", "property")
_raw: dict[str, list[str]] = {}


def keep_plain(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Before napoleon, which takes "a: b" in the docstring of a property for a type and its description."""
    if what in PLAIN:
        _raw[name] = list(lines)


def restore_plain(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """After napoleon."""
    if name in _raw:
        lines[:] = _raw.pop(name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connects the checks."""
    app.add_config_value("public_modules", [], "env")
    app.connect("env-check-consistency", check_entries)
    app.connect("autodoc-process-docstring", keep_plain, priority=400)
    app.connect("autodoc-process-docstring", restore_plain, priority=600)
    app.connect("doctree-read", check_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
