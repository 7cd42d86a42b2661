"""`check_scheduler`: what Ganger brings passes, and each kind of fault is caught by its check."""

import itertools

import msgspec
import numpy as np
import pytest

from ganger import simulate, streams
from ganger.errors import SimulationError
from ganger.policy.layout import initial_vector
from ganger.policy.scheduler import PolicyScheduler
from ganger.schedulers import SCHEDULERS, Fifo
from ganger.simulator.observation import Decision
from ganger.testing import CASES, ConformanceError, case, check_scheduler

# All that are extreme, and some of the random ones: seconds for each scheduler.
SOME = CASES[:11] + CASES[11::5]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_built_in_schedulers_pass(name):
    check_scheduler(SCHEDULERS[name](), cases=SOME)


def test_a_policy_passes():
    vector = initial_vector(streams.rng(0, streams.Stream.LEARNER), messages=True)
    check_scheduler(PolicyScheduler(vector, messages=True), cases=SOME)


def test_cases_are_the_same_every_time_and_unknown_ones_are_refused():
    for name in CASES:
        assert case(name) == case(name)
    with pytest.raises(SimulationError, match="case 'random 20' is unknown; there are gangs among"):
        case("random 20")


def first(observation, **changes):
    """The first stage that may be chosen, with all executors."""
    job = next(job for job in observation.jobs if job.schedulable)
    right = {"job": job.id, "stage": job.schedulable[0].id, "limit": observation.executors}
    return Decision(**(right | changes))


class Written:
    """A scheduler that is one function."""

    def __init__(self, decide):
        self.decide = decide


def _raise_late(observation):
    return first(observation) if observation.version < 5 else [][0]


def _change(observation):
    msgspec.structs.force_setattr(observation, "on_offer", 0)
    return first(observation)


def _not_schedulable(observation):
    hidden = [(j.id, s.id) for j in observation.jobs for s in j.stages if not s.schedulable]
    job, stage = hidden[0] if hidden else ("nobody", "nothing")
    return first(observation, job=job, stage=stage)


_count = itertools.count()

FAULTS = {
    "returns a tuple": (lambda o: ("job", "stage", 1), "protocol"),
    "raises": (lambda o: 1 // 0, "survives"),
    "raises late": (_raise_late, "survives"),
    "changes the observation": (_change, "no side effects"),
    "names no job": (lambda o: first(o, job="nobody"), "legal"),
    "chooses what waits": (_not_schedulable, "legal"),
    "limit 0": (lambda o: first(o, limit=0), "legal"),
    "limit 1.5": (lambda o: first(o, limit=1.5), "legal"),
    "counts its calls": (lambda o: first(o, limit=1 + next(_count) % 7), "deterministic"),
    "never serves": (lambda o: None, "finishes"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_by_its_check_and_can_be_reproduced(fault):
    decide, check = FAULTS[fault]
    with pytest.raises(ConformanceError) as caught:
        check_scheduler(Written(decide))
    assert caught.value.check == check
    assert "case '" in caught.value.on
    assert "ganger.simulate(*ganger.testing.case('" in str(caught.value)
    name = caught.value.reproduce.split("'")[1]
    if check in ("survives", "legal", "finishes"):
        with pytest.raises(Exception):  # noqa: B017  # whatever the scheduler did
            simulate(*case(name), Written(decide))


def test_a_run_that_decides_differently_is_caught():
    class Differs(Fifo, frozen=True):
        def decide(self, observation):
            return first(observation, limit=1)

    with pytest.raises(ConformanceError, match=r"under run, at .* s under decide") as caught:
        check_scheduler(Differs())
    assert caught.value.check == "compiled"


def test_a_run_that_stops_or_raises_is_caught():
    class Stops(Fifo, frozen=True):
        def run(self, state, table, key):
            pass

    class Raises(Fifo, frozen=True):
        def run(self, state, table, key):
            np.zeros(1)[1]

    for broken, check in ((Stops(), "finishes"), (Raises(), "survives")):
        with pytest.raises(ConformanceError) as caught:
            check_scheduler(broken)
        assert caught.value.check == check


def test_what_is_no_scheduler_is_told_so():
    with pytest.raises(ConformanceError, match="no method decide") as caught:
        check_scheduler("fifo")
    assert caught.value.check == "protocol"
