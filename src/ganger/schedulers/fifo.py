"""First in, first out: the job that came first gets all it can use."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import rule


class Fifo(Heuristic, frozen=True):
    """Jobs by arrival, without a cap; executors stay with their job while it can use them.

    Source: Spark's FIFO mode, as Decima's simulator has it (Mao et al. 2019, arXiv:1810.01963).
    """

    name: ClassVar[str] = "fifo"

    def rule(self) -> NDArray[Any]:
        return rule(order="arrival", cap="none", source="first")
