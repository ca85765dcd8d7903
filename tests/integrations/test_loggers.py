"""hp/* and scale/* in W&B and MLflow, offline: loggers of Lightning, report_to of Transformers, callbacks of Tune."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ray import tune

import stn_tune as stn
from tests.digits_task import CONFIG, ONLINE, Digits
from tests.integrations import test_huggingface as transformers_tests
from tests.integrations import test_lightning as lightning_tests

NEEDED = "not in the dev extra, as it is large: pip install -c constraints.txt wandb mlflow-skinny"

pytestmark = [
    *lightning_tests.pytestmark,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of wandb and mlflow themselves
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def wandb(monkeypatch, tmp_path):
    """The package, which writes files below ``tmp_path`` and calls nobody."""
    package = pytest.importorskip("wandb", reason=NEEDED)
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    yield package
    package.teardown()  # the next test has another folder


@pytest.fixture
def mlflow(monkeypatch, tmp_path):
    """The package, with a store of files."""
    package = pytest.importorskip("mlflow", reason=NEEDED)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path}/mlruns")
    package.set_tracking_uri(f"file:{tmp_path}/mlruns")
    yield package
    while package.active_run():
        package.end_run()


def wandb_rows(folder: Path) -> list[dict[str, Any]]:
    """Every row that an offline run has logged, as W&B's own reader finds them."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[import-not-found, attr-defined, unused-ignore]
    from wandb.sdk.internal.datastore import DataStore  # type: ignore[import-not-found, unused-ignore]

    (path,) = folder.rglob("*.wandb")
    store, rows = DataStore(), []
    store.open_for_scan(str(path))
    while (data := store.scan_data()) is not None:
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows


def mlflow_history(folder: Path, metric: str) -> dict[int, float]:
    """Value by step, from MLflow's files: time, value and step in each line."""
    (path,) = folder.glob(f"mlruns/*/*/metrics/{metric}")
    lines = [line.split() for line in path.read_text().splitlines()]
    return {int(step): float(value) for _, value, step, *_ in lines}


def schedules(tuner: stn.SelfTuner, name: str) -> tuple[dict[int, float], dict[int, float]]:
    """Values and scales by step, without the initial ones."""
    found = tuner.schedule
    assert found.scales is not None
    values, scales = (list(zip(found.steps, by[name], strict=True))[1:] for by in (found.values, found.scales))
    return dict(values), dict(scales)


class TestLightning:
    def test_wandb(self, wandb, tmp_path):
        from lightning.pytorch.loggers import WandbLogger

        module, callback = lightning_tests.made()
        logger = WandbLogger(save_dir=tmp_path, offline=True)
        lightning_tests.fit(module, callback, logger=logger, log_every_n_steps=4)
        wandb.finish()
        rows = [row for row in wandb_rows(tmp_path) if "hp/net_3" in row]
        values, scales = schedules(callback.tuner, "net_3")
        assert {row["trainer/global_step"]: row["hp/net_3"] for row in rows} == pytest.approx(values)
        assert {row["trainer/global_step"]: row["scale/net_3"] for row in rows} == pytest.approx(scales)

    def test_mlflow(self, mlflow, tmp_path):
        from lightning.pytorch.loggers import MLFlowLogger

        module, callback = lightning_tests.made()
        logger = MLFlowLogger(tracking_uri=f"file:{tmp_path}/mlruns")
        lightning_tests.fit(module, callback, logger=logger, log_every_n_steps=4)
        values, scales = schedules(callback.tuner, "net_3")
        assert mlflow_history(tmp_path, "hp/net_3") == pytest.approx(values)
        assert mlflow_history(tmp_path, "scale/net_3") == pytest.approx(scales)


class TestTransformers:
    def test_wandb(self, wandb, tmp_path):
        trainer = transformers_tests.make(tmp_path, args={"report_to": ["wandb"]})
        trainer.train()
        wandb.finish()
        rows = [row for row in wandb_rows(tmp_path) if "train/hp/dropout" in row]
        values, scales = schedules(trainer.tuner, "dropout")
        assert {row["train/global_step"]: row["train/hp/dropout"] for row in rows} == pytest.approx(values)
        assert {row["train/global_step"]: row["train/scale/dropout"] for row in rows} == pytest.approx(scales)

    def test_mlflow(self, mlflow, tmp_path):
        trainer = transformers_tests.make(tmp_path, args={"report_to": ["mlflow"]})
        trainer.train()
        mlflow.flush_async_logging()
        values, scales = schedules(trainer.tuner, "dropout")
        assert mlflow_history(tmp_path, "hp/dropout") == pytest.approx(values)
        assert mlflow_history(tmp_path, "scale/dropout") == pytest.approx(scales)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_callbacks_of_tune(wandb, mlflow, tmp_path):
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.air.integrations.wandb import WandbLoggerCallback

    callbacks = [
        WandbLoggerCallback(project="stn", dir=str(tmp_path), mode="offline"),
        MLflowLoggerCallback(tracking_uri=f"file:{tmp_path}/mlruns", experiment_name="stn"),
    ]
    result = tune.Tuner(
        stn.STNTrainable.of(Digits, space=ONLINE),
        param_space=CONFIG,
        run_config=tune.RunConfig(
            storage_path=str(tmp_path / "tune"), stop={"training_iteration": 2}, verbose=0, callbacks=callbacks
        ),
    ).fit()[0]
    reported = {row["training_iteration"]: row for row in result.metrics_dataframe.to_dict("records")}
    assert list(reported) == [1, 2]
    rows = {row["training_iteration"]: row for row in wandb_rows(tmp_path)}
    for key in ("step", "hp/dropout", "scale/dropout"):
        expected = {iteration: float(row[key]) for iteration, row in reported.items()}
        assert {iteration: row[key] for iteration, row in rows.items()} == pytest.approx(expected)
        assert mlflow_history(tmp_path, key) == pytest.approx(expected)
