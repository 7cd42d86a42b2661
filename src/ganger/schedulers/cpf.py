"""Critical path first: the job that can end soonest, and in it the stage that most holds it up."""

from typing import Any, ClassVar

from numpy.typing import NDArray

from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import rule


class CriticalPathFirst(Heuristic, frozen=True):
    """Jobs by the length of their remaining critical path, shortest first; no cap. A
    job keeps its executors while it can use them.

    Within a job, the stage from which the longest path leads to the job's end comes first. With one
    job of single-task stages that is list scheduling by level (Hu 1961).
    """

    name: ClassVar[str] = "cpf"

    def rule(self) -> NDArray[Any]:
        return rule(order="path", cap="none", source="first", stage="path")
