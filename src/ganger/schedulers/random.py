"""Random decisions: the baseline that anything should beat."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import rule


class Random(Heuristic, frozen=True):
    """A random job among those that can be served, and 1 to all of the executors on offer for it.

    In the job, a stage whose parents are done comes first. Both draws are uniform and are keyed by
    the number of decisions made before.

    Source: `RandomScheduler` of spark-sched-sim.
    """

    name: ClassVar[str] = "random"

    def rule(self) -> NDArray[Any]:
        return rule(order="random", cap="drawn", source="ordered")
