"""Pipelines that users already have, made self-tuning; and the README, run as it stands."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch

import stn_tune as stn
from examples import tune_function as after_script
from tests.examples import plain_tune_function as before_script
from tests.wheel import installed

REPO = Path(__file__).parents[1]
logging.getLogger("optuna").setLevel(logging.WARNING)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_both_scripts_run(tmp_path):
    before = before_script.main(str(tmp_path / "before"), num_samples=1, epochs=1)
    after = after_script.main(str(tmp_path / "after"), num_samples=2, epochs=2)
    assert not before.errors
    assert not after.errors
    for result in after:
        assert result.config["dropout"] == 0.375
        assert result.metrics["hp/dropout"] != pytest.approx(0.375, rel=1e-4)
        net = before_script.ConvNet(0.5).eval()
        with result.checkpoint.as_directory() as folder:
            net.load_state_dict(torch.load(Path(folder, "model.pt"), weights_only=True))
        _, valid = before_script.get_data_loaders()
        loss = sum(after_script.loss_fn(net, batch).item() for batch in valid) / len(valid)
        assert loss == pytest.approx(result.metrics["val_loss"], rel=1e-4), "the plain network that was reported"
        assert stn.Schedule.from_result(result).steps == [10, 20]
    assert len({result.config["lr"] for result in after}) == 2


def readme(storage: Path) -> str:
    """Every Python block of the README, in order; only the sizes of the searches are cut."""
    blocks = re.findall(r"```python\n(.*?)```", (REPO / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 3
    source = "\n".join(blocks)
    for pattern, replacement in [
        (r"num_samples=\d+", "num_samples=2"),
        (r'"training_iteration": \d+', '"training_iteration": 2'),
        (r"range\(20\)", "range(2)"),
    ]:
        assert re.search(pattern, source)
        source = re.sub(pattern, replacement, source)
    return source.replace("tune.RunConfig(", f"tune.RunConfig(verbose=0, storage_path={str(storage)!r}, ")


@pytest.mark.usefixtures("ray_session")
def test_the_readme_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    """In one namespace."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "readme"}
    exec(compile(readme(tmp_path), "README.md", "exec"), namespace)
    assert namespace["schedule"].at(step=10)["dropout"] > 0
    assert "Kaplan-Meier" in capsys.readouterr().out
    x = torch.rand(4, 64)
    assert torch.equal(namespace["plain"].eval()(x), namespace["trial"].model.eval()(x))
    assert len((REPO / "README.md").read_text().splitlines()) < 160


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readme_runs_with_the_wheel_in_an_empty_environment(tmp_path):
    """With nothing but what the README says to install: the wheel and scikit-learn, whose digits it trains on."""
    there = installed(tmp_path, "scikit-learn")
    script = tmp_path / "readme.py"
    script.write_text(readme(tmp_path / "ray_results"), encoding="utf-8")
    assert "Kaplan-Meier" in there.run("python", str(script), cwd=tmp_path).stdout
    for absent in ("optuna", "lightning", "hatchling", "benchmarks"):
        done = there.run("python", "-c", f"import {absent}", cwd=tmp_path, check=False)
        assert "ModuleNotFoundError" in done.stderr, f"{absent}: the environment was not empty"
