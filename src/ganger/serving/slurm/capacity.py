"""How many executors a partition has, and how many are free for the jobs that are driven."""

from dataclasses import dataclass

from ganger.serving.slurm.book import Book
from ganger.serving.slurm.wire import Node, Row

_WILL_START = {"None", "Priority", "Resources"}
"""Why jobs wait that only wait for CPUs."""


@dataclass(frozen=True)
class Capacity:
    """Executors."""

    total: int
    """Those that work for driven jobs, and those that are free."""
    free: int
    """Nobody works there, and no other job that waits could start there at once."""


def capacity_of(
    partition: str, nodes: list[Node], rows: list[Row], book: Book, executor_cpus: int
) -> Capacity:
    """Of a partition, as its nodes and jobs are.

    Jobs that did not opt in are let past as far as what they wait for is free now; those that wait
    for more than that are Slurm's to plan for, whose priorities rank above ours.
    """
    usable = [node for node in nodes if node.usable and partition in node.partitions]
    busy = sum(stage.executors for stage in book.stages.values())
    idle = sum(node.idle_cpus // executor_cpus for node in usable)
    # Jobs were looked at before nodes: a task that has ended since counts as running still.
    idle = max(min(idle, sum(node.cpus // executor_cpus for node in usable) - busy), 0)
    free = idle - _reserved(partition, rows, book, idle, executor_cpus)
    return Capacity(total=busy + idle, free=free)


def _reserved(partition: str, rows: list[Row], book: Book, free: int, executor_cpus: int) -> int:
    running: dict[int, int] = {}
    for row in rows:
        if row.phase == "running":
            running[row.array] = running.get(row.array, 0) + 1
    others = [
        row
        for row in rows
        if row.phase == "waiting"
        and not row.held
        and row.array not in book.stages
        and partition in row.partitions
        and row.reason in _WILL_START
    ]
    left = free
    for row in sorted(others, key=lambda row: -row.priority):
        each = -(-row.cpus // executor_cpus)
        tasks = max(len(row.tasks), 1)
        if row.throttle:
            tasks = min(tasks, max(row.throttle - running.get(row.array, 0), 0))
        left -= min(tasks, left // each) * each
    return free - left
