"""Alibaba's cluster traces of 2017 and 2018: the table batch_task, with or without a header.

Source: https://github.com/alibaba/clusterdata, schema.csv of 2017 and schema.txt of 2018.

2017: create time, end time, job, task, instances, status, CPUs and memory for each instance; tasks
of a job are independent. 2018: task name, instances, job name, type, status, start time, end time,
CPUs and memory; the name may hold the DAG: "R3_1_2" is task 3, which waits for tasks 1 and 2, and
what is named otherwise is independent. 100 CPUs are one core; times are seconds.

A job's tasks become stages and their instances tasks, each of which is taken to last as long as its
stage did: the table does not say more. A task that was not Terminated, or whose times are not
known, is left out; if it is part of a DAG, its job is, as a graph with a part missing is another
one. A job arrives when the first of its tasks was created (2017) or started (2018: the trace does
not say when it was submitted). Memory is normalised and not in GiB, so that it is left out, too.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ganger.errors import WorkloadError
from ganger.workload.model import (
    MAX_TASKS,
    MAX_TIME_S,
    Demand,
    Job,
    Pool,
    Recorded,
    Stage,
    topological_order,
)
from ganger.workload.readers.clock import is_time, start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.graph import known_parents
from ganger.workload.readers.opening import Truncated, lines

NAME = "alibaba"

STATUSES = ("Ready", "Waiting", "Running", "Terminated", "Failed", "Cancelled", "Interrupted")
_EXPECTED = "the table batch_task of 2017 (8 columns) or 2018 (9)"
_INVALID = (-1.0, 101.0)  # documented marks of values that are not valid

_BAD_ROW = "no row of batch_task"
_BAD_TIMES = "end is 0, before the start, or no number"
_BAD_INSTANCES = "number of instances is no whole number above 0"
_SAME = "task is listed by an earlier row of its job"
_NO_CPUS = "CPUs are unknown: none are demanded"
_CYCLE = "job whose tasks wait for each other"
_NOTES = (
    "a task's instances are each taken to last as long as the task: the table does not say more",
    "memory is normalised, not in GiB: none is demanded",
)

_DAG_NAME = re.compile(r"[A-Za-z]+(\d{1,9})((?:_\d{1,9})*)(?:_[A-Za-z]\w*)?$")


class _Task(NamedTuple):
    name: str
    problem: str | None
    where: str
    start_s: float = 0.0
    end_s: float = 0.0
    instances: int = 1
    cores: float = 0.0


def recognise(head: bytes, path: Path) -> bool:
    """The columns of the header, or of most of the first rows, have the form of one of the two."""
    rows = [line.decode("utf-8", "replace").split(",") for line in head.splitlines()[:20]]
    good = sum(_year(row) is not None for row in rows)
    return good > len(rows) / 2


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read tables into jobs, sorted by arrival. A job may be spread over files.

    Raises:
        WorkloadError: if a file cannot be read, or there is no job.
    """
    findings.format = "Alibaba batch_task"
    jobs_tasks: dict[str, list[_Task]] = {}
    years: set[str] = set()
    for path in paths:
        findings.files += 1
        years |= _read_file(path, jobs_tasks, findings)
    findings.version = ", ".join(sorted(years))
    jobs = []
    shared: dict[tuple[Stage, ...], tuple[Stage, ...]] = {}
    for name in list(jobs_tasks):
        job = _job(name, jobs_tasks.pop(name), shared, findings)  # popped: rows go as jobs come
        if job is not None:
            jobs.append(job)
    if not jobs:
        raise WorkloadError(
            f"{', '.join(map(str, paths[:3]))}: there is no job that ran; expected {_EXPECTED}"
        )
    findings.notes.extend(_NOTES)
    start_at_zero(jobs)
    yield from jobs


