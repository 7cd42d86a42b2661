"""Microsoft's Philly trace of jobs that train networks on GPUs: its log in JSON, or a table.

Source: https://github.com/msr-fiddle/philly-traces. The log is a list of records with status, vc,
jobid, attempts, submitted_time and user; an attempt has start_time, end_time and detail, which
lists the GPUs on each machine. The table is CSV with the columns timestamp, duration, num_gpus and
cluster (the virtual cluster), as simulators of the trace use it.

A job becomes one gang stage of as many tasks as GPUs; an executor is a GPU. Its duration is that of
all its attempts together, which are taken to need as many GPUs as the widest; its user is who
submitted it, or the virtual cluster where that is all there is. Nobody asked for a run time:
schedulers are told the real one (guessed). Times are without a zone and taken for UTC, so that
hours of the day are as the log shows them.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TASKS, Job, Recorded
from ganger.workload.readers.clock import is_time, start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.ids import Ids
from ganger.workload.readers.opening import Truncated, lines, open_bytes
from ganger.workload.readers.rigid import RigidStages

NAME = "philly"

_COLUMNS = ("timestamp", "duration", "num_gpus")
_EXPECTED = "cluster_job_log, or a CSV table with timestamp, duration and num_gpus"
_LARGEST_LOG = 1 << 32

_NO_REQUEST = "no requested run time: schedulers are told the real one"
_BAD_NUMBERS = "time, duration or number of GPUs is missing, negative or no number"
_NO_ATTEMPT = "never ran: no attempt has a start and an end"
_NO_SUBMIT = "submitted time is unknown: taken to arrive when it started"
_LOST_ATTEMPT = "attempt without start, end or GPUs, or that ends before it starts"
_EARLY = "starts before it was submitted: start and finish are taken for unknown"
_AGAIN = "job id is used by an earlier record: #2, #3, ... is put after it"


class _Machine(Struct):
    gpus: list[str] | None = None


class _Attempt(Struct):
    start_time: str | None = None
    end_time: str | None = None
    detail: list[_Machine] | None = None


class _Record(Struct):
    jobid: str
    status: str | None = None
    vc: str | None = None
    user: str | None = None
    submitted_time: str | None = None
    attempts: list[_Attempt] | None = None


def recognise(head: bytes, path: Path) -> bool:
    """A list whose first record has a jobid and attempts, or a header with the columns."""
    start = head.lstrip()
    if start.startswith(b"["):
        return all(f'"{key}"'.encode() in start for key in ("jobid", "attempts", "submitted_time"))
    return set(_COLUMNS) <= set(_cells(start.split(b"\n", 1)[0]))


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read logs or tables into jobs, sorted by arrival. A log is held in memory as a whole.

    Raises:
        WorkloadError: if a file cannot be read, is neither, or there is no job.
    """
    findings.format = "Philly"
    jobs: list[Job] = []
    ids, stages = Ids(), RigidStages()
    for path in paths:
        findings.files += 1
        with open_bytes(path) as stream:
            is_log = stream.read(1) in (b"[", b" ", b"\n", b"\r")
        read_file = _read_log if is_log else _read_table
        for job in read_file(path, stages, findings):
            if job.id in ids:
                findings.add("repaired", _AGAIN, str(path))
                job = msgspec.structs.replace(job, id=ids.take(job.id))
            else:
                ids.take(job.id)
            jobs.append(job)
    if not jobs:
        raise WorkloadError(
            f"{', '.join(map(str, paths[:3]))}: there is no job that ran; expected {_EXPECTED}"
        )
    findings.epoch_s = start_at_zero(jobs)
    yield from jobs


def _read_log(path: Path, stages: RigidStages, findings: Findings) -> Iterator[Job]:
    with open_bytes(path) as stream:
        text = stream.read(_LARGEST_LOG)
    try:
        records = msgspec.json.decode(text, type=list[_Record])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise WorkloadError(f"{path}: {reason}; expected {_EXPECTED}") from None
    for number, record in enumerate(records, start=1):
        findings.rows += 1
        where = f"{path}:record {number}"
        job = _job(record, where, stages, findings)
        if job is not None:
            yield job


def _job(record: _Record, where: str, stages: RigidStages, findings: Findings) -> Job | None:
    run_s = 0.0
    gpus = 0
    start_s = end_s = None
    for attempt in record.attempts or ():
        begin_s, finish_s = _time_s(attempt.start_time), _time_s(attempt.end_time)
        wide = sum(len(machine.gpus or ()) for machine in attempt.detail or ())
        if begin_s is None or finish_s is None or finish_s < begin_s or wide == 0:
            findings.add("dropped", _LOST_ATTEMPT, where)
            continue
        run_s += finish_s - begin_s
        gpus = max(gpus, wide)
        start_s = begin_s if start_s is None else min(start_s, begin_s)
        end_s = finish_s if end_s is None else max(end_s, finish_s)
    if start_s is None or end_s is None:
        findings.add("dropped", _NO_ATTEMPT, where)
        return None
    submit_s = _time_s(record.submitted_time)
    if submit_s is None:
        findings.add("guessed", _NO_SUBMIT, where)
        submit_s = start_s
    recorded = Recorded(start_s=start_s, finish_s=end_s, status=record.status)
    if start_s < submit_s:
        findings.add("repaired", _EARLY, where)
        recorded = Recorded(status=record.status)
    findings.add("guessed", _NO_REQUEST, where)
    return Job(
        id=record.jobid,
        arrival_s=submit_s,
        stages=stages[gpus, run_s, None, 0.0],
        user=record.user or record.vc,
        recorded=recorded,
    )


def _read_table(path: Path, stages: RigidStages, findings: Findings) -> Iterator[Job]:
    columns: list[str] | None = None
    number = 0
    try:
        for number, line in lines(path):
            cells = _cells(line)
            if columns is None:
                columns = cells
                if not set(_COLUMNS) <= set(columns):
                    raise WorkloadError(f"{path}:{number}: expected {_EXPECTED}")
                continue
            if not any(cells):
                continue
            findings.rows += 1
            where = f"{path}:{number}"
            row = dict(zip(columns, cells, strict=False))
            submit_s = _time_s(row["timestamp"])
            run_s, gpus = _number(row.get("duration")), _number(row.get("num_gpus"))
            if (
                len(cells) != len(columns)
                or submit_s is None
                or run_s is None
                or gpus is None
                or not gpus.is_integer()
                or not 1 <= gpus <= MAX_TASKS
            ):
                findings.add("dropped", _BAD_NUMBERS, where)
                continue
            findings.add("guessed", _NO_REQUEST, where)
            yield Job(
                id=f"{path.stem}:{number}",
                arrival_s=submit_s,
                stages=stages[int(gpus), run_s, None, 0.0],
                user=row.get("user") or row.get("cluster") or row.get("vc") or None,
            )
    except Truncated:
        findings.add(
            "dropped", "compressed data end too early: what would follow", f"{path}:{number}"
        )


def _cells(line: bytes) -> list[str]:
    return [cell.strip() for cell in line.decode("utf-8", "replace").split(",")]


def _number(text: str | None) -> float | None:
    """A number, 0 or more; None if there is none."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if is_time(value) and value >= 0 else None


def _time_s(text: str | None) -> float | None:
    """Unix time of "2017-10-07 01:12:09", also with PST or PDT after it; None if there is none."""
    try:
        return datetime.fromisoformat((text or "")[:19]).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
