"""`check_reader`: Ganger's own readers pass, and each kind of fault is caught by its check."""

import json
import math
from functools import partial

import numpy as np
import pytest

from ganger.errors import WorkloadError
from ganger.testing import ConformanceError, check_reader
from ganger.workload import (
    Job,
    Pool,
    Stage,
    Workload,
    job_list_workload,
    load_source,
    random_workload,
    read_jobs,
    read_workload,
    write_workload,
)
from ganger.workload.readers.tpch import read_profiles

WAVES = {
    "first_wave": {2: [4000, 5000], 5: [7000, 6000]},
    "fresh_durations": {2: [4000], 5: [7000]},
    "rest_wave": {2: [1000, 2000], 5: [2500]},
}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    """A directory with the profile of one TPC-H query."""
    folder = tmp_path_factory.mktemp("tpch") / "2g"
    folder.mkdir()
    np.save(folder / "adj_mat_1.npy", np.array([[0.0, 1.0], [0.0, 0.0]]))
    np.save(folder / "task_duration_1.npy", np.array({0: WAVES, 1: WAVES}), allow_pickle=True)
    return folder.parent


@pytest.mark.parametrize("name", ["x.jobs.jsonl", "x.jobs.jsonl.zst"])
@pytest.mark.parametrize("reader", [read_workload, read_jobs])
def test_the_native_readers_pass(tmp_path, name, reader):
    source = load_source("synthetic")
    write_workload(tmp_path / name, random_workload(source, jobs=4, interarrival_s=5.0, seed=0))
    check_reader(reader, tmp_path / name)


def test_the_reader_of_tpch_profiles_passes(profiles):
    check_reader(read_profiles, profiles)


def test_the_reader_of_job_lists_passes(tmp_path, profiles):
    path = tmp_path / "list.json"
    path.write_text('[[0.0, "2g", 1], [25489.9, "2g", 1]]')
    check_reader(partial(job_list_workload, load_source(f"tpch:{profiles}")), path)


# A small format of our own, [[arrival, task seconds], ...], and what may go wrong in reading it.


def _decode(path):
    try:
        rows = json.loads(path.read_text())
        return [(float(arrival_s), float(task_s)) for arrival_s, task_s in rows]
    except (OSError, ValueError, TypeError) as error:
        raise WorkloadError(f"{path}: {error}") from None


def _job(i, arrival_s, task_s, parents=(), **changes):
    stage = Stage(id="only", parents=parents, task_count=2, durations=Pool((task_s,)))
    return Job(**({"id": str(i), "arrival_s": arrival_s, "stages": (stage,)} | changes))


def _jobs(path, **changes):
    return [_job(i, *row, **changes) for i, row in enumerate(_decode(path))]


_calls = []


def _another_each_time(path):
    _calls.append(path)
    return _jobs(path)[: 1 + len(_calls) % 2]


def _says_no_place(path):
    try:
        return _jobs(path)
    except Exception:
        raise WorkloadError("something is wrong") from None


FAULTS = {
    "returns None": (lambda path: None, "reads"),
    "returns rows": (_decode, "reads"),
    "finds nothing": (lambda path: [], "reads"),
    "raises": (lambda path: [][0], "reads"),
    "last job first": (lambda path: _jobs(path)[::-1], "sorted"),
    "NaN": (lambda path: [_job(0, 0.0, math.nan)], "times"),
    "negative arrival": (lambda path: [_job(0, -1.0, 1.0)], "times"),
    "endless": (lambda path: [_job(0, 0.0, math.inf)], "times"),
    "unknown parent": (lambda path: _jobs(path, parents=("nobody",)), "DAG"),
    "waits for itself": (lambda path: _jobs(path, parents=("only",)), "DAG"),
    "no stages": (lambda path: _jobs(path, stages=()), "jobs"),
    "one id for all": (lambda path: _jobs(path, id="same"), "jobs"),
    "differs": (_another_each_time, "repeatable"),
    "traceback on damage": (
        lambda path: [_job(i, *row) for i, row in enumerate(json.loads(path.read_text()))],
        "broken input",
    ),
    "error without place": (_says_no_place, "broken input"),
    "takes damage for nothing": (lambda path: Workload((_job(0, 0.0, 1.0),)), "broken input"),
}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("[[0.0, 2.0], [1.5, 3.0], [4.0, 1.0]]")
    return path


def test_a_sound_reader_passes(rows):
    check_reader(_jobs, rows)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_check_and_named(rows, fault):
    reader, check = FAULTS[fault]
    with pytest.raises(ConformanceError) as caught:
        check_reader(reader, rows)
    assert caught.value.check == check
    assert rows.name in caught.value.on
    assert "to reproduce: reader(" in str(caught.value)
