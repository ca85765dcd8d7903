"""Everything public says what it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [path for package in ("stn_tune", "baselines", "benchmarks") for path in sorted((ROOT / package).rglob("*.py"))]


def undocumented(tree: ast.Module) -> list[str]:
    """Public modules, classes, functions and methods without a docstring; overridden methods inherit theirs."""
    found = [] if ast.get_docstring(tree) or not tree.body else ["the module"]
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            found += [] if ast.get_docstring(node) else [node.name]
    return found


def fields_without_words(tree: ast.Module) -> list[str]:
    """Fields of options classes (frozen dataclasses called …Options) that no string follows."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Options"):
            for one, following in zip(node.body, [*node.body[1:], None], strict=True):
                documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
                if isinstance(one, ast.AnnAssign) and not documented:
                    found.append(f"{node.name}.{ast.unparse(one.target)}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_public_name_has_a_docstring(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert undocumented(tree) == []
    assert fields_without_words(tree) == []
