"""WfFormat, the JSON workflows of WfCommons, versions 1.0 to 1.6.

Up to 1.4, `workflow.tasks` (`jobs` before 1.3) holds each task's parents and run time; from 1.5 on,
`workflow.specification.tasks` holds the parents and `workflow.execution.tasks` the run times. 1.6
only adds summaries. Up to 1.4 a parent is called by its name, later by its id: here either will do.

A file becomes one job that arrives at 0: when workflows of different sites and years ran says
nothing about how they would arrive together. Each task is a stage of its own, as no two need be
alike. What it used of memory, and cores above 1, are demanded of its executor. Files that tasks
read and write are left out.

Source: https://github.com/wfcommons/WfFormat, README and migration tool.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ganger.errors import WorkloadError
from ganger.workload.model import (
    MAX_TIME_S,
    Demand,
    Job,
    PerTask,
    Recorded,
    Stage,
    check_stages,
)
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.graph import job_ids, known_parents
from ganger.workload.readers.opening import open_bytes

NAME = "wfformat"

_MAX_BYTES = 1 << 30  # of a file, decompressed: JSON is read whole
_BOM = b"\xef\xbb\xbf"
_GIB = 2.0**30


class _Task(Struct, rename="camel"):
    """A task in any of the sections; `runtime`, `cores` and `memory` are the names up to 1.3."""

    id: str | int | UnsetType = UNSET
    name: str | UnsetType = UNSET
    parents: list[str | int] | None = None
    children: list[str | int] | None = None
    runtime_in_seconds: float | None = None
    runtime: float | None = None
    core_count: float | None = None
    cores: float | None = None
    memory_in_bytes: float | None = None
    memory: float | None = None  # in units of 1000 bytes


class _Section(Struct, rename="camel"):
    """The specification or the execution."""

    tasks: list[_Task] | None = None
    makespan_in_seconds: float | None = None


class _Workflow(Struct, rename="camel"):
    specification: _Section | None = None
    execution: _Section | None = None
    tasks: list[_Task] | None = None
    jobs: list[_Task] | None = None
    makespan_in_seconds: float | None = None
    makespan: float | None = None


class _Instance(Struct, rename="camel"):
    workflow: _Workflow
    schema_version: str | float | None = None


_decoder = msgspec.json.Decoder(_Instance)


@dataclass
class _Tasks:
    """The tasks of one file by their ids, in the file's order."""

    where: str
    """Path and section."""
    nested: bool
    """From 1.5 on: parents are ids, and the children lists say the same as the parents lists."""
    by_id: dict[str, _Task] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)
    """Name -> ids of the tasks of that name."""


def recognise(head: bytes, path: Path) -> bool:
    """A JSON object with a workflow in it; not the schema of such objects."""
    start = head.removeprefix(_BOM).lstrip()
    return (
        start.startswith(b"{")
        and re.search(rb'"workflow"\s*:\s*\{', start) is not None
        and re.search(rb'"\$schema"\s*:\s*"http', start) is None
    )


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """One job per file; its recorded finish is the makespan that the file states.

    Raises:
        WorkloadError: with the path and place of what is wrong.
    """
    findings.format = "WfFormat"
    versions: dict[str, None] = {}
    for path, name in zip(paths, job_ids(paths), strict=True):
        findings.files += 1
        instance = _decode(path)
        if instance.schema_version is not None:
            versions[str(instance.schema_version)] = None
            findings.version = ", ".join(versions)
        workflow = instance.workflow
        stages = _stages(workflow, path, findings)
        check_stages(stages, f"{path}")
        recorded = _recorded(workflow, path, findings)
        yield Job(id=name, arrival_s=0.0, stages=stages, recorded=recorded)


def _decode(path: Path) -> _Instance:
    text = bytearray()
    with open_bytes(path) as file:
        while chunk := file.read(1 << 20):
            text += chunk
            if len(text) > _MAX_BYTES:
                expected = f"expected at most {_MAX_BYTES} bytes of JSON"
                raise WorkloadError(f"{path}: is too long; {expected}")
    if text.startswith(_BOM):
        del text[: len(_BOM)]
    try:
        return _decoder.decode(text)
    except RecursionError:
        raise WorkloadError(f"{path}: nested too deeply; expected a WfFormat workflow") from None
    except (msgspec.MsgspecError, UnicodeError) as error:
        reason = " ".join(str(error).split())
        at = re.search(r"\(byte (\d+)\)", reason)
        line = f":{text.count(10, 0, int(at[1])) + 1}" if at else ""
        raise WorkloadError(f"{path}{line}: {reason}; expected a WfFormat workflow") from None


