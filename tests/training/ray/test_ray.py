"""Training on a real Ray: the same learner, processes that die, and a node that does."""

import hashlib
import os
import signal
import time
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest
import toys
from ray_processes import SOON_S, Family, eventually, short_temporary_directory

from ganger.errors import TrainingError
from ganger.policy.layout import vector_size
from ganger.training import engines, loop
from ganger.training.exchange import Header, Parameters
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.run_directory import RunDirectory

ray = pytest.importorskip("ray", reason="needs ganger[ray]")


from ganger.training.exchange import ray as on_ray  # noqa: E402  # needs Ray
from ganger.training.exchange.packing import pack, unpack  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    # Ray's own: sockets and files that its processes leave to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]


def vector():
    return np.zeros(vector_size(False), np.float32)


@pytest.fixture(scope="module")
def local_ray():
    config = toys.config(engine="ray", actors=2)
    family = Family()
    with short_temporary_directory():
        with on_ray.cluster(config):
            yield config
            family.look()
        assert eventually(family.is_gone), family.left()


@contextmanager
def exchange(config, process=on_ray.ActingProcess):
    opened = on_ray.RayExchange(config, toys.table(), ParameterStore(vector()), 0, process)
    try:
        yield opened
    finally:
        opened.close()


def take(opened, count):
    taken = []
    deadline = time.monotonic() + SOON_S
    while len(taken) < count:
        assert time.monotonic() < deadline, "no trajectories came"
        taken += opened.get(count - len(taken), timeout_s=1.0)
    return taken


def fingerprint(run):
    tensors = RunDirectory.open(run).latest_checkpoint().tensors
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in tensors.items()}


def test_one_recorded_stream_teaches_the_same_through_threads_and_through_ray(
    local_ray, tmp_path, monkeypatch
):
    actor = toys.actor()
    stream = [
        pack(Header(0, 0, k, 0), actor.act(Parameters(ParameterStore(vector()).newest().vector, 0)))
        for k in range(4)
    ]

    class Player(on_ray.ActingProcess):
        """Gives what was recorded, again from the start when it is through."""

        def act(self, thread, sequence, version, parameters):
            return stream[sequence % len(stream)]

    @contextmanager
    def threads(config, table, store, actors, generation, places):
        queue = TrajectoryQueue(8, store)
        for packed in stream:
            queue.put(unpack(*packed))
        yield queue

    @contextmanager
    def processes(config, table, store, actors, generation, places):
        opened = on_ray.RayExchange(config, table, store, generation, Player)
        try:
            yield opened
        finally:
            opened.close()

    workload = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    config = toys.config(workload=workload, minutes=None, updates=4)
    for name, made in (("threads", threads), ("ray", processes)):
        monkeypatch.setattr(engines, "acting", made)
        assert loop.train(config, tmp_path / name).updates == 4
    assert fingerprint(tmp_path / "threads") == fingerprint(tmp_path / "ray")
    learned = RunDirectory.open(tmp_path / "ray").latest_checkpoint().tensors["policy"]
    monkeypatch.setattr(engines, "acting", threads)
    stream.reverse()
    loop.train(config, tmp_path / "other")
    other = RunDirectory.open(tmp_path / "other").latest_checkpoint().tensors["policy"]
    assert not np.array_equal(learned, other), "another stream teaches something else"


def test_a_killed_process_comes_back_with_streams_of_its_own_and_the_other_goes_on(local_ray):
    with exchange(local_ray) as opened:
        take(opened, 6)
        assert eventually(lambda: len(opened.processes()) == 2)
        processes = opened.processes()
        assert not any(process.torch for process in processes.values())
        assert all(0 < process.memory_mb < 250 for process in processes.values())
        before = {}
        while len(before) < 2:
            before |= {t.header.actor: t for t in take(opened, 1)}
        os.kill(processes[0].pid, signal.SIGKILL)
        seen = []
        while not any(t.header.actor == 0 and t.header.generation == 1 for t in seen):
            seen += take(opened, 1)
        assert opened.counts()["actor_restarts"] == 1
        assert opened.processes()[0].pid != processes[0].pid
        assert opened.processes()[1].pid == processes[1].pid
        assert {t.header.generation for t in seen if t.header.actor == 1} <= {0}
        assert {t.header.actor for t in seen} == {0, 1}, "the other one went on meanwhile"
        anew = next(t for t in seen if t.header.generation == 1)
        assert anew.header.sequence == 0
        costs = [t.payload.samples.decisions.cost for t in (before[0], anew)]
        assert not np.array_equal(*costs)


def test_two_threads_of_a_process_act_side_by_side_each_in_the_order_it_was_asked(local_ray):
    config = msgspec.structs.replace(local_ray, actors=1, threads_per_actor=2)
    with exchange(config) as opened:
        taken = take(opened, 60)
        assert len(opened.processes()) == 1
        assert opened.counts()["actor_restarts"] == 0
    for actor in (0, 1):
        sequences = [t.header.sequence for t in taken if t.header.actor == actor]
        assert sequences == list(range(len(sequences)))
        assert len(sequences) > 5
    costs = [next(t for t in taken if t.header.actor == k).payload.samples for k in (0, 1)]
    assert not np.array_equal(costs[0].decisions.cost, costs[1].decisions.cost)


def test_a_damaged_trajectory_is_dropped_and_counted_and_its_process_replaced(local_ray):
    class Damaging(on_ray.ActingProcess):
        def act(self, thread, sequence, version, parameters):
            header, buffer = on_ray.ActingProcess.act(self, thread, sequence, version, parameters)
            if header.header[:3] == (0, 0, 1):
                buffer[1000] ^= 1
            return header, buffer

    with exchange(local_ray, Damaging) as opened:
        taken = []
        while not any(t.header.generation for t in taken):
            taken += take(opened, 1)
        assert opened.counts()["dropped_damaged"] == opened.counts()["actor_restarts"] == 1
        assert (0, 0, 1) not in {t.header[:3] for t in taken}


def test_what_is_older_than_the_bound_is_counted_and_not_learned_from(local_ray):
    with exchange(local_ray) as opened:
        assert eventually(lambda: opened.depth >= 2)
        opened._store.publish(vector(), on_ray.LAG_BOUND + 1)
        taken = take(opened, 4)
        assert opened.counts()["dropped_old"] >= 2
        assert {t.header.policy_version for t in taken} == {on_ray.LAG_BOUND + 1}


def test_a_process_that_always_dies_ends_the_run_with_the_real_traceback(local_ray):
    class Broken(on_ray.ActingProcess):
        def act(self, thread, sequence, version, parameters):
            raise ZeroDivisionError("the actor is broken")

    with (
        exchange(local_ray, Broken) as opened,
        pytest.raises(TrainingError, match=r"died 5 times in 120 s") as raised,
    ):
        take(opened, 1)
    assert 'raise ZeroDivisionError("the actor is broken")' in str(raised.value)
