"""What `squeue --json` and `sinfo --json` print, of which little is read.

Versions differ: a number is plain, null, or {"set": ..., "infinite": ..., "number": ...}; a state
is a word or a list of words. Whatever is not read may be missing.
"""

import functools
import re
from typing import Literal, TypeVar

import msgspec

Phase = Literal["waiting", "running", "over"]

_FINAL = {
    "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
    "DEADLINE", "OUT_OF_MEMORY", "REVOKED",
}  # fmt: skip
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
_UNUSABLE = {
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "MAINT", "NO_RESPOND",
    "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "REBOOT",
    "REBOOT_REQUESTED", "RESERVED", "UNKNOWN", "ERROR", "INVALID", "INVALID_REG", "FUTURE",
    "PLANNED_DOWN",
}  # fmt: skip
_HELD_BY_OTHERS = {"JobHeldAdmin", "JobHoldMaxRequeue"}
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


class WireError(Exception):
    """What was printed is not what Slurm prints; or it says that something failed."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A job, a task of an array, or those tasks of an array that have not started."""

    id: int
    array: int
    """Of the array; of a single job its own."""
    is_array: bool
    tasks: frozenset[int]
    """Numbers of its tasks; of a single job 0."""
    throttle: int
    """Tasks of the array that may run together; 0: all."""
    phase: Phase
    completed: bool
    """It is over, and its duration tells what others may take."""
    reason: str
    """Why it waits."""
    priority: int
    after: frozenset[int]
    """Jobs that it waits for."""
    comment: str
    user: str
    name: str
    partitions: tuple[str, ...]
    cpus: int
    """Of one task."""
    limit_s: float | None
    submit_s: float
    start_s: float
    end_s: float
    eligible_s: float
    several: bool
    """One of the jobs of a heterogeneous one."""

    @property
    def held(self) -> bool:
        """Whether it waits to be released."""
        return self.phase == "waiting" and self.priority == 0

    @property
    def theirs(self) -> bool:
        """Whether an operator holds it, or Slurm itself: as after tasks could not be launched."""
        return self.held and self.reason in _HELD_BY_OTHERS


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node, as far as CPUs are concerned."""

    name: str
    partitions: tuple[str, ...]
    usable: bool
    """Whether jobs may start there."""
    cpus: int
    idle_cpus: int


class _Amount(msgspec.Struct):
    set: bool = True
    infinite: bool = False
    number: float = 0


_Number = int | float | str | _Amount | None
_Words = str | list[str] | None


class _Job(msgspec.Struct):
    job_id: _Number
    array_job_id: _Number = None
    array_task_id: _Number = None
    array_task_string: str | None = None
    array_max_tasks: _Number = None
    job_state: _Words = None
    state_reason: str | None = None
    priority: _Number = None
    dependency: str | None = None
    comment: str | None = None
    user_name: str | None = None
    user_id: _Number = None
    name: str | None = None
    partition: str | None = None
    cpus: _Number = None
    time_limit: _Number = None
    submit_time: _Number = None
    start_time: _Number = None
    end_time: _Number = None
    eligible_time: _Number = None
    het_job_id: _Number = None


class _Node(msgspec.Struct):
    name: str
    partitions: list[str] = []
    state: _Words = None
    state_flags: _Words = None
    cpus: _Number = None
    effective_cpus: _Number = None
    alloc_cpus: _Number = None
    idle_cpus: _Number = None
    alloc_idle_cpus: _Number = None


class _Problem(msgspec.Struct):
    error: str | None = None
    description: str | None = None


class _Jobs(msgspec.Struct):
    jobs: list[_Job]
    errors: list[_Problem] = []


class _Nodes(msgspec.Struct):
    nodes: list[_Node]
    errors: list[_Problem] = []


_File = TypeVar("_File", _Jobs, _Nodes)


def read_jobs(text: bytes) -> list[Row]:
    """Of `squeue --json`.

    Raises:
        WireError: it reports an error, which it may do with exit status 0, or is no such JSON.
    """
    return [_row(job) for job in _read(text, _Jobs).jobs]


def read_nodes(text: bytes) -> list[Node]:
    """Of `sinfo --json` up to Slurm 22.05, and of `scontrol show nodes --json` since 23.02.

    Raises:
        WireError: as of jobs.
    """
    return [_node(node) for node in _read(text, _Nodes).nodes]


def _read(text: bytes, kind: type[_File]) -> _File:
    try:
        file = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"its JSON cannot be read: {error}") from None
    # A slurmctld that does not answer is no jobs at all and exit status 0 to squeue 22.05.
    if file.errors:
        first = file.errors[0]
        raise WireError(first.description or first.error or "it reports an error")
    return file


def _row(job: _Job) -> Row:
    number = _whole(job.job_id)
    array = _whole(job.array_job_id)
    task = _number(job.array_task_id)
    if array and task is not None:
        tasks = frozenset((int(task),))
    else:
        tasks = task_numbers(job.array_task_string or "") if array else frozenset((0,))
    states = _words(job.job_state)
    phase: Phase = "running"
    if "COMPLETING" not in states:
        phase = "over" if states & _FINAL else "waiting" if states & _WAITING else "running"
    limit_min = _number(job.time_limit)
    return Row(
        id=number,
        array=array or number,
        is_array=array != 0,
        tasks=tasks,
        throttle=_whole(job.array_max_tasks),
        phase=phase,
        completed=phase == "over" and bool(states & {"COMPLETED", "TIMEOUT"}),
        reason=job.state_reason or "None",
        priority=_whole(job.priority),
        after=_after(job.dependency or ""),
        comment=job.comment or "",
        user=job.user_name or str(_whole(job.user_id)),
        name=job.name or str(number),
        partitions=tuple((job.partition or "").split(",")),
        cpus=max(_whole(job.cpus), 1),
        limit_s=60 * limit_min if limit_min else None,
        submit_s=_number(job.submit_time) or 0.0,
        start_s=_number(job.start_time) or 0.0,
        end_s=_number(job.end_time) or 0.0,
        eligible_s=_number(job.eligible_time) or 0.0,
        several=_whole(job.het_job_id) != 0,
    )


def _node(node: _Node) -> Node:
    cpus = _whole(node.effective_cpus) or _whole(node.cpus)
    idle = _number(node.alloc_idle_cpus)
    if idle is None:
        idle = _number(node.idle_cpus)
    if idle is None:
        idle = cpus - _whole(node.alloc_cpus)
    states = _words(node.state) | _words(node.state_flags)
    return Node(
        name=node.name,
        partitions=tuple(node.partitions),
        usable=not states & _UNUSABLE,
        cpus=cpus,
        idle_cpus=max(min(int(idle), cpus), 0),
    )


@functools.lru_cache(maxsize=4096)
def task_numbers(text: str) -> frozenset[int]:
    """Of an array's tasks as Slurm writes them: 0-9, 1,3,5-9:2%4."""
    found: set[int] = set()
    for part in text.split("%")[0].strip("[]").split(","):
        if match := _RANGE.fullmatch(part.strip()):
            first, last, step = match[1], match[2] or match[1], match[3] or "1"
            found.update(range(int(first), int(last) + 1, max(int(step), 1)))
    return frozenset(found)


def _after(text: str) -> frozenset[int]:
    """Jobs of afterok:12_*(unfulfilled),afterany:13 and the like, but of `after` and singleton."""
    found: set[int] = set()
    for part in re.split("[,?]", text):
        kind, _, jobs = part.strip().partition(":")
        if kind in ("afterok", "afterany", "aftercorr", "afternotok"):
            found.update(int(one) for one in re.findall(r"(?:^|:)(\d+)", jobs))
    return frozenset(found)


def _words(given: _Words) -> set[str]:
    words = [given] if isinstance(given, str) else given or []
    return {part for word in words for part in re.split(r"[+*~#!%$@^\-\s]+", word.upper()) if part}


def _number(given: _Number) -> float | None:
    """None: not set, or without end."""
    if isinstance(given, _Amount):
        return given.number if given.set and not given.infinite else None
    if isinstance(given, str):
        return float(given) if re.fullmatch(r"-?\d+(\.\d+)?", given) else None
    return given


def _whole(given: _Number) -> int:
    return int(_number(given) or 0)