def _read_file(path: Path, jobs: dict[str, list[_Task]], findings: Findings) -> set[str]:
    """Add the file's tasks to those of their jobs; returns the years of its rows."""
    years = set()
    number = 0
    try:
        for number, line in lines(path):
            if not line:
                continue
            cells = [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]
            if number == 1 and _is_header(cells):
                continue
            findings.rows += 1
            where = f"{path}:{number}"
            year = _year(cells)
            if year is None:
                findings.add("dropped", _BAD_ROW, where)
                continue
            years.add(year)
            if year == "2017":
                start, end, job, name, instances, status, cpus = cells[:7]
            else:
                name, instances, job, _, status, start, end, cpus = cells[:8]
            jobs.setdefault(job, []).append(
                _task(name, instances, status, start, end, cpus, where, findings)
            )
    except Truncated:
        findings.add(
            "dropped", "compressed data end too early: what would follow", f"{path}:{number}"
        )
    return years


def _year(cells: Sequence[str]) -> str | None:
    """Of which trace a row, or a header, can be."""
    if len(cells) == 8 and (cells[5].strip() in STATUSES or _is_header(cells)):
        return "2017"
    if len(cells) == 9 and (cells[4].strip() in STATUSES or _is_header(cells)):
        return "2018"
    return None


def _is_header(cells: Sequence[str]) -> bool:
    names = {cell.strip().lower() for cell in cells}
    return "status" in names and bool({"job_id", "job_name"} & names)


def _task(
    name: str,
    instances: str,
    status: str,
    start: str,
    end: str,
    cpus: str,
    where: str,
    findings: Findings,
) -> _Task:
    if status != "Terminated":
        return _Task(name, f"status is {status}", where)
    start_s, end_s, count = _number(start), _number(end), _number(instances)
    if start_s is None or end_s is None or end_s <= 0 or end_s < start_s:
        return _Task(name, _BAD_TIMES, where)
    if count is None or not count.is_integer() or not 1 <= count <= MAX_TASKS:
        return _Task(name, _BAD_INSTANCES, where)
    hundredths = _number(cpus)
    if hundredths is None or hundredths < 0 or hundredths in _INVALID:
        findings.add("guessed", _NO_CPUS, where)
        hundredths = 0.0
    return _Task(name, None, where, start_s, end_s, int(count), hundredths / 100)


def _job(
    name: str,
    tasks: list[_Task],
    shared: dict[tuple[Stage, ...], tuple[Stage, ...]],
    findings: Findings,
) -> Job | None:
    """A job, on the trace's clock; None if it is left out, which is counted."""
    named: dict[str, _Task] = {}
    for task in tasks:
        if task.name in named:
            findings.add("dropped", _SAME, task.where)
        else:
            named[task.name] = task
    numbered: dict[str, list[str]] = {}
    for task in named.values():
        if match := _DAG_NAME.match(task.name):
            numbered.setdefault(str(int(match[1])), []).append(task.name)
    bad = [task for task in named.values() if task.problem is not None]
    for task in bad:
        if _DAG_NAME.match(task.name):
            findings.add("dropped", f"job with a task whose {task.problem}", task.where)
            return None
    for task in bad:
        findings.add("dropped", f"independent task whose {task.problem}", task.where)
    good = [task for task in named.values() if task.problem is None]
    if not good:
        return None
    stages = tuple(
        Stage(
            id=task.name,
            parents=_parents(task, named, numbered, findings),
            task_count=task.instances,
            durations=Pool((task.end_s - task.start_s,)),
            demand=Demand(cores=task.cores) if task.cores > 0 else None,
        )
        for task in good
    )
    stages = shared.setdefault(stages, stages)
    try:
        topological_order(stages)
    except WorkloadError:
        findings.add("dropped", _CYCLE, good[0].where)
        return None
    start_s = min(task.start_s for task in good)
    return Job(
        id=name,
        arrival_s=start_s,
        stages=stages,
        recorded=Recorded(
            start_s=start_s, finish_s=max(task.end_s for task in good), status="Terminated"
        ),
    )


def _parents(
    task: _Task, named: dict[str, _Task], numbered: dict[str, list[str]], findings: Findings
) -> tuple[str, ...]:
    """Names of the tasks whose numbers come after a task's own."""
    match = _DAG_NAME.match(task.name)
    if match is None or not match[2]:
        return ()
    parents = [
        (parent, task.where)
        for number in match[2][1:].split("_")
        # A number that no task has is a name that no task has, so that it is counted.
        for parent in numbered.get(str(int(number)), [f"#{number}"])
    ]
    return known_parents(parents, named, findings)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if is_time(value) and value <= MAX_TIME_S else None
