"""The exchange between actor threads and the learner, with real threads.

Threads are joined with a timeout that only a deadlock reaches; nothing waits for time to pass
except where a wait itself is what is measured.
"""

import signal
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from ganger.errors import TrainingError
from ganger.training.exchange import Header, Trajectory
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue

DEADLOCK_S = 20.0


def trajectory(actor=0, sequence=0, payload=None):
    return Trajectory(Header(actor, 0, sequence, policy_version=0), payload)


@contextmanager
def running(*functions):
    """Threads that run while the block does, and must end with it."""
    threads = [threading.Thread(target=function, daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(DEADLOCK_S)
        assert not thread.is_alive(), "a thread did not end"


def eventually(condition):
    """Wait for what another thread is about to do."""
    deadline = time.monotonic() + DEADLOCK_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.001)


def producer(queue, actor, count=1_000_000):
    """Puts trajectories until there were `count`, or the run is over."""

    def run():
        for sequence in range(count):
            if not queue.put(trajectory(actor, sequence)):
                return

    return run


# --- parameters


def test_the_newest_parameters_come_back_as_published():
    store = ParameterStore(np.array([1, 2, 3], np.float32))
    assert store.newest().version == 0

    store.publish(np.array([4, 5, 6], np.float32), version=7)

    vector, version = store.newest()
    assert vector.tolist() == [4, 5, 6]
    assert version == 7


def test_published_parameters_are_a_copy_that_nobody_can_write_to():
    mine = np.zeros(1000, np.float32)
    store = ParameterStore(mine)
    mine[:] = 1

    theirs = store.newest().vector

    assert not theirs.any()
    with pytest.raises(ValueError, match="read-only"):
        theirs[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        theirs[10:].flags.writeable = True


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_published_parameters_are_contiguous_and_start_on_a_cache_line(size):
    strided = np.arange(2 * size, dtype=np.float32)[::2]

    vector = ParameterStore(strided).newest().vector

    assert vector.tolist() == strided.tolist()
    assert vector.flags.c_contiguous
    assert vector.ctypes.data % 64 == 0


def test_parameters_in_use_stay_as_they_were_when_newer_ones_arrive():
    store = ParameterStore(np.zeros(8, np.float32))
    in_use = store.newest().vector

    store.publish(np.ones(8, np.float32), version=1)

    assert not in_use.any()


def test_parameters_of_another_kind_length_or_older_version_are_refused():
    store = ParameterStore(np.zeros(3, np.float32), version=5)
    with pytest.raises(TypeError, match=r"float64\[3\]; expected float32\[n\]"):
        store.publish(np.zeros(3), version=6)
    with pytest.raises(TypeError, match=r"float32\[3, 1\]"):
        store.publish(np.zeros((3, 1), np.float32), version=6)
    with pytest.raises(TypeError, match="4 parameters; expected 3"):
        store.publish(np.zeros(4, np.float32), version=6)
    with pytest.raises(AssertionError, match="version 5 after 5"):
        store.publish(np.zeros(3, np.float32), version=5)
    assert store.newest().version == 5


def test_a_vector_and_its_version_always_belong_together():
    store = ParameterStore(np.zeros(64, np.float32))
    torn = []
    done = threading.Event()

    def reader():
        while not done.is_set():
            vector, version = store.newest()
            if not (vector == version).all():
                torn.append(version)

    with running(reader, reader):
        for version in range(1, 2000):
            store.publish(np.full(64, version, np.float32), version)
        done.set()

    assert not torn


def test_an_actor_may_wait_for_a_version():
    store = ParameterStore(np.zeros(1, np.float32))
    seen = []

    with running(lambda: seen.append(store.wait_for(2, actor=0))):
        eventually(lambda: 0 in store.waited_s())
        store.publish(np.ones(1, np.float32), version=1)
        store.publish(np.full(1, 2, np.float32), version=2)

    assert seen[0].version == 2
    assert seen[0].vector.tolist() == [2]


def test_a_version_that_is_there_already_is_not_waited_for():
    store = ParameterStore(np.zeros(1, np.float32), version=3)

    assert store.wait_for(2, actor=0).version == 3


def test_closing_wakes_those_that_wait_for_a_version():
    store = ParameterStore(np.zeros(1, np.float32))
    seen = []

    with running(lambda: seen.append(store.wait_for(1, actor=0))):
        eventually(lambda: 0 in store.waited_s())
        store.close()

    assert seen == [None]
    assert store.wait_for(0, actor=1) is None


# --- trajectories


def test_trajectories_arrive_in_order_and_by_reference():
    queue = TrajectoryQueue(8)
    payloads = [object() for _ in range(5)]
    for sequence, payload in enumerate(payloads):
        assert queue.put(trajectory(0, sequence, payload))

    first, second = queue.get(2), queue.get(3)

    assert [t.payload for t in first + second] == payloads
    assert [t.header.sequence for t in first + second] == list(range(5))


def test_a_full_queue_makes_actors_wait_and_drops_nothing():
    queue = TrajectoryQueue(3)

    with running(producer(queue, actor=0, count=10)):
        eventually(lambda: queue.depth == 3)
        taken = queue.get(10)

    assert [t.header.sequence for t in taken] == list(range(10))
    assert queue.depth == 0


def test_the_queue_never_holds_more_than_its_capacity():
    queue = TrajectoryQueue(2)
    taken = []
    deepest = 0

    with running(*(producer(queue, actor, count=100) for actor in range(4))):
        while len(taken) < 400:
            deepest = max(deepest, queue.depth)
            taken += queue.get(1)

    assert deepest <= 2
    for actor in range(4):
        assert [t.header.sequence for t in taken if t.header.actor == actor] == list(range(100))


def test_more_can_be_asked_for_than_the_queue_holds():
    queue = TrajectoryQueue(2)

    with running(producer(queue, actor=0, count=7)):
        assert len(queue.get(7)) == 7


def test_after_the_timeout_the_learner_gets_what_there_is():
    queue = TrajectoryQueue(4)
    assert queue.get(1, timeout_s=0) == []
    assert queue.get(1, timeout_s=0.01) == []

    queue.put(trajectory(0, 0))
    queue.put(trajectory(0, 1))

    assert len(queue.get(3, timeout_s=0.01)) == 2


def test_a_paused_learner_stops_the_actors_and_a_slow_actor_does_not_stop_the_learner():
    queue = TrajectoryQueue(4)
    slow = threading.Event()

    def slow_actor():
        slow.wait()
        queue.put(trajectory(actor=1))

    with running(producer(queue, actor=0), slow_actor):
        eventually(lambda: queue.depth == 4)  # the learner pauses: actor 0 fills the queue
        assert {t.header.actor for t in queue.get(50)} == {0}  # actor 1 has yet to put anything
        slow.set()
        eventually(lambda: any(t.header.actor == 1 for t in queue.get(1)))
        queue.close()


# --- the end of a run


def test_closing_wakes_actors_that_wait_for_room():
    queue = TrajectoryQueue(1)
    results = []

    def actor():
        results.append(queue.put(trajectory(0, 0)))
        results.append(queue.put(trajectory(0, 1)))

    with running(actor):
        eventually(lambda: queue.waiting().actors_s.get(0, 0) > 0)
        queue.close()

    assert results == [True, False]


def test_closing_wakes_a_learner_that_waits():
    queue = TrajectoryQueue(4)
    results = []

    with running(lambda: results.append(queue.get(1))):
        eventually(lambda: queue.waiting().learner_s > 0)
        queue.close()

    assert results == [[]]


def test_what_was_put_before_the_end_can_still_be_taken_and_nothing_is_put_after():
    queue = TrajectoryQueue(4)
    queue.put(trajectory(0, 0))
    queue.close()
    queue.close()

    assert queue.closed
    assert not queue.put(trajectory(0, 1))
    assert [t.header.sequence for t in queue.get(5)] == [0]
    assert queue.get(5) == []


def test_the_store_closes_with_the_queue():
    store = ParameterStore(np.zeros(1, np.float32))
    queue = TrajectoryQueue(1, store)

    with running(lambda: store.wait_for(1, actor=0)):
        queue.close()


def test_a_signal_handler_may_close_the_queue_while_the_learner_waits():
    queue = TrajectoryQueue(1)
    previous = signal.signal(signal.SIGUSR1, lambda *_: queue.close())

    def interrupt():
        eventually(lambda: queue.waiting().learner_s > 0)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    try:
        with running(interrupt):
            assert queue.get(1) == []
    finally:
        signal.signal(signal.SIGUSR1, previous)


def test_an_actors_exception_reaches_the_learner_with_its_cause():
    queue = TrajectoryQueue(4)

    def actor():
        try:
            _ = {}["stage 7"]
        except KeyError as error:
            queue.fail(3, error)

    with running(actor), pytest.raises(TrainingError) as raised:
        queue.get(1)

    assert str(raised.value) == "actor 3 died: KeyError: 'stage 7'"
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


def test_a_dead_actor_ends_the_run_for_the_others_and_the_first_failure_counts():
    queue = TrajectoryQueue(1)

    with running(producer(queue, actor=0)):
        eventually(lambda: queue.waiting().actors_s.get(0, 0) > 0)
        queue.fail(1, ValueError("first"))
        queue.fail(2, ValueError("second"))

    for _ in range(2):
        with pytest.raises(TrainingError, match="actor 1 died: ValueError: first"):
            queue.get(1)


# --- who waits for whom


def test_waiting_is_accounted_to_the_side_that_waits():
    store = ParameterStore(np.zeros(1, np.float32))
    queue = TrajectoryQueue(1, store)

    with running(producer(queue, actor=5)):
        eventually(lambda: queue.waiting().actors_s.get(5, 0) > 0.02)  # counted while it lasts
        assert queue.waiting().learner_s == 0
        queue.close()

    waited = queue.waiting()
    assert waited.actors_s[5] >= 0.02
    assert queue.waiting() == waited  # and no longer than that

    hungry = TrajectoryQueue(1)
    hungry.get(1, timeout_s=0.02)
    assert hungry.waiting().learner_s >= 0.019
    assert hungry.waiting().actors_s == {}


def test_waiting_for_parameters_counts_as_the_actors_waiting():
    store = ParameterStore(np.zeros(1, np.float32))
    queue = TrajectoryQueue(2, store)
    queue.put(trajectory(actor=1))

    with running(lambda: store.wait_for(1, actor=0)):
        eventually(lambda: queue.waiting().actors_s.get(0, 0) > 0.01)
        store.publish(np.ones(1, np.float32), version=1)

    assert queue.waiting().actors_s[0] >= 0.01
    assert queue.waiting().actors_s[1] == 0


def test_headers_sort_by_actor_and_then_in_the_order_of_acting():
    queue = TrajectoryQueue(4)
    for actor, sequence in [(1, 0), (0, 1), (1, 1), (0, 0)]:
        queue.put(trajectory(actor, sequence))

    ordered = sorted(queue.get(4), key=lambda t: t.header)

    assert [(t.header.actor, t.header.sequence) for t in ordered] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
