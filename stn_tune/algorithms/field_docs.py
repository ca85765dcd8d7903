"""The strings under the fields of an options class, as a section of the docstring that ``help()`` shows."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from functools import cache

WIDTH = 76
"""``help()`` shows a class indented by four columns, on a terminal of 80."""


def with_field_docs(cls: type) -> str | None:
    """The docstring of ``cls``, and an ``Args`` section with its fields, those of its base classes first.

    Without its source (a REPL, ``python -OO``) the docstring is what it was.
    """
    if not cls.__doc__:
        return cls.__doc__
    found: dict[str, str] = {}
    for kind in reversed(cls.__mro__):
        found |= _fields(kind.__module__).get(kind.__qualname__, {})
    lines = [_entry(name, words) for name, words in found.items()]
    return "\n\n".join([inspect.cleandoc(cls.__doc__), "\n".join(["Args:", *lines])]) if lines else cls.__doc__


def _entry(name: str, words: str) -> str:
    text = textwrap.fill(f"{name}: {words}", WIDTH - 4, subsequent_indent="    ")
    return textwrap.indent(text, "    ")


@cache
def _fields(module: str) -> dict[str, dict[str, str]]:
    """Class -> field -> the string under it and its default, of the classes of a module."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return {}
    return {node.name: _documented(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or "ClassVar" in ast.unparse(field.annotation):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            words = " ".join(below.value.value.split())
            found[ast.unparse(field.target)] = f"{words} {_default(field.value)}".rstrip()
    return found


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    text = ast.unparse(value)
    return f"Default: ``{'{}' if text == 'field(default_factory=dict)' else text}``."
