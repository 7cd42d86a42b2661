"""Actors as threads beside a learner: nobody waits for anybody but a full queue."""

import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import toys

from ganger.errors import ConfigError, TrainingError
from ganger.policy.layout import initial_vector
from ganger.schedulers import parse_scheduler
from ganger.simulator.simulate import Cluster, simulate
from ganger.training.actor import Actor, run_actor
from ganger.training.exchange import Parameters
from ganger.training.exchange.local import ParameterStore, TrajectoryQueue
from ganger.training.objective import training_table
from ganger.workload import FileSource, Job, Workload

DEADLOCK_S = 20.0


def eventually(condition):
    deadline = time.monotonic() + DEADLOCK_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


def vector(seed=0):
    return initial_vector(np.random.default_rng(seed), False)


class Slowed:
    """An actor that acts only when it is let."""

    def __init__(self, actor):
        self._actor = actor
        self.index, self.generation = actor.index, actor.generation
        self.may_act = threading.Event()

    def act(self, parameters):
        self.may_act.wait(DEADLOCK_S)
        return self._actor.act(parameters)


@contextmanager
def acting(actors, capacity):
    store = ParameterStore(vector())
    queue = TrajectoryQueue(capacity, store)
    threads = [threading.Thread(target=run_actor, args=(a, store, queue)) for a in actors]
    for thread in threads:
        thread.start()
    try:
        yield queue, store
    finally:
        for actor in actors:
            if isinstance(actor, Slowed):
                actor.may_act.set()
        queue.close()
        for thread in threads:
            thread.join(DEADLOCK_S)
            assert not thread.is_alive()


def two_actors():
    config = toys.config(actors=2)
    return [Actor(config, toys.table(), index) for index in range(2)]


def test_with_the_learner_paused_actors_act_until_the_queue_is_full_and_then_wait():
    actors = two_actors()
    with acting(actors, capacity=3) as (queue, _):
        eventually(lambda: queue.depth == 3)
        # Both have noticed: each waits, with at most one trajectory in its hands.
        eventually(lambda: len(queue.waiting().actors_s) == 2)
        before = queue.waiting().actors_s
        eventually(lambda: all(queue.waiting().actors_s[a] > before[a] + 0.05 for a in (0, 1)))
        assert queue.depth == 3
        taken = queue.get(6)  # more than it holds: acting goes on
        for actor in (0, 1):
            sequence = [t.header.sequence for t in taken if t.header.actor == actor]
            assert sequence == list(range(len(sequence))), "nothing is dropped, and in order"


def test_with_one_actor_slowed_the_learner_still_gets_from_the_other():
    first, second = two_actors()
    slow = Slowed(first)
    with acting([slow, second], capacity=2) as (queue, _):
        taken = queue.get(8, timeout_s=DEADLOCK_S)
        assert [t.header.actor for t in taken] == [1] * 8
        slow.may_act.set()
        eventually(lambda: any(t.header.actor == 0 for t in queue.get(1)))


def test_a_trajectory_carries_the_version_that_made_it_and_actors_pick_up_the_newest():
    (actor, _) = two_actors()
    with acting([actor], capacity=1) as (queue, store):
        first = queue.get(1)[0]
        assert first.header.policy_version == 0
        store.publish(vector(1), 5)
        eventually(lambda: queue.get(1)[0].header.policy_version == 5)


def test_an_actor_that_dies_tells_the_learner_why():
    class Broken:
        index, generation = 3, 0

        def act(self, parameters):
            raise ZeroDivisionError("by zero")

    with acting([Broken()], capacity=1) as (queue, _):
        with pytest.raises(TrainingError, match="actor 3 died: ZeroDivisionError: by zero") as e:
            queue.get(1, timeout_s=DEADLOCK_S)
        assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_actors_of_one_run_and_restarted_ones_meet_different_jobs():
    config = toys.config(actors=2, environments=4)
    parameters = Parameters(vector(), 0)
    made = [
        Actor(config, toys.table(), index, generation).act(parameters).samples.decisions.cost
        for index, generation in ((0, 0), (1, 0), (0, 1), (0, 0))
    ]
    np.testing.assert_array_equal(made[0], made[3])
    assert not np.array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


def test_outcomes_compare_with_what_fair_does_to_the_same_jobs():
    """Jobs that arrive alone and take one time: whoever schedules, the outcome is the same."""
    actor = toys.actor(interarrival_s=1e6, environments=4, steps=64)
    outcomes = []
    while len(outcomes) < 3:
        outcomes += actor.act(Parameters(vector(), 0)).outcomes
    for outcome in outcomes:
        assert outcome.jobs == 8
        assert outcome.mean_jct_s == pytest.approx(outcome.fair_mean_jct_s, rel=1e-6)
    means = {
        simulate(
            Cluster(executors=1, move_delay_s=0.0),
            Workload((Job(id="a", arrival_s=0.0, stages=stages),)),
            parse_scheduler("fair"),
        ).mean_jct_s
        for stages in (toys.SHORT, toys.LONG)
    }
    assert min(means) - 1e-6 <= outcomes[0].mean_jct_s <= max(means) + 1e-6


def test_episodes_of_a_log_are_windows_of_it_with_its_own_arrivals():
    work_s = [3.0 * (i + 1) for i in range(30)]
    jobs = [
        Job(id=str(i), arrival_s=float(i * i), stages=toys.two_stages(1, work_s[i] / 2))
        for i in range(30)
    ]
    config = toys.config(jobs=5, interarrival_s=None, environments=4, executors=2)
    table = training_table(config, FileSource("log", Workload(tuple(jobs))))
    actor = Actor(config, table, 0)
    begun = set()
    for _ in range(6):
        actor.act(Parameters(vector(), 0))
        for state in actor._states:
            in_episode = state.jobs[: state.clock[0]["jobs"]]
            own = table.templates["work_s"][in_episode["template"]]
            first = work_s.index(own[0])
            assert own.tolist() == work_s[first : first + len(own)]
            between = [float((first + k) ** 2 - first**2) for k in range(len(own))]
            assert in_episode["arrival_s"].tolist() == between
            assert first + len(own) <= 24, "the last 20 % are for tests"
            begun.add(first)
    assert len(begun) > 8


def test_a_log_must_have_the_jobs_of_an_episode():
    few = FileSource("few", Workload((Job(id="a", arrival_s=0.0, stages=toys.SHORT),)))
    with pytest.raises(ConfigError, match="there are 1 jobs to train on, fewer than the 8"):
        training_table(toys.config(interarrival_s=None, part="all"), few)
