"""Imports point one way; what is heavy is imported late."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = [
    {"errors", "nested", "numbers", "atomic", "plain_json", "record", "schedule_file", "plotting"},
    {"transform", "domains", "space"},
    {"rng", "hyper", "checkpoint", "guard"},
    {"nn", "augment"},
    {"pbt_log", "schedule", "training", "stream", "task"},
    {"algorithms"},
    {"raytune", "integrations", "dry_run", "testing"},
]
"""From the leaves on: a module imports from its own layer and from those above it in this list."""

LEAVES = LAYERS[0]


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every absolute import of a file, those inside functions too, those for type checkers not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(name: str) -> str:
    """``stn_tune.nn.attach.self_tune`` is in the room ``nn``."""
    return name.split(".")[1] if "." in name else ""


def layer(name: str) -> int:
    return next(k for k, members in enumerate(LAYERS) if name in members)


@pytest.mark.parametrize("path", modules("stn_tune"), ids=lambda p: str(p.relative_to(ROOT / "stn_tune")))
def test_the_library_imports_one_way(path: Path):
    own = path.relative_to(ROOT / "stn_tune").parts[0].removesuffix(".py")
    if own in ("__init__", "cli"):
        return
    for name in imported(path):
        assert not name.startswith(("benchmarks", "baselines", "tests")), f"{path.name} imports {name}"
        if not name.startswith("stn_tune."):
            continue
        target = room(name)
        if own == "analysis":
            assert target in {"analysis", *LEAVES}, f"analysis imports leaves only, not {name}"
        elif target != own:
            assert target != "analysis", f"{path.name} imports {name}"
            assert layer(target) <= layer(own), f"{own} must not import {target} ({path.name}: {name})"


@pytest.mark.parametrize("path", modules("baselines"), ids=lambda p: p.name)
def test_baselines_do_not_know_the_benchmarks(path: Path):
    assert not [name for name in imported(path) if name.startswith(("benchmarks", "tests"))]


def test_every_room_has_a_layer():
    rooms = {path.relative_to(ROOT / "stn_tune").parts[0].removesuffix(".py") for path in modules("stn_tune")}
    assert rooms - {"__init__", "cli", "analysis"} <= set().union(*LAYERS)


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import stn_tune", ["torch", "ray", "pandas", "matplotlib", "numpy"]),
        ("import stn_tune; stn_tune.Hyper, stn_tune.self_tune, stn_tune.SelfTuner", ["ray", "pandas", "matplotlib"]),
        ("from stn_tune import analysis", ["torch", "ray", "matplotlib"]),
        ("import stn_tune; stn_tune.STNTrainable, stn_tune.STNSearch", ["matplotlib"]),
    ],
)
def test_what_is_heavy_is_imported_late(code: str, absent: list[str]):
    check = f"{code}\nimport sys\nassert not (set({absent}) & set(sys.modules)), set({absent}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, cwd=ROOT)


def test_every_public_name_is_there_and_listed():
    code = "import stn_tune as s; assert set(s.__all__) <= set(dir(s)); [getattr(s, name) for name in s.__all__]"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    import stn_tune

    with pytest.raises(AttributeError, match="module 'stn_tune' has no attribute 'nothing'"):
        stn_tune.nothing  # noqa: B018


def test_rays_side_is_there_under_its_own_name_too():
    import stn_tune
    from stn_tune import raytune

    for name in raytune.__all__:
        assert getattr(raytune, name) is getattr(stn_tune, name)
    with pytest.raises(AttributeError, match=r"module 'stn_tune.raytune' has no attribute 'nothing'"):
        raytune.nothing  # noqa: B018
