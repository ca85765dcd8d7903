"""The run record: JSON in and out, and errors that name file and field."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stn_tune.errors import RecordError
from stn_tune.record import (
    ExperimentInfo,
    HyperparameterInfo,
    Invocation,
    LogHeader,
    MethodInfo,
    Published,
    RunRecord,
    Style,
    TaskInfo,
    TrialInfo,
    label_of,
)
from tests.analysis import logs

TEXT = st.text(max_size=8)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | st.integers() | NUMBER | TEXT
NAMES = st.lists(TEXT, max_size=3).map(tuple)
OBJECTS = st.dictionaries(TEXT, PLAIN, max_size=3)
EXPERIMENTS = st.builds(
    ExperimentInfo,
    method=TEXT,
    seed=st.integers(0, 2**32),
    variant=st.dictionaries(TEXT, TEXT | NUMBER | st.booleans(), max_size=3),
    compared=st.booleans(),
    online=NAMES,
    tuned=NAMES,
    overrides=NAMES,
    trials=st.lists(st.builds(TrialInfo, st.integers(0, 9), TEXT, TEXT, OBJECTS, st.integers(0, 9)), max_size=2).map(
        tuple
    ),
    machine=OBJECTS,
    versions=st.dictionaries(TEXT, TEXT, max_size=2),
)
METHODS = st.builds(
    MethodInfo, TEXT, TEXT, TEXT, st.none() | TEXT, st.booleans(), st.none() | st.builds(Style, TEXT, TEXT)
)
HYPERPARAMETERS = st.builds(
    HyperparameterInfo, TEXT, st.sampled_from(["rate", "count", "coefficient"]), OBJECTS, st.none() | NUMBER, TEXT
)
TASKS = st.builds(
    TaskInfo,
    TEXT,
    TEXT,
    TEXT,
    st.sampled_from(["min", "max"]),
    TEXT,
    st.dictionaries(TEXT, HYPERPARAMETERS, max_size=2),
)
RECORDS = st.builds(
    RunRecord,
    name=TEXT,
    study=TEXT,
    task=TASKS,
    methods=st.lists(METHODS, max_size=2).map(tuple),
    experiments=st.lists(EXPERIMENTS, max_size=2).map(tuple),
    invocations=st.lists(st.builds(Invocation, TEXT, TEXT, st.none() | TEXT), max_size=2).map(tuple),
    settings=OBJECTS,
    budget_s=st.none() | NUMBER,
    clock=st.sampled_from(["cpu", "device", "worker"]),
    published=st.none()
    | st.builds(Published, TEXT, TEXT, st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, max_size=2), max_size=2)),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_went(record):
    text = json.dumps(record.to_json())
    assert RunRecord.parse(text.encode(), "record.json") == record
    assert copy.deepcopy(record) is record, "immutable, so shared"


@given(EXPERIMENTS)
def test_a_logs_header_comes_back_as_it_went(info):
    header = LogHeader(info, "ptb", "val_loss", "min", "small", 600.0, "device")
    data = json.loads(json.dumps(header.to_json()))
    assert data["format"] == "stn_tune.run"
    assert data["version"] == 2
    assert data["method"] == info.method, "the experiment's fields are among the others"
    assert LogHeader.from_json(data, "its first line") == header


def test_a_record_is_written_and_read(tmp_path):
    assert RunRecord.read(tmp_path) is None
    record = logs.write_record(tmp_path, [ExperimentInfo("stn", 0)])
    assert RunRecord.read(tmp_path) == record
    assert record.experiment("stn-0").method == "stn"
    with pytest.raises(RecordError, match="unknown experiment 'stn-1'; known: stn-0"):
        record.experiment("stn-1")
    assert record.method("mine") == MethodInfo("mine", "mine")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": {"name": "ptb"}}, "r.json: task: title is missing"),
        ({"task": 3}, "r.json: task is 3; it must be an object"),
        ({"experiments": [{"method": "stn", "seed": "0"}]}, 'r.json: experiments[0]: seed is "0"; it must be int'),
        ({"workers": True}, "r.json: workers is true; it must be int"),
        ({"methods": {}}, "r.json: methods is {}; it must be a list"),
        ({"budgets": 1}, "r.json: unknown field 'budgets'; known: name, study, "),
        ({"version": 1}, "r.json: version is 1; this release reads 2"),
    ],
)
def test_an_error_names_file_and_field(tmp_path, change, message):
    data = logs.write_record(tmp_path, []).to_json() | change
    with pytest.raises(RecordError) as caught:
        RunRecord.parse(json.dumps(data).encode(), "r.json")
    assert str(caught.value).startswith(message)


def test_labels():
    assert label_of("stn", {}) == "stn"
    assert label_of("stn", {"scale": 1.0, "tune_scale": False}) == "stn scale=1 tune_scale=false"
    assert ExperimentInfo("stn", 3, {"network": "a/b"}).name == "stn_network=a_b-3"
