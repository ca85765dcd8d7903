"""What the package says of itself."""

from __future__ import annotations

import re
from pathlib import Path

import tomllib
import yaml

import stn_tune

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == stn_tune.__version__
    assert f"## {stn_tune.__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_tested_versions_are_within_the_declared_bounds():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = dict(line.lower().split("==") for line in lines if "==" in line)
    extras = PROJECT["optional-dependencies"].values()
    for requirement in (*PROJECT["dependencies"], *(one for extra in extras for one in extra)):
        name, bound = re.match(r"([A-Za-z0-9-]+)(?:\[.*\])?(?:>=([\d.]+))?", requirement).groups()
        if bound:
            assert [int(x) for x in bound.split(".")] <= [int(x) for x in tested[name.lower()].split(".")[:3]], name


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        for job in workflow["jobs"].values():
            words = [step.get("run", "") for step in job["steps"]]
            words += [f"make {target}" for target in job.get("strategy", {}).get("matrix", {}).get("target", [])]
            for target in re.findall(r"make ([a-z-]+)", " ".join(words)):
                assert target in targets, f"{path.name}: make {target}"
            for script in re.findall(r"python (scripts/\S+)", " ".join(words)):
                assert (ROOT / script).exists(), script
