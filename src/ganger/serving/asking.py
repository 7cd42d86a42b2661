"""What a scheduler's process does: load the scheduler, and decide whole rounds."""

from pathlib import Path

import msgspec

from ganger.errors import SchedulerError
from ganger.planning import load_scheduler
from ganger.policy.checkpoint import read_policy
from ganger.policy.drift import Watcher, saved_drift
from ganger.policy.scheduler import PolicyScheduler
from ganger.serving.process import Setting
from ganger.serving.rounds import Decides, decide_round
from ganger.simulator.observation import (
    Decision,
    JobObservation,
    Observation,
    StageObservation,
)

_STAGE = StageObservation(
    id="0", parents=(), tasks=4, launched=0, finished=0, committed=0, moving=0, executors=0,
    estimated_task_s=1.0, schedulable=True,
)  # fmt: skip
SMALL = Observation(
    version=0, time_s=0.0, executors=4, on_offer=2, source_job=None, idle=4,
    jobs=(
        JobObservation(id="a", arrival_s=0.0, executors=0, supply=0, stages=(_STAGE,)),
        JobObservation(
            id="b", arrival_s=0.0, executors=0, supply=0,
            stages=(_STAGE, msgspec.structs.replace(
                _STAGE, id="1", parents=("0",), schedulable=False)),
        ),
    ),
)  # fmt: skip
"""A round that every scheduler can decide."""


class Asked:
    """A scheduler that is asked for rounds."""

    def __init__(self, setting: Setting) -> None:
        """Load it.

        Raises:
            GangerError: there is no such scheduler.
        """
        loaded = load_scheduler(setting.scheduler, sample=setting.sample, plan=setting.plan)
        if not isinstance(loaded, Decides):
            raise SchedulerError(f"{loaded} looks ahead, which it cannot do outside the simulator")
        self._scheduler = loaded
        self._policy = loaded if isinstance(loaded, PolicyScheduler) else None
        self._probabilities: list[float] = []
        self._watcher = None
        if self._policy is not None:
            step = read_policy(setting.scheduler).step
            drift = saved_drift(Path(setting.scheduler), step)
            self._watcher = None if drift is None else Watcher(drift)

    def warm_up(self) -> None:
        """Decide once, so that the first question finds everything compiled."""
        self.round(SMALL)

    def round(
        self, observation: Observation
    ) -> tuple[tuple[Decision, ...], tuple[float, ...], float | None]:
        """The decisions of a round, the probability of each, and the drift score if there is one.

        Raises:
            SchedulerError: the scheduler answered something that it must not.
        """
        self._probabilities = []
        ask = self._scheduler.decide if self._policy is None else self._ask_policy
        decisions = decide_round(ask, observation)
        score = None if self._watcher is None else self._watcher.score
        return tuple(decisions), tuple(self._probabilities), score

    def _ask_policy(self, observation: Observation) -> Decision | None:
        assert self._policy is not None
        chosen = self._policy.choose(observation)
        if chosen is None:
            return None
        self._probabilities.append(chosen.probability)
        if self._watcher is not None:
            self._watcher.see(chosen.rows)
        return chosen.decision