def _stages(workflow: _Workflow, path: Path, findings: Findings) -> tuple[Stage, ...]:
    if workflow.specification is not None:
        listed, section = workflow.specification.tasks, "workflow.specification.tasks"
    elif workflow.jobs is not None:
        listed, section = workflow.jobs, "workflow.jobs"
    else:
        listed, section = workflow.tasks, "workflow.tasks"
    if not listed:
        raise WorkloadError(f"{path}: {section} has no tasks; expected at least one")
    tasks = _Tasks(f"{path}: {section}", nested=workflow.specification is not None)
    for i, task in enumerate(listed):
        findings.rows += 1
        _add(tasks, task, f"{tasks.where}[{i}]", findings)
    measured = tasks.by_id
    if tasks.nested:
        executed = workflow.execution.tasks if workflow.execution is not None else None
        measured = _measured(tasks, executed or [], path, findings)
    if all(_run_s(task) is None for task in measured.values()):
        raise WorkloadError(f"{path}: no task has a run time; expected a workflow that was run")
    parents = _parents(tasks, findings)
    nothing = _Task()
    return tuple(
        Stage(
            id=name,
            parents=known_parents(parents[name], tasks.by_id, findings),
            task_count=1,
            durations=PerTask((_duration_s(task, tasks.place[name], findings),)),
            demand=_demand(task, tasks.place[name], findings),
        )
        for name in tasks.by_id
        for task in (measured.get(name, nothing),)
    )


def _add(tasks: _Tasks, task: _Task, where: str, findings: Findings) -> None:
    name = task.name if task.id is UNSET else str(task.id)
    if name is UNSET:
        raise WorkloadError(f"{where}: has neither id nor name; expected an id")
    if name in tasks.by_id:
        findings.add("dropped", "task with the id of an earlier task", where)
        return
    tasks.by_id[name] = task
    tasks.place[name] = where
    if task.name is not UNSET:
        tasks.named.setdefault(task.name, []).append(name)


def _measured(
    tasks: _Tasks, executed: Iterable[_Task], path: Path, findings: Findings
) -> dict[str, _Task]:
    """The entries of the execution by the ids of the specification."""
    measured: dict[str, _Task] = {}
    for i, task in enumerate(executed):
        where = f"{path}: workflow.execution.tasks[{i}]"
        name = "" if task.id is UNSET else str(task.id)
        if name not in tasks.by_id:
            findings.add("dropped", "execution of a task that is not specified", where)
        elif name in measured:
            findings.add("dropped", "second execution of a task", where)
        else:
            measured[name] = task
    return measured


def _parents(tasks: _Tasks, findings: Findings) -> dict[str, list[tuple[str, str]]]:
    """Each task's parents as it or they say, with places; unknown ones are among them."""
    parents: dict[str, list[tuple[str, str]]] = {name: [] for name in tasks.by_id}
    for name, task in tasks.by_id.items():
        where = tasks.place[name]
        for reference in task.parents or ():
            for parent in _called(str(reference), tasks, where, findings):
                parents[name].append((parent, where))
    listed = {name: {parent for parent, _ in found} for name, found in parents.items()}
    for name, task in tasks.by_id.items():
        where = tasks.place[name]
        for reference in task.children or ():
            for child in _called(str(reference), tasks, where, findings):
                if child not in listed:
                    findings.add("dropped", "child that does not exist", where)
                elif name not in listed[child]:
                    listed[child].add(name)
                    parents[child].append((name, where))
                    # Up to 1.4, either side may state a dependency.
                    if tasks.nested:
                        findings.add("repaired", "child that does not list its parent", where)
    return parents


def _called(reference: str, tasks: _Tasks, where: str, findings: Findings) -> list[str]:
    """Ids of the tasks that a reference by id, or by name, may mean; itself, if of none."""
    if reference in tasks.by_id:
        return [reference]
    named = tasks.named.get(reference, [])
    if len(named) > 1:
        findings.add("guessed", "dependency on a name that several tasks have: on all", where)
    elif named and tasks.nested:
        findings.add("repaired", "dependency by name instead of id", where)
    return named or [reference]


def _run_s(task: _Task) -> float | None:
    return task.runtime if task.runtime_in_seconds is None else task.runtime_in_seconds


def _duration_s(task: _Task, where: str, findings: Findings) -> float:
    run_s = _run_s(task)
    if run_s is None:
        findings.add("guessed", "run time is missing: 0 s", where)
        return 0.0
    if run_s < 0.0:
        findings.add("guessed", "run time is below 0: 0 s", where)
        return 0.0
    return run_s


def _demand(task: _Task, where: str, findings: Findings) -> Demand | None:
    """What the task asks of an executor; one core is what every executor has."""
    cores = task.cores if task.core_count is None else task.core_count
    if cores is not None and cores < 1.0:
        findings.add("dropped", "core count below 1", where)
    memory = task.memory_in_bytes
    if memory is None and task.memory is not None:
        memory = task.memory * 1000.0
    if memory is not None and memory < 0.0:
        findings.add("dropped", "memory below 0", where)
    demand = Demand(
        cores=cores if cores is not None and cores > 1.0 else 0.0,
        memory=memory / _GIB if memory is not None and memory > 0.0 else 0.0,
    )
    return demand if demand.cores or demand.memory else None


def _recorded(workflow: _Workflow, path: Path, findings: Findings) -> Recorded | None:
    made_s = workflow.makespan_in_seconds
    if workflow.execution is not None:
        made_s = workflow.execution.makespan_in_seconds
    elif made_s is None:
        made_s = workflow.makespan
    if made_s is None:
        return None
    if not 0.0 <= made_s <= MAX_TIME_S:
        findings.add("dropped", "makespan that is no time", f"{path}")
        return None
    return Recorded(start_s=0.0, finish_s=made_s)
