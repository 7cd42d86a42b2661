"""A cluster: so many executors, all alike or of several classes."""

from collections.abc import Sequence

import msgspec
import numpy as np

from ganger.errors import SimulationError
from ganger.simulator import engine
from ganger.simulator.state import State
from ganger.simulator.table import Table
from ganger.workload.classes import ExecutorClass


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of executors."""

    executors: int
    """Task slots; each runs one task at a time and belongs to at most one job."""
    move_delay_s: float = 2.0
    """Seconds an executor needs to change from one job (or from nobody) to another."""
    classes: tuple[ExecutorClass, ...] = ()
    """Whose counts sum to the executors; none: every executor meets every demand."""
    reconsider: bool = False
    """After jobs arrived, an executor that ends a task is offered once more even if its stage has
    others; else it stays with the stage to the end, as in the field's simulators."""
    work_conserving: bool = False
    """Only stages whose parents are done can be chosen, and executors without work belong to nobody
    and are offered whenever there is some; else they may wait with a job for its next stage, as in
    the field's simulators."""

    def __post_init__(self) -> None:
        if self.executors < 1:
            raise SimulationError(f"executors is {self.executors}; a cluster has 1 or more")
        if not 0 <= self.move_delay_s < float("inf"):
            raise SimulationError(f"move_delay_s is {self.move_delay_s}; expected 0 or more")
        if not self.classes:
            return
        if len(self.classes) > engine.MAX_CLASSES:
            raise SimulationError(
                f"a cluster of {len(self.classes)} executor classes; there may be "
                f"{engine.MAX_CLASSES}"
            )
        names = [given.name for given in self.classes]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SimulationError(f"several executor classes are called {twice[0]!r}")
        if (total := sum(given.count for given in self.classes)) != self.executors:
            raise SimulationError(
                f"the executor classes have {total} executors, the cluster {self.executors}"
            )

    def prepare(self, state: State, table: Table) -> None:
        """Give a state that was just loaded what is not the same in all clusters."""
        state.clock[0]["reconsider"] = self.reconsider
        state.clock[0]["conserving"] = self.work_conserving
        if self.classes:
            engine.set_classes(
                state,
                table,
                np.array([given.count for given in self.classes]),
                np.array([given.cores for given in self.classes]),
                np.array([given.memory for given in self.classes]),
            )


def cluster_of(
    classes: Sequence[ExecutorClass],
    *,
    executors: int,
    move_delay_s: float,
    reconsider: bool = False,
    work_conserving: bool = False,
) -> Cluster:
    """A cluster of these classes, or where there are none, of so many executors."""
    if classes:
        executors = sum(given.count for given in classes)
    return Cluster(
        executors=executors,
        move_delay_s=move_delay_s,
        classes=tuple(classes),
        reconsider=reconsider,
        work_conserving=work_conserving,
    )
