"""Weighted fair sharing: a job's share of the cluster is a power of the work it has left."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import Leftover, rule


class WeightedFair(Heuristic, frozen=True):
    """Jobs by arrival, each up to cap = ceil(executors x work^alpha / sum of all work^alpha).

    The sum is over jobs that could use more executors; work is in executor-seconds left.

    Source: "weighted fair" of Mao et al. 2019 (arXiv:1810.01963), section 7.1, with a power alpha
    tuned to the workload.
    """

    name: ClassVar[str] = "wfair"

    alpha: float = 0.25
    """0: equal shares; above: large jobs get more; below: small jobs get more. -5 to 5."""

    leftover: Leftover = "first"
    """Executors beyond all caps: they idle, or the job that came first gets them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range("alpha", -5.0, 5.0)

    def rule(self) -> NDArray[Any]:
        return rule(
            order="arrival", cap="weighted", source="ordered", leftover=self.leftover, a=self.alpha
        )
