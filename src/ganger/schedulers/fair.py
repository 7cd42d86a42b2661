"""Fair sharing, also called dynamic partition: every job may have the same number of executors."""

from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import rule


class Fair(Heuristic, frozen=True):
    """Jobs by arrival, each up to cap = ceil(executors / n).

    n is the number of jobs that could use more executors. Executors beyond all caps idle.

    Source: `dynamic_partition` of Decima's simulator (Mao et al. 2019, arXiv:1810.01963), which is
    the baseline that the field compares with.
    """

    name: ClassVar[str] = "fair"

    source: Literal["first", "capped"] = "first"
    """first: a job keeps its own executors while it can use them, even above the cap, as in Spark
    and in the known simulators; capped: it keeps them up to the cap."""

    def rule(self) -> NDArray[Any]:
        return rule(order="arrival", cap="share", source=self.source)
