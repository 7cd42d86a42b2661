"""The policies that come with Ganger: they load, they are small, they are better than fair."""

import os

import pytest

import ganger
from ganger.cli import main
from ganger.errors import SchedulerError
from ganger.policy.checkpoint import PRETRAINED, load_policy, read_policy
from ganger.policy.scheduler import PolicyScheduler


@pytest.mark.parametrize("name", PRETRAINED)
def test_a_pretrained_policy_loads_by_its_name_and_is_small(name):
    policy = read_policy(name)
    assert policy.path == PRETRAINED[name]
    files = list(PRETRAINED[name].iterdir())
    assert sum(file.stat().st_size for file in files) < 1_000_000


@pytest.mark.parametrize(("executors", "bar"), [(10, 0.8), (50, 0.9), (100, 0.9)])
def test_the_general_policy_is_better_than_fair_on_unseen_synthetic_jobs(executors, bar):
    (row,) = ganger.evaluate(
        ganger.load_source("synthetic:seed=77"),
        [ganger.load_scheduler("general")],
        executors=executors,
        jobs=30,
        interarrival_s=25.0,
        episodes=10,
        seed=5,
    )
    assert row.ratio < bar


def test_a_path_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(load_policy("general"), PolicyScheduler)
    (tmp_path / "general").mkdir()
    with pytest.raises(ganger.GangerError, match="neither a run directory nor a checkpoint"):
        load_policy("general")


def test_any_scheduler_is_loaded_by_its_name():
    assert str(ganger.load_scheduler("srpt:cap=sqrt,c=1")) == "srpt:cap=sqrt,c=1"
    assert str(ganger.load_scheduler("general")) == "learned:argmax"
    assert str(ganger.load_scheduler("general", sample=True)) == "learned:sampled"
    assert str(ganger.load_scheduler("general", plan=True)) == "learned:plan"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nonsense", {}, "there are fifo, .*, general and the paths of training runs"),
        ("fair", {"plan": True}, "only learned schedulers sample or plan"),
        ("general", {"plan": True, "sample": True}, "it does not sample"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_what_there_is(name, settings, message):
    with pytest.raises(SchedulerError, match=message):
        ganger.load_scheduler(name, **settings)


def test_a_path_that_is_not_there_is_a_missing_run_not_an_unknown_name():
    with pytest.raises(ganger.GangerError, match="no such run directory"):
        ganger.load_scheduler(f"runs{os.sep}absent")


def test_it_is_compared_on_a_log_by_the_logs_own_arrivals(tmp_path, capsys):
    stages = ganger.Stage(id="x", task_count=3, durations=ganger.Pool((2.0,)))
    jobs = tuple(ganger.Job(id=str(j), arrival_s=j, stages=(stages,)) for j in range(6))
    ganger.write_workload(tmp_path / "log.jobs.jsonl", ganger.Workload(jobs))
    log = ["--workload", str(tmp_path / "log.jobs.jsonl"), "--jobs", "3"]
    assert main(["evaluate", "general", *log, "--executors", "4", "--part", "all"]) == 0
    assert "which arrive as they did" in capsys.readouterr().out
    assert main(["evaluate", "general", "--executors", "4"]) == 2
    assert "say which with --interarrival" in capsys.readouterr().err
    assert main(["evaluate", "general", *log]) == 2
    assert "say which with --executors" in capsys.readouterr().err
