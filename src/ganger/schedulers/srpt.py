"""Shortest remaining processing time: the job with the least work left comes first."""

from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from ganger.errors import SchedulerError
from ganger.schedulers.heuristic import Heuristic
from ganger.schedulers.rule import Leftover, Source, rule

_DEFAULT_C = {"const": 15.0, "sqrt": 1.0, "useful": 0.2}
_DEFAULT_A = 0.25


class Srpt(Heuristic, frozen=True):
    """Jobs by estimated executor-seconds left, least first, each up to a cap.

    Without a cap the shortest job takes executors that hardly speed it up, as a job's parallelism
    is limited and its tasks slow down. The caps:

    const   c executors
    sqrt    c x sqrt(work left in executor-seconds)
    useful  (c x work / critical path)^a x (executors / n)^(1 - a)

    where n is the number of jobs that could use more executors, and work and critical path are
    those of the whole job. Their ratio is the job's average parallelism, where speedup and
    efficiency are both at least half of what can be had (Eager, Zahorjan & Lazowska 1989).

    Source: Schrage 1968 for one machine; the caps are Ganger's.
    """

    name: ClassVar[str] = "srpt"

    cap: Literal["none", "const", "sqrt", "useful"] = "none"
    """How many executors a job may have."""

    c: float | None = None
    """Size of the cap, above 0; unless given 15 for const, 1 for sqrt, 0.2 for useful."""

    a: float | None = None
    """Of cap=useful only: 0 is the fair share, 1 the job's parallelism; 0.25 unless given."""

    source: Source = "ordered"
    """The job that the executors on offer come from: it comes first and without a cap; it comes
    first up to its cap; or it waits its turn."""

    leftover: Leftover = "first"
    """Executors beyond all caps: they idle, or the shortest job gets them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.c is not None:
            if self.cap == "none":
                raise SchedulerError("srpt: c is the size of a cap; expected cap=const, sqrt, ...")
            self.check_range("c", 1e-6, 1e6)
        if self.a is not None:
            if self.cap != "useful":
                raise SchedulerError(f"srpt: a belongs to cap=useful; cap is {self.cap}")
            self.check_range("a", 0.0, 1.0)

    def rule(self) -> NDArray[Any]:
        return rule(
            order="work",
            cap=self.cap,
            source=self.source,
            leftover=self.leftover,
            c=_DEFAULT_C.get(self.cap, 0.0) if self.c is None else self.c,
            a=_DEFAULT_A if self.a is None else self.a,
        )
