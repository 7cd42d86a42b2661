"""Training on a real Ray: the same learner, processes that die, and a node that does."""

import hashlib
import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
import toys

from ganger.errors import ConfigError, TrainingError
from ganger.policy.layout import vector_size
from ganger.training import loop
from ganger.training.exchange import Header, Parameters
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.run_directory import RunDirectory

ray = pytest.importorskip("ray", reason="needs ganger[ray]")

from ray.cluster_utils import Cluster  # noqa: E402

from ganger.training.exchange import ray as on_ray  # noqa: E402  # needs Ray
from ganger.training.exchange.packing import pack, unpack  # noqa: E402

pytestmark = [
    pytest.mark.ray,
    # Ray's own: sockets and files that its processes leave to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]
SOON_S = 60.0


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


class Family:
    """All processes that this one started, and those that these did; dead ones are forgotten.

    Not by name: other tests may have a Ray of their own at the same time.
    """

    def __init__(self):
        self._before = set(psutil.Process().children(recursive=True))
        self._seen = set()

    def look(self):
        """Remember who is there: an orphan would not be found later."""
        self._seen |= set(psutil.Process().children(recursive=True)) - self._before

    def left(self):
        self.look()
        return [p for p in self._seen if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]

    def is_gone(self):
        with suppress(psutil.NoSuchProcess):
            return bool(self._seen) and not self.left()
        return False


@contextmanager
def short_temporary_directory():
    """Temporary files go to a new place while this lasts, and must be gone at the end.

    Ray's sockets need shorter names than in pytest's own.
    """
    before, tempfile.tempdir = tempfile.tempdir, None
    directory = tempfile.mkdtemp(prefix="ganger-test-")
    tempfile.tempdir = directory
    try:
        yield Path(directory)
        assert not list(Path(directory).iterdir())
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory, ignore_errors=True)


def eventually(condition):
    deadline = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


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


def test_an_address_where_nobody_answers_is_one_clear_line():
    config = toys.config(engine="ray", address="auto")
    with pytest.raises(ConfigError, match="no Ray cluster at auto"), on_ray.cluster(config):
        pass


def test_a_cluster_of_two_nodes_loses_one_and_training_finishes(tmp_path):
    family = Family()
    directory = tempfile.mkdtemp(prefix="ganger-ray-test-")
    node = {
        "num_cpus": 2,
        "object_store_memory": 2**27,
        "include_dashboard": False,
        "temp_dir": directory,
    }
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        del node["include_dashboard"]
        second = nodes.add_node(**node)
        second_id = second.node_id
        config = toys.config(
            workload=toys.write_toy_workload(tmp_path / "toy.jobs.jsonl"),
            engine="ray",
            address=nodes.address,
            actors=2,
            minutes=SOON_S / 60,
        )
        places, stop = [], threading.Event()
        original = on_ray.RayExchange._begin

        def begin(self, slot):
            original(self, slot)
            if slot.process is not None:
                places.append((slot.index, slot.generation, slot.process.node == second_id))

        killed_at = []

        def progress(metrics):
            if not killed_at and metrics["actors_acting"] == 2:
                family.look()
                nodes.remove_node(second, allow_graceful=False)
                killed_at.append(metrics["decisions"])
            elif killed_at and metrics["actors_acting"] == 2 and metrics["actor_restarts"]:
                stop.set()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(on_ray.RayExchange, "_begin", begin)
            outcome = loop.train(config, tmp_path / "run", progress=progress, stop=stop)
    finally:
        family.look()
        nodes.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    assert outcome.reason == "stopped"
    assert outcome.decisions > killed_at[0]
    lost = [index for index, generation, on_second in places if on_second and not generation]
    assert len(lost) == 1, "one process was on each node"
    anew = [place for place in places if place[1]]
    # Of generation 2 if Ray first placed it on the dead node again.
    assert [(index, on_second) for index, _, on_second in anew] == [(lost[0], False)]
    records = [r for r in RunDirectory.open(tmp_path / "run").metrics() if "kl" in r]
    assert [r["step"] for r in records] == list(range(1, outcome.updates + 1))
    assert all(r["dropped_damaged"] == 0 for r in records)
    assert not ray.is_initialized()
    assert eventually(family.is_gone), family.left()


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
    def threads(config, table, store, actors, generation):
        queue = TrajectoryQueue(8, store)
        for packed in stream:
            queue.put(unpack(*packed))
        yield queue

    @contextmanager
    def processes(config, table, store, actors, generation):
        opened = on_ray.RayExchange(config, table, store, generation, Player)
        try:
            yield opened
        finally:
            opened.close()

    workload = toys.write_toy_workload(tmp_path / "toy.jobs.jsonl")
    config = toys.config(workload=workload, minutes=None, updates=4)
    monkeypatch.setattr(loop, "_acting", lambda *_: nullcontext())
    for name, made in (("threads", threads), ("ray", processes)):
        monkeypatch.setattr(loop, "_exchange", made)
        assert loop.train(config, tmp_path / name).updates == 4
    assert fingerprint(tmp_path / "threads") == fingerprint(tmp_path / "ray")
    learned = RunDirectory.open(tmp_path / "ray").latest_checkpoint().tensors["policy"]
    monkeypatch.setattr(loop, "_exchange", threads)
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
        before = {t.header.actor: t for t in take(opened, 6)}
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
