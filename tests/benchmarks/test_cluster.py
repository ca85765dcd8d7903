"""The runner on real Ray nodes, one of which is lost; and the files that people start clusters with."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from pyarrow.fs import LocalFileSystem
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.tune import Checkpoint

from benchmarks.commands import build_parser
from benchmarks.runner.checkpoint_fallback import existing_checkpoint
from benchmarks.runner.log import unpack_log
from benchmarks.runner.store import Store
from benchmarks.tasks import problem
from stn_tune.raytune.internals import saved_result

REPO = Path(__file__).parents[2]
FILES = REPO / "benchmarks" / "cluster"
PATIENCE_S = 240
"""How long to wait for what takes seconds on an idle machine."""

pytestmark = pytest.mark.timeout(600)


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s for {what}"
        time.sleep(0.2)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in table.splitlines())}
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def drives(node: subprocess.Popen) -> bool:
    """Whether the driver of an experiment runs there, too: its loss is the harder case."""
    pids = ",".join(str(pid) for pid in family(node.pid))
    titles = subprocess.run(["ps", "-o", "args=", "-p", pids], capture_output=True, text=True, check=False).stdout
    return "ray::run_experiment" in titles


def kill(process: subprocess.Popen) -> None:
    if process.poll() is None:
        for pid in family(process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.wait()


class Nodes:
    """A head and two workers, one CPU each, as three ``ray start`` on this machine."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_health_check_period_ms": "1000",
        }
        self.port, self.dashboard_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen] = []
        self.workers: list[subprocess.Popen] = []
        self.budget_s = 0

    def bring_up(self) -> None:
        began = time.monotonic()
        dashboard = ("--dashboard-host=127.0.0.1", f"--dashboard-port={self.dashboard_port}")
        self.start("--head", f"--port={self.port}", *dashboard, f"--ray-client-server-port={free_port()}")
        # Enough for a process to start and to train, on a machine as busy as this one is.
        self.budget_s = 10 + round(2 * (time.monotonic() - began))
        self.workers = [self.start(f"--address={self.address}") for _ in range(2)]

    def start(self, *arguments: str) -> subprocess.Popen:
        """One node. Ray gives it 30 seconds to come up: on a busy machine it may need a second attempt."""
        command = ["ray", "start", *arguments, "--block", "--num-cpus=1", "--node-ip-address=127.0.0.1"]
        command += [f"--temp-dir={self.folder}", "--object-store-memory=100000000", "--disable-usage-stats"]
        command += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={free_port()}"]
        for _ in range(3):
            log = self.folder / f"start-{len(self.processes)}.log"
            with log.open("w") as output:
                node = self.run(*command, cwd=self.folder, stdout=output, stderr=output)
            while node.poll() is None and "Ray runtime started" not in log.read_text():
                time.sleep(0.2)
            if node.poll() is None:
                return node
        raise AssertionError(log.read_text()[-3000:])

    def run(self, *command: str, cwd: Path = REPO, **options: Any) -> subprocess.Popen:
        process = subprocess.Popen(command, cwd=cwd, env=self.environment, text=True, **options)
        self.processes.append(process)
        return process

    def output(self, *command: str, cwd: Path = REPO) -> tuple[int, str, str]:
        process = self.run(*command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, errors = process.communicate(timeout=2 * PATIENCE_S)
        return process.returncode, output, errors

    def stop(self) -> None:
        for process in reversed(self.processes):
            kill(process)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    cluster = Nodes(Path(tempfile.mkdtemp(prefix="ray")))
    try:
        cluster.bring_up()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


def check_complete(out: Path, names: set[str]) -> None:
    """Every experiment has its file, every trial was trained to its end, and all the time they took is counted.

    Of what was under way when a node was lost, a report may be made again, with the same outcome, or be missing.
    """
    record = Store(out).record()
    assert record is not None
    assert {e.name for e in record.experiments} == names
    assert {path.name for path in (out / "runs").iterdir()} == {f"{name}.jsonl.gz" for name in names}
    for name in names:
        head, rows = unpack_log(Store(out).read_log(name))
        assert f"{head['method']}-{head['seed']}" == name
        trials = [[row for row in rows if row["trial"] == number] for number in range(len(head["trials"]))]
        for trial in trials:
            outcomes = {(row["epoch"], row["val_loss"]) for row in trial}
            epochs = {epoch for epoch, _ in outcomes}
            assert len(epochs) == len(outcomes), name
            assert len(epochs) >= max(epochs) - 2, name
            assert trial[-1]["done"], name
        used = sum(max(row["trial_compute_s"] for row in trial) for trial in trials)
        assert rows[-1]["compute_s"] == pytest.approx(used, abs=0.01), name


@pytest.mark.slow
def test_ray_job_submit_runs_a_benchmark(nodes, tmp_path):
    budget = f"{nodes.budget_s}s"
    code, output, errors = nodes.output(
        *("ray", "job", "submit", "--address", f"http://127.0.0.1:{nodes.dashboard_port}", "--working-dir", "."),
        *("--runtime-env", "benchmarks/cluster/runtime_env.yaml", "--"),
        *("python", "-m", "benchmarks", "run", "digits", "--preset", "smoke", "--methods", "random", "--seeds", "1"),
        *("--budget", budget, "--address", "auto", "--storage", f"{tmp_path}/trials", "--out", f"{tmp_path}/out"),
    )
    assert code == 0, output[-3000:] + errors[-3000:]
    assert "random seed 0: finished" in output
    check_complete(tmp_path / "out", {"random-0"})
    (package,) = nodes.folder.glob("session_latest/runtime_resources/working_dir_files/_ray_pkg_*/")
    sent = {path.name for path in package.iterdir()}
    assert {"stn_tune", "baselines", "benchmarks"} <= sent
    assert not sent & {".git", ".venv", "results", "tests", ".mypy_cache"}


@pytest.mark.slow
def test_storage_that_nodes_do_not_share_is_one_line_and_code_2(nodes, tmp_path):
    """/proc/self/cwd: a folder that the command sees, and that is another one in every process elsewhere."""
    code, _, errors = nodes.output(
        *(sys.executable, "-m", "benchmarks", "run", "digits", "--preset", "smoke", "--address", nodes.address),
        *("--storage", "/proc/self/cwd/trials", "--out", "out"),
        cwd=copy_of_the_code(tmp_path),
    )
    assert code == 2, errors[-3000:]
    assert re.fullmatch(r"benchmarks: --storage \S+ is not shared: node [\d.]+ does not see it; .*\n", errors)
    assert not (tmp_path / "out").exists()


def copy_of_the_code(folder: Path) -> Path:
    for package in ("stn_tune", "baselines", "benchmarks"):
        shutil.copytree(REPO / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_trial_goes_on_from_the_next_checkpoint_if_tune_names_one_that_is_gone(tmp_path):
    (tmp_path / "checkpoint_000004").mkdir()
    (tmp_path / "checkpoint_000005").mkdir()
    for named, found, iteration in [(2, 4, 5), (4, 4, 3), (5, 5, 3), (6, 6, 3)]:
        checkpoint = Checkpoint(f"{tmp_path}/checkpoint_{named:06}", LocalFileSystem())
        result = existing_checkpoint(saved_result(checkpoint, {"training_iteration": 3}))
        assert result.checkpoint.path == f"{tmp_path}/checkpoint_{found:06}"
        assert result.metrics["training_iteration"] == iteration


@pytest.mark.slow
def test_a_lost_node_costs_no_experiment(nodes, tmp_path):
    """The preset exists in a copy of the code alone, so the nodes must have got theirs from the command."""
    code = copy_of_the_code(tmp_path / "code")
    with (code / "benchmarks" / "presets" / "digits.toml").open("a") as presets:
        presets.write('\n[copied]\nextends = "digits.smoke"\n')
    command = nodes.run(
        *(sys.executable, "-m", "benchmarks", "run", "digits", "--preset", "copied", "--methods", "stn", "random"),
        *("--seeds", "1", "--budget", f"{nodes.budget_s}s", "--address", nodes.address),
        *("--storage", f"{tmp_path}/trials", "--out", f"{tmp_path}/out"),
        cwd=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    def where_trials_are() -> set[int] | None:
        assert command.poll() is None, command.communicate()[0][-3000:]
        logs = [path.read_text().splitlines() for path in tmp_path.glob("trials/*/*/*/result.json")]
        pids = {json.loads(rows[-1])["pid"] for rows in logs if len(rows) >= 3}
        return pids if len(pids) == 2 else None

    trials = wait_for("a trial of either method that has trained", where_trials_are)
    kill(max(nodes.workers, key=lambda node: (drives(node), bool(trials & set(family(node.pid))))))
    output, _ = command.communicate(timeout=2 * PATIENCE_S)
    assert command.returncode == 0, output[-3000:]
    check_complete(tmp_path / "out", {"stn-0", "random-0"})
    _, rows = unpack_log(Store(tmp_path / "out").read_log("stn-0"))
    p = problem("digits", "smoke")
    undisturbed = p.self_tuned()(config={**p.initial, "seed": 0})
    losses = [undisturbed.train()["val_loss"] for _ in range(rows[-1]["training_iteration"])]
    for row in rows:
        assert row["val_loss"] == pytest.approx(losses[row["training_iteration"] - 1], rel=1e-6), "bit for bit the same"


@pytest.mark.parametrize("name", ["on-premise", "aws"])
def test_ray_accepts_the_files_of_ray_up(name):
    config = yaml.safe_load((FILES / f"{name}.yaml").read_text())
    prepared = prepare_config(config)
    validate_config(prepared)
    for local in config["file_mounts"].values():
        assert local == "~/.ray/auth_token" or (REPO / local).is_file()
    for command in prepared["head_start_ray_commands"] + prepared["worker_start_ray_commands"]:
        assert "ray start" not in command or "RAY_AUTH_MODE=token" in command
    with pytest.raises(Exception, match="Additional properties are not allowed"):
        validate_config({**prepared, "worker_count": 3})


def test_the_rayjob_runs_the_runner_and_mounts_what_it_writes_to():
    spec = yaml.safe_load((FILES / "rayjob.yaml").read_text())["spec"]
    python, m, package, *arguments = spec["entrypoint"].split()
    assert (python, m, package) == ("python", "-m", "benchmarks")
    options = build_parser().parse_args(arguments)
    assert options.resume
    assert options.address == "auto"
    cluster = spec["rayClusterSpec"]
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        (mount,) = container["volumeMounts"]
        assert mount["name"] == pod["volumes"][0]["name"]
        for folder in (options.storage, options.out):
            assert Path(folder).is_relative_to(mount["mountPath"])


def test_slurm_starts_one_cluster_and_one_run_on_it(tmp_path):
    """scontrol and srun are stand-ins: the one names three nodes, the other says what it was given."""
    for name, text in {"scontrol": "printf 'n1\\nn2\\nn3\\n'", "srun": 'printf "%s\\n" "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_NUM_NODES": "3", "SLURM_CPUS_ON_NODE": "16"}
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = subprocess.run(
        ["bash", str(FILES / "slurm.sh"), "digits", "--out", "a folder"],
        env={**os.environ, **job, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    start, run = given[: given.index("--")], given[given.index("--") + 1 :]
    assert start[start.index("ray") : start.index("--num-cpus=16")] == (
        ["ray", "symmetric-run", "--address", "n1:6379", "--min-nodes", "3"]
    )
    assert run == (
        ["python", "-m", "benchmarks", "run", "digits", "--out", "a folder", "--address", "n1:6379", "--resume"]
    )


def test_nodes_get_what_the_project_needs():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["bench"]
    lines = (FILES / "requirements.txt").read_text().splitlines()
    names = {re.match(r"[\w-]+", line).group() for line in lines if not line.startswith("#")}
    assert names == {re.match(r"[\w-]+", line).group() for line in wanted}
