"""Grid Workload Format, as OpenDC's workflow traces have it: CSV, a task a row, seconds.

Its columns are WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs and Dependencies, which
are JobIDs of the same workflow with spaces between them. Cells may be padded.

A workflow becomes a job. Its tasks become stages, those of several processors as gangs; it arrives
when the first of them was submitted. Later submissions say when a task became ready in that
system, and nothing of its order. A workflow of which a task is unusable is left out: a graph with a
part missing is another one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TASKS, MAX_TIME_S, Job, Pool, Stage, topological_order
from ganger.workload.readers.clock import is_time, start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.graph import known_parents
from ganger.workload.readers.ids import Ids
from ganger.workload.readers.opening import Truncated, lines

NAME = "gwf"

_REQUIRED = ("workflowid", "jobid", "submittime", "runtime", "nprocs")
_EXPECTED = "a header " + ", ".join(
    ("WorkflowID", "JobID", "SubmitTime", "RunTime", "NProcs", "ReqNProcs", "Dependencies")
)

_BROKEN = "workflow with a task whose time or processors are unknown or no number"
_CYCLE = "workflow whose tasks wait for each other"


def recognise(head: bytes, path: Path) -> bool:
    """The first line has the columns."""
    start = head.lstrip().split(b"\n", 1)[0]
    return set(_REQUIRED) <= set(_cells(start.lower()))


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read workflows into jobs, sorted by arrival, those of several files on one clock.

    Raises:
        WorkloadError: if a file cannot be read, has another header, or there is no workflow.
    """
    findings.format = "Grid Workload Format"
    jobs: list[Job] = []
    ids = Ids()
    for path in paths:
        findings.files += 1
        for workflow, tasks in _workflows(path, findings).items():
            job = _job(workflow if len(paths) == 1 else f"{path.stem}:{workflow}", tasks, findings)
            if job is not None:
                if job.id in ids:
                    findings.add("repaired", "workflow id is used by an earlier file", str(path))
                jobs.append(Job(id=ids.take(job.id), arrival_s=job.arrival_s, stages=job.stages))
    if not jobs:
        raise WorkloadError(
            f"{', '.join(map(str, paths[:3]))}: there is no usable workflow; expected {_EXPECTED}"
        )
    start_at_zero(jobs)
    yield from jobs


class _Task:
    """A row."""

    def __init__(self, row: dict[str, str], where: str) -> None:
        self.where = where
        self.id = row["jobid"]
        self.parents = row.get("dependencies", "").split()
        self.submit_s = _seconds(row["submittime"])
        self.run_s = _seconds(row["runtime"])
        processors = _seconds(row["nprocs"]) or 0.0
        if processors <= 0:
            processors = _seconds(row.get("reqnprocs", "")) or 0.0
        self.processors = int(processors) if processors.is_integer() else 0

    def usable(self) -> bool:
        return (
            self.submit_s is not None
            and self.run_s is not None
            and 0.0 <= self.run_s <= MAX_TIME_S
            and 1 <= self.processors <= MAX_TASKS
        )


def _workflows(path: Path, findings: Findings) -> dict[str, list[_Task]]:
    """The tasks of each workflow of a file."""
    workflows: dict[str, list[_Task]] = {}
    columns: list[str] | None = None
    number = 0
    try:
        for number, line in lines(path):
            cells = _cells(line)
            if not any(cells) or line.lstrip().startswith(b"#"):
                continue
            if columns is None:
                columns = [name.lower() for name in cells]
                if not set(_REQUIRED) <= set(columns):
                    raise WorkloadError(f"{path}:{number}: expected {_EXPECTED}")
                continue
            findings.rows += 1
            # Dependencies are last, and may be left out with their comma.
            if not len(columns) - 1 <= len(cells) <= len(columns):
                findings.add("dropped", "another number of columns", f"{path}:{number}")
                continue
            row = dict(zip(columns, cells, strict=False))
            workflows.setdefault(row["workflowid"], []).append(_Task(row, f"{path}:{number}"))
    except Truncated:
        findings.add(
            "dropped", "compressed data end too early: what would follow", f"{path}:{number}"
        )
    return workflows


def _job(id: str, tasks: list[_Task], findings: Findings) -> Job | None:
    """A workflow's job, on the file's clock; None if it is unusable, which is counted."""
    broken = [task for task in tasks if not task.usable()]
    if broken:
        findings.add("dropped", _BROKEN, broken[0].where)
        return None
    by_id: dict[str, _Task] = {}
    for task in tasks:
        if task.id in by_id:
            findings.add("dropped", "task id is used by an earlier row", task.where)
        else:
            by_id[task.id] = task
    stages = tuple(
        Stage(
            id=task.id,
            parents=known_parents(
                [(parent, task.where) for parent in task.parents], by_id, findings
            ),
            task_count=task.processors,
            durations=Pool((task.run_s or 0.0,)),
            gang=task.processors > 1,
        )
        for task in by_id.values()
    )
    try:
        topological_order(stages)
    except WorkloadError:
        findings.add("dropped", _CYCLE, tasks[0].where)
        return None
    return Job(id=id, arrival_s=min(task.submit_s or 0.0 for task in tasks), stages=stages)


def _cells(line: bytes) -> list[str]:
    return [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]


def _seconds(text: str) -> float | None:
    """A number, -1 being unknown; None if there is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if is_time(value) and value != -1 else None
