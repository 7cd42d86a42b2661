"""Several learners: they learn what one would, and one that dies takes nothing with it."""

import multiprocessing
import os
import signal
import threading

import msgspec
import numpy as np
import psutil
import pytest
import toys
from two_learners import learn_together, learned

from ganger.errors import ConfigError, TrainingError
from ganger.training import loop, team
from ganger.training.actor import Actor
from ganger.training.exchange import Header, Parameters
from ganger.training.exchange.packing import pack
from ganger.training.group import agreed, meeting_place
from ganger.training.run_directory import RunDirectory


def settings(**given):
    return toys.config(**({"actors": 2, "learners": 2, "executors": 3} | given))


def of_actors(config):
    """A trajectory of each actor, packed so that it can go to another process."""
    vector = toys.learner(config).policy.vector()
    return [
        pack(Header(k, 0, 0, 0), Actor(config, toys.table(), k).act(Parameters(vector, 0)))
        for k in range(config.actors)
    ]


@pytest.mark.parametrize("messages", [False, True])
def test_two_learners_of_half_the_batch_each_learn_what_one_does_from_all_of_it(tmp_path, messages):
    base = settings(messages=messages)
    learning = msgspec.structs.replace(base.learning, minibatch=32)
    config = msgspec.structs.replace(base, learning=learning)
    trajectories = of_actors(config)
    context = multiprocessing.get_context("spawn")
    store, address = meeting_place(tmp_path, "", 2)
    ends = []
    for rank in range(2):
        mine, its = context.Pipe()
        process = context.Process(target=learn_together, args=(its,))
        process.start()
        its.close()
        mine.send((config, trajectories[rank], rank, address))
        ends.append((process, mine))
    states = [mine.recv() for _, mine in ends]
    for process, _ in ends:
        process.join()
    del store
    (first, first_metrics), (second, second_metrics) = states
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    twice = msgspec.structs.replace(learning, minibatch=64)
    alone = toys.learner(msgspec.structs.replace(config, learning=twice))
    before = alone.state()
    whole, metrics = learned(alone, trajectories)
    assert np.abs(whole["policy"] - before["policy"]).max() > 1e-3, "it learned something"
    # Where gradients are next to nothing, Adam divides rounding errors by rounding errors.
    told = np.sqrt(whole["adam_moments"][1]) > 1e-5
    size = len(whole["policy"])
    assert told[:size].mean() > 0.03
    for name, array in whole.items():
        which = {"policy": told[:size], "critic": told[size:]}.get(name, ...)
        np.testing.assert_allclose(first[name][which], array[which], atol=1e-5, err_msg=name)
    for name in ("policy_loss", "value_loss", "entropy", "kl", "gradient_norm"):
        assert first_metrics[name] == second_metrics[name]
        assert first_metrics[name] == pytest.approx(metrics[name], abs=1e-5)


class Far:
    """A group in which another learner has something else."""

    rank, size = 0, 2

    def __init__(self, other):
        self._other = other

    def largest(self, array):
        both = np.array([self._other.view(np.uint32).sum(dtype=np.uint64) % 2**31, 0.0])
        array[0], array[2] = max(array[0], both[0]), max(array[2], -both[0])


def test_learners_that_drifted_apart_are_found_out():
    vector = np.arange(5, dtype=np.float32)
    other = vector.copy()
    assert agreed(Far(other), vector)
    other[3] = np.nextafter(other[3], np.float32(9))
    assert not agreed(Far(other), vector)


def children():
    return {p for p in psutil.Process().children(recursive=True) if "spawn_main" in command(p)}


def command(process):
    return " ".join(process.cmdline())


def run_of(tmp_path, **given):
    return settings(workload=toys.write_toy_workload(tmp_path / "toy.jobs.jsonl"), **given)


def test_a_run_goes_on_when_a_learner_is_killed_and_nothing_is_left(tmp_path):
    config = run_of(tmp_path, minutes=2.0)
    stop, killed, seen = threading.Event(), [], []

    def progress(metrics):
        seen.append(metrics)
        if len(seen) == 5:
            for process in children():
                killed.append(process.pid)
                os.kill(process.pid, signal.SIGKILL)
        if len(seen) == 12:
            stop.set()

    before = children()
    outcome = loop.train(config, tmp_path / "run", progress=progress, stop=stop)
    assert len(killed) == 1
    assert outcome.reason == "stopped"
    assert seen[3]["learner_restarts"] == 0
    assert seen[-1]["learner_restarts"] == 1
    records = [r for r in RunDirectory.open(tmp_path / "run").metrics() if "kl" in r]
    assert [r["step"] for r in records] == list(range(1, outcome.updates + 1))
    assert outcome.decisions == outcome.updates * config.environments * config.steps
    assert children() == before
    checkpoint = RunDirectory.open(tmp_path / "run").latest_checkpoint()
    assert checkpoint.metadata["generation"] >= 1, "the new one's actors have new streams"
    again = loop.train(
        msgspec.structs.replace(config, updates=outcome.updates + 2),
        tmp_path / "run",
        resume=True,
    )
    assert again.updates == outcome.updates + 2


class Dead(team.Peer):
    """A learner that never comes up."""

    pid = None

    def why_dead(self):
        return "Traceback (most recent call last):\nZeroDivisionError: this learner is broken"

    def kill(self):
        pass


def test_learners_that_never_come_up_end_the_run_with_their_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(team, "_start_process", lambda start: Dead())
    with pytest.raises(TrainingError, match=r"died 5 times(.|\n)*this learner is broken"):
        loop.train(run_of(tmp_path), tmp_path / "run")
    assert "broken" in RunDirectory.open(tmp_path / "run").stop_reason


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"actors": 3}, "3 actors cannot be shared out evenly among 2 learners"),
        ({"sync": True, "updates": 3}, "one learner"),
        ({"device": "tpu"}, "device is 'tpu'; there are cpu, cuda"),
        ({"learners": 0}, "learners is 0"),
    ],
)
def test_settings_that_cannot_be(given, message):
    with pytest.raises(ConfigError, match=message):
        settings(**given)
