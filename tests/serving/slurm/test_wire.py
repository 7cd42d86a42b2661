"""What the commands print, in the words of several versions, and what they do when they fail."""

import json
import os
import stat

import pytest

from ganger.errors import ConfigError
from ganger.serving.slurm.client import Client, SlurmError
from ganger.serving.slurm.wire import WireError, read_jobs, read_nodes, task_numbers

OLD = {
    "job_id": 1, "array_job_id": 1, "array_task_id": None, "array_task_string": "3-7%3",
    "array_max_tasks": 3, "job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0,
    "dependency": "afterok:7_*(unfulfilled),afterany:9(unfulfilled),singleton(unfulfilled)",
    "comment": "ganger", "user_name": "ann", "name": "fit", "partition": "toy,other", "cpus": 2,
    "time_limit": 5, "submit_time": 100, "start_time": 0, "end_time": 0, "eligible_time": 0,
    "het_job_id": 0,
}  # fmt: skip


def amount(number, *, infinite=False):
    return {"set": number is not None, "infinite": infinite, "number": number or 0}


NEW = OLD | {
    "array_job_id": amount(1), "array_task_id": amount(None), "array_max_tasks": amount(3),
    "job_state": ["PENDING"], "priority": amount(0), "cpus": amount(2), "time_limit": amount(5),
    "submit_time": amount(100), "start_time": amount(0), "end_time": amount(0),
    "eligible_time": amount(0), "het_job_id": amount(0), "hold": True,
}  # fmt: skip


def one(job):
    (row,) = read_jobs(json.dumps({"meta": {}, "errors": [], "jobs": [job]}).encode())
    return row


@pytest.mark.parametrize("job", [OLD, NEW], ids=["22.05", "23.11"])
def test_an_array_that_waits(job):
    row = one(job)
    assert row == one(OLD)
    assert (row.id, row.array, row.is_array, row.tasks) == (1, 1, True, {3, 4, 5, 6, 7})
    assert row.held and row.phase == "waiting" and row.throttle == 3
    assert row.after == {7, 9} and row.partitions == ("toy", "other")
    assert row.limit_s == 300 and row.cpus == 2


@pytest.mark.parametrize("no_limit", [None, amount(None, infinite=True), 0])
def test_no_time_limit(no_limit):
    assert one(OLD | {"time_limit": no_limit}).limit_s is None


def test_a_task_of_an_array_and_a_single_job():
    task = one(OLD | {"job_id": 4, "array_task_id": 0, "job_state": "RUNNING"})
    assert (task.id, task.array, task.tasks, task.phase) == (4, 1, {0}, "running")
    assert one(NEW | {"array_task_id": amount(0) | {"set": True}}).tasks == {0}
    single = one(OLD | {"array_job_id": 0, "array_task_string": ""})
    assert (single.array, single.is_array, single.tasks) == (1, False, {0})


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("RUNNING", "running"), ("COMPLETING", "running"), (["COMPLETED", "COMPLETING"], "running"),
        ("SUSPENDED", "running"), (["COMPLETED"], "over"), ("CANCELLED", "over"),
        ("NODE_FAIL", "over"), (["PENDING", "REQUEUED"], "waiting"), ("REQUEUE_HOLD", "waiting"),
        ("SPECIAL_EXIT", "waiting"), ("CONFIGURING", "running"),
    ],
)  # fmt: skip
def test_states(state, phase):
    assert one(OLD | {"job_state": state}).phase == phase


def test_only_tasks_that_ended_well_tell_durations():
    assert one(OLD | {"job_state": "COMPLETED"}).completed
    assert one(OLD | {"job_state": "TIMEOUT"}).completed
    assert not one(OLD | {"job_state": "CANCELLED"}).completed


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-3", {0, 1, 2, 3}), ("1,3,5-9:2%4", {1, 3, 5, 7, 9}), ("[4-5]", {4, 5}), ("7", {7}),
        ("", set()), ("1-2,...", {1, 2}),
    ],
)  # fmt: skip
def test_numbers_of_tasks(text, numbers):
    assert task_numbers(text) == numbers


