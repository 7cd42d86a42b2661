"""Spark event logs: every Spark job, or every SQL execution, becomes a job.

The format is that of Spark's EventLoggingListener (spark.apache.org/docs/latest/monitoring.html),
which Spark's history server reads. docs/readers/spark.md says how a log becomes jobs.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ganger.errors import WorkloadError
from ganger.workload.model import Job, Recorded
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.spark.events import looks_like_events
from ganger.workload.readers.spark.executors import describe
from ganger.workload.readers.spark.jobs import Draft, drafts
from ganger.workload.readers.spark.logs import NoEventsError, applications, group, names

NAME = "spark"

_DESCRIBED = 20
"""Applications whose executors are told one by one."""


def recognise(head: bytes, path: Path) -> bool:
    """Whether a file that begins so is an event log, or belongs to a rolling one."""
    return looks_like_events(head) or (not head and path.name.startswith("appstatus_"))


def read(
    paths: Sequence[Path], findings: Findings, unit: Literal["job", "sql"] = "job"
) -> list[Job]:
    """Read event logs, sorted by the time jobs were submitted; the first is submitted at 0.

    Args:
        paths: log files, and the files of rolling logs.
        findings: takes what was dropped, repaired and guessed.
        unit: what becomes a job. "job": every Spark job. "sql": every SQL execution with all its
            Spark jobs, and every Spark job that belongs to none.

    Raises:
        WorkloadError: naming the file, if one cannot be read, or none holds what a job needs.
    """
    if unit not in ("job", "sql"):
        raise WorkloadError(f"unit is {unit!r}; expected 'job' or 'sql'")
    logs = group(paths, findings)
    findings.format = NAME
    jobs: list[tuple[str, str | None, Draft]] = []
    taken: set[str] = set()
    versions: set[str] = set()
    skipped = empty = gangs = 0
    described = 0
    incomplete: Path | None = None
    for log in logs:
        try:
            read_now = applications(log, findings, unit == "sql")
        except NoEventsError:
            if len(logs) == 1:
                raise
            findings.add("dropped", "file that holds no Spark events", str(log.path))
            incomplete = incomplete or log.path
            continue
        if not (read_now and read_now[-1].ended):
            incomplete = incomplete or log.path
        for application, name in zip(read_now, names(log, read_now, taken), strict=True):
            versions.add(application.version)
            made = drafts(application, findings, str(log.path))
            jobs += [(f"{name}/{draft.name}", application.user, draft) for draft in made.jobs]
            empty += made.empty
            skipped += made.skipped
            gangs += made.gangs
            notes = findings.notes
            if not application.ended:
                notes.append(f"{log.path}: application {name} has no end: it runs, or was cut off")
            if not made.jobs:
                notes.append(f"{log.path}: application {name} has no job")
            else:
                described += 1
                if described <= _DESCRIBED:
                    begin = min(draft.arrival_ms for draft in made.jobs)
                    notes.append(f"{name}: task slots: {describe(made.slots, begin)}")
    if not jobs and incomplete is not None:
        raise WorkloadError(f"{incomplete}: no task of a job ended in it; expected a longer log")
    findings.version = ", ".join(sorted(versions - {""}))
    if described > _DESCRIBED:
        findings.notes.append(f"{described - _DESCRIBED} more applications with task slots")
    for count, what in (
        (skipped, "stages were skipped by Spark: left out, their edges bridged"),
        (empty, "jobs or SQL executions had no task to run: left out"),
        (gangs, "barrier stages are gangs; each takes as long as its longest task"),
    ):
        if count:
            findings.notes.append(f"{count} {what}")
    return _from_zero(jobs, findings)


def _from_zero(jobs: list[tuple[str, str | None, Draft]], findings: Findings) -> list[Job]:
    """Sort jobs by arrival and count time from the first one."""
    jobs.sort(key=lambda job: job[2].arrival_ms)
    zero_ms = jobs[0][2].arrival_ms if jobs else 0
    return [
        Job(
            id=name,
            arrival_s=(draft.arrival_ms - zero_ms) / 1000.0,
            stages=draft.stages,
            user=user,
            recorded=_recorded(draft, zero_ms, findings),
        )
        for name, user, draft in jobs
    ]


def _recorded(draft: Draft, zero_ms: int, findings: Findings) -> Recorded:
    start_ms = draft.start_ms
    if start_ms is not None and start_ms < draft.arrival_ms:
        findings.add("dropped", "start of a job, which is before it was submitted", draft.where)
        start_ms = None
    return Recorded(
        start_s=None if start_ms is None else (start_ms - zero_ms) / 1000.0,
        finish_s=None if draft.finish_ms is None else (draft.finish_ms - zero_ms) / 1000.0,
        status=draft.status,
    )
