"""What the package says of itself."""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
import tomllib
import yaml

import stn_tune
from tests.wheel import built

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


@pytest.mark.slow
def test_the_package_index_gets_absolute_links_and_images(tmp_path):
    """Of the tag, at the address that the release workflow runs at."""
    wheel = built(tmp_path, REPOSITORY_URL="https://forge.example/us/stn_tune")
    name = f"stn_tune-{stn_tune.__version__}.dist-info/METADATA"
    metadata = message_from_string(zipfile.ZipFile(wheel).read(name).decode("utf-8"))
    text = metadata.get_payload()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 5
    assert all(link.startswith(("https://", "#")) for link in links), links
    at = f"https://forge.example/us/stn_tune/raw/v{stn_tune.__version__}/"
    (image,) = re.findall(r"!\[[^\]]*\]\((.*?)\)", text)
    assert (ROOT / image.removeprefix(at)).is_file()
    assert {url.split(", ")[0] for url in metadata.get_all("Project-URL")} >= {"Repository", "Issues", "Paper"}


IMPORTED_AS = {"scikit-optimize": "skopt", "scikit-learn": "sklearn"}


def test_whatever_the_library_imports_is_declared():
    extras = PROJECT["optional-dependencies"]
    declared = [
        *PROJECT["dependencies"],
        *(one for extra in ("bench", "lightning", "huggingface") for one in extras[extra]),
    ]
    names = {re.split(r"[\[<>=]", one)[0] for one in declared}
    known = {IMPORTED_AS.get(name, name).replace("-", "_") for name in names} | {"stn_tune", *sys.stdlib_module_names}
    brought = {"pyarrow", "fsspec", "typing_extensions", "PIL"}  # by Ray, torch and Matplotlib
    testing = {"pytest"}  # conformance suites are for people who have it
    for path in (ROOT / "stn_tune").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            allowed = known | brought | (testing if "testing" in path.parts else set())
            assert {module.split(".")[0] for module in modules} <= allowed, f"{path.relative_to(ROOT)}: {modules}"