def test_nodes():
    old = {"name": "n0", "partitions": ["toy"], "state": "mixed", "state_flags": [], "cpus": 4,
           "alloc_cpus": 3, "idle_cpus": 1}  # fmt: skip
    new = {"name": "n0", "partitions": ["toy"], "state": ["MIXED"], "cpus": 4, "alloc_cpus": 3,
           "alloc_idle_cpus": 1, "effective_cpus": 4}  # fmt: skip
    nodes = read_nodes(json.dumps({"nodes": [old, new]}).encode())
    assert nodes[0] == nodes[1] and nodes[0].usable and nodes[0].idle_cpus == 1
    for gone in (
        old | {"state_flags": ["NOT_RESPONDING"]},
        old | {"state": "down"},
        new | {"state": ["IDLE", "DRAIN"]},
        old | {"state": "idle*"} | {"state_flags": ["DRAIN"]},
    ):
        (node,) = read_nodes(json.dumps({"nodes": [gone]}).encode())
        assert not node.usable


def test_an_error_with_exit_status_0_is_not_an_empty_cluster():
    text = b'{"errors":[{"description":"Failed while looking for jobs","error":"x"}],"jobs":[]}'
    with pytest.raises(WireError, match="Failed while looking for jobs"):
        read_jobs(text)
    with pytest.raises(WireError, match="cannot be read"):
        read_jobs(b"slurm_load_jobs error: Unable to contact slurm controller")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Programs on the path that answer as they are told."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def make(**scripts):
        for name, script in scripts.items():
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return Client("toy", timeout_s=1.0)

    return make


def test_no_slurm_here(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ConfigError, match="squeue is not installed here"):
        Client("toy").jobs()
    with pytest.raises(ConfigError, match="is not installed here"):
        Client("toy").nodes()


def test_a_slurm_too_old_for_json(commands):
    client = commands(squeue="echo \"squeue: unrecognized option '--json'\" >&2; exit 1")
    with pytest.raises(ConfigError, match=r"prints no JSON; version 21.08"):
        client.jobs()


def test_a_command_that_hangs_fails_or_prints_nonsense(commands):
    with pytest.raises(SlurmError, match="no answer within 1 s"):
        commands(squeue="exec sleep 30").jobs()
    with pytest.raises(SlurmError, match="Unable to contact"):
        commands(squeue="echo Unable to contact >&2; exit 1").jobs()
    with pytest.raises(SlurmError, match="cannot be read"):
        commands(squeue="echo hello").jobs()


def test_nodes_come_from_whichever_command_knows(commands):
    nodes = json.dumps({"nodes": [{"name": "n0", "partitions": ["toy"], "cpus": 4}]})
    new = commands(scontrol=f"echo '{nodes}'", sinfo="exit 3")
    assert len(new.nodes()) == 1
    old = commands(
        scontrol="echo \"scontrol: unrecognized option '--json'\" >&2; exit 1",
        sinfo=f"echo '{nodes}'",
    )
    assert len(old.nodes()) == 1 and len(old.nodes()) == 1


def test_of_an_array_the_tasks_that_have_ended_need_no_change(commands):
    some = "echo '1_0-5: Job has already finished' >&2; echo '1_6-9: No error' >&2; exit 1"
    commands(scontrol=some).scontrol("uhold", "1")
    with pytest.raises(SlurmError, match="already finished"):
        commands(scontrol="echo '1_0-9: Job has already finished' >&2; exit 1").scontrol(
            "uhold", "1"
        )
    denied = "echo '1_0-5: Access/permission denied' >&2; echo '1_6: No error' >&2; exit 1"
    with pytest.raises(SlurmError, match="denied"):
        commands(scontrol=denied).scontrol("uhold", "1")
