"""Checks of a scheduler: it decides legally, repeatably and without side effects, to the end."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from ganger.errors import ConformanceError, GangerError
from ganger.serving.rounds import problem_with
from ganger.simulator.observation import Decision, Observation
from ganger.simulator.simulate import CompiledScheduler, Result, Scheduler, simulate
from ganger.testing.cases import CASES, Case, case

_ASKED_AGAIN = 50  # observations of a case: enough to notice, and quick


def check_scheduler(scheduler: Scheduler, cases: Sequence[str] = CASES) -> None:
    """Check a scheduler in simulations of small clusters, a few of them extreme.

    The checks, by name:

    - protocol: `decide` takes an Observation and returns a Decision or None;
    - survives: it raises nothing;
    - legal: the stage may be chosen, and the limit is a whole number from 1;
    - no side effects: the observation is the same afterwards;
    - deterministic: the same observation gives the same decision, whatever was asked in between. A
      scheduler that draws keys its draws by `observation.version`;
    - finishes: no job is left unfinished;
    - compiled: if it has `run` as well, that takes the same decisions (asked with seed 0).

    Args:
        scheduler: it is asked many times; what it remembers from one question to the next must
            not change its answers.
        cases: names from `CASES`.

    Raises:
        ConformanceError: the first check that fails, on what, and how to reproduce it.
    """
    if not callable(getattr(scheduler, "decide", None)):
        raise ConformanceError(
            "protocol",
            type(scheduler).__name__,
            "it has no method decide(observation)",
            "scheduler.decide",
        )
    for name in cases:
        _check(scheduler, name, case(name))


class _Watched:
    """The scheduler, with every answer looked at before the simulator gets it."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler, self._name = scheduler, name
        self.asked: list[tuple[Observation, Decision | None]] = []

    def fail(self, check: str, problem: str, observation: Observation | None = None) -> Any:
        on = f"case {self._name!r}"
        if observation is not None:
            on += f", decision {observation.version} at {observation.time_s:g} s"
        return ConformanceError(check, on, problem, _reproduce(self._name))

    def ask(self, observation: Observation) -> Decision | None:
        before = msgspec.msgpack.encode(observation)
        try:
            decision = self._scheduler.decide(observation)
        except Exception as error:  # whatever it is, it is the scheduler's
            what = f"decide raised {type(error).__name__}: {error}"
            raise self.fail("survives", what, observation) from error
        if msgspec.msgpack.encode(observation) != before:
            raise self.fail("no side effects", "decide changed the observation", observation)
        return decision

    def decide(self, observation: Observation) -> Decision | None:
        decision = self.ask(observation)
        if decision is not None:
            self._check_legal(observation, decision)
        if len(self.asked) < _ASKED_AGAIN:
            self.asked.append((observation, decision))
        return decision

    def _check_legal(self, observation: Observation, decision: Any) -> None:
        if (problem := problem_with(observation, decision)) is not None:
            check = "legal" if isinstance(decision, Decision) else "protocol"
            raise self.fail(check, problem, observation)


def _check(scheduler: Scheduler, name: str, given: Case) -> None:
    watched = _Watched(scheduler, name)
    decided = _simulate(given, watched, watched)
    # In the opposite order: what it remembers from one question to the next shows.
    for observation, before in reversed(watched.asked):
        again = watched.ask(observation)
        if again != before:
            what = f"the same observation gave {before}, then {again}"
            raise watched.fail("deterministic", what, observation)
    if isinstance(scheduler, CompiledScheduler):
        ran = _simulate(given, scheduler, watched)
        if not np.array_equal(ran.finish_s, decided.finish_s):
            j = int(np.flatnonzero(ran.finish_s != decided.finish_s)[0])
            what = (
                f"job {given.workload.jobs[j].id!r} finishes at {ran.finish_s[j]:g} s under run, "
                f"at {decided.finish_s[j]:g} s under decide"
            )
            raise watched.fail("compiled", what)


def _simulate(given: Case, scheduler: Any, watched: _Watched) -> Result:
    try:
        return simulate(given.cluster, given.workload, scheduler)
    except ConformanceError:
        raise
    except GangerError as error:  # the simulator refuses nothing else that was found legal
        raise watched.fail("finishes", str(error)) from None
    except Exception as error:
        what = f"run raised {type(error).__name__}: {error}"
        raise watched.fail("survives", what) from error


def _reproduce(name: str) -> str:
    return f"ganger.simulate(*ganger.testing.case({name!r}), scheduler)"
