"""Executor classes: what executors have, against what stages demand."""

import msgspec

from ganger.errors import SimulationError
from ganger.workload.model import Demand

_UNLIMITED = float("inf")


class ExecutorClass(msgspec.Struct, frozen=True, kw_only=True):
    """Executors of one size."""

    name: str
    count: int
    cores: float = _UNLIMITED
    memory: float = _UNLIMITED
    """In the unit of the stages' demands: gibibytes in what readers give."""

    def __post_init__(self) -> None:
        if not self.name:
            raise SimulationError("an executor class has no name")
        if self.count < 1:
            raise SimulationError(
                f"executor class {self.name!r} has {self.count} executors; expected 1 or more"
            )
        for what in ("cores", "memory"):
            if not getattr(self, what) >= 0:
                raise SimulationError(
                    f"executor class {self.name!r}: {what} is {getattr(self, what)}; expected 0 or "
                    "more"
                )

    @property
    def size(self) -> str:
        """What it has, in words, as far as it is limited: ` (4 cores, 16 of memory)`."""
        limits = ((self.cores, "cores"), (self.memory, "of memory"))
        said = [f"{value:g} {what}" for value, what in limits if value < _UNLIMITED]
        return f" ({', '.join(said)})" if said else ""

    def serves(self, demand: Demand | None) -> bool:
        """Whether its executors meet the demand."""
        return demand is None or (self.cores >= demand.cores and self.memory >= demand.memory)


def parse_class(text: str) -> ExecutorClass:
    """The class that a spelling such as `small:20:cores=1,memory=4` names.

    Raises:
        SimulationError: it is none.
    """
    name, _, rest = text.partition(":")
    count, _, sizes = rest.partition(":")
    expected = f"executor class {text!r}: expected NAME:COUNT or NAME:COUNT:cores=C,memory=M"
    given: dict[str, float] = {}
    try:
        for part in sizes.split(",") if sizes else ():
            what, _, value = part.partition("=")
            if what.strip() not in ("cores", "memory") or what.strip() in given:
                raise SimulationError(expected)
            given[what.strip()] = float(value)
        return ExecutorClass(name=name.strip(), count=int(count), **given)
    except ValueError:
        raise SimulationError(expected) from None
