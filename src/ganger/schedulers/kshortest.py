"""Fair sharing among the k jobs with the least work left."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import rule


class KShortest(Heuristic, frozen=True):
    """Shortest job first, but the k shortest share the cluster: cap = ceil(executors / k).

    Only jobs that could use more executors count; with fewer than k of them they share it all. The
    other jobs get what is left over.
    """

    name: ClassVar[str] = "kshortest"

    k: int = 3
    """How many jobs share; 1 or more. 1 is srpt, a large number is fair sharing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range("k", 1, 1_000_000)

    def rule(self) -> NDArray[Any]:
        return rule(order="work", cap="shortest", source="capped", leftover="first", k=self.k)
