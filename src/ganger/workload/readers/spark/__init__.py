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
from ganger.workload.readers.spark.application import Application
from ganger.workload.readers.spark.events import looks_like_events
from ganger.workload.readers.spark.executors import Executor, SlotCount, describe
from ganger.workload.readers.spark.jobs import Draft, drafts
from ganger.workload.readers.spark.logs import NoEventsError, applications, group, names

NAME = "spark"

_NOTES = 20
"""At most, of applications whose executors are told one by one."""


def recognise(head: bytes, path: Path) -> bool:
    """Whether a file that begins so is an event log, or belongs to a rolling one."""
    return looks_like_events(head) or (not head and path.name.startswith("appstatus_"))


def read(
    paths: Sequence[Path], findings: Findings, *, unit: Literal["job", "sql"] = "job"
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
    findings.format = "Spark event log"
    jobs: list[tuple[str, str | None, Draft]] = []
    executors: list[Executor] = []
    taken: set[str] = set()
    versions: set[str] = set()
    incomplete: Path | None = None
    for log in logs:
        try:
            read_now = applications(log, findings, unit == "sql")
        except NoEventsError:
            if len(logs) == 1:
                raise
            findings.add("dropped", "file that holds no Spark events", str(log.path))
            read_now = []
        if not (read_now and read_now[-1].ended):
            incomplete = incomplete or log.path
        for application, name in zip(read_now, names(log, read_now, taken), strict=True):
            made = drafts(application, findings, str(log.path))
            jobs += [(f"{name}/{draft.name}", application.user, draft) for draft in made]
            executors += application.lives
            versions.add(application.version)
            _note(application, name, made, str(log.path), findings)
    if not jobs and incomplete is not None:
        raise WorkloadError(f"{incomplete}: no task of a job ended in it; expected a longer log")
    findings.version = ", ".join(sorted(versions - {""}))
    findings.executors = SlotCount(executors).most() or None
    return _from_zero(jobs, findings)


def _note(
    application: Application, name: str, made: list[Draft], where: str, findings: Findings
) -> None:
    if not application.ended:
        findings.add("noted", "log without an end: its application runs, or it was cut", where)
    if not made:
        findings.add("noted", "application without a job", where)
    elif len(findings.notes) < _NOTES:
        begin_ms = min(draft.arrival_ms for draft in made)
        slots = describe(SlotCount(application.lives), begin_ms)
        findings.notes.append(f"{name}: task slots: {slots}")


def _from_zero(jobs: list[tuple[str, str | None, Draft]], findings: Findings) -> list[Job]:
    """Sort jobs by arrival and count time from the first one."""
    jobs.sort(key=lambda job: job[2].arrival_ms)
    zero_ms = jobs[0][2].arrival_ms if jobs else 0
    if jobs:
        findings.epoch_s = zero_ms / 1000.0
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
