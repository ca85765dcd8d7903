"""A type checker knows the package as its users see it: a misspelt option is found before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIBRARIES = ("fsspec", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "ray", "scipy", "torch")
CONFIG = f"""
[mypy]
mypy_path = {ROOT}

[mypy-stn_tune.*]
follow_imports = silent

[mypy-{",".join(f"{name}.*" for name in LIBRARIES)}]
follow_imports = skip
ignore_missing_imports = True
"""
SCRIPT = """\
import stn_tune as stn

wrong = stn.STNSearch(online=["dropout"], hyper_lrr=3)
right = stn.STNSearch(online=["dropout"], hyper_lr=3)
runs = stn.analysis.load("x")

reveal_type(wrong)
reveal_type(stn.analysis.load)
stn.analysis.no_such_name
"""


def said(tmp_path: Path) -> dict[int, str]:
    """What mypy says of each line of the script; it says something of no other file."""
    pytest.importorskip("mypy")
    (tmp_path / "mypy.ini").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "user.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--cache-dir=cache", "--no-error-summary"]
    done = subprocess.run([*command, "user.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[int, str] = {}
    for line in done.stdout.splitlines():
        name, number, text = line.split(":", 2)
        assert name == "user.py", line
        found[int(number)] = found.get(int(number), "") + text
    return found


@pytest.mark.slow
def test_a_type_checker_finds_a_misspelt_option_and_knows_the_submodules(tmp_path: Path):
    found = said(tmp_path)
    assert 'error: Unexpected keyword argument "hyper_lrr"' in found[3]
    assert 4 not in found, "the right keyword"
    assert 5 not in found
    assert 'Revealed type is "stn_tune.raytune.search.STNSearch"' in found[7]
    assert 'Revealed type is "def (*paths: ' in found[8], "a function, not Any"
    assert 'has no attribute "no_such_name"' in found[9], "submodules are no Any either"
