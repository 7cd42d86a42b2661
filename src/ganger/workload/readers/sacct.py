"""Slurm's accounting: what `sacct --parsable2` prints, with any columns, or without a header.

Sources: the manual page of sacct, https://slurm.schedmd.com/sacct.html, for the columns, and Open
XDMoD's documentation of Slurm for the dump of 26 columns without a header that it reads.

A row of a whole job (steps such as 17.batch are parts of one) becomes a job of one gang stage:

- its tasks are its allocated CPUs; an executor is a CPU. Where only the requested number is known,
  that (guessed);
- its duration is Elapsed, or End less Start; a job that never started or has not ended is dropped;
- limit and estimate are the time limit; without one, the estimate is the run time (guessed);
- memory demanded is ReqMem, shared out among the CPUs;
- arrivals count from the first submission. Times without a zone are taken for UTC, so that hours of
  the day are as the log shows them.

A name or command line may hold the separator, or line ends. Such rows are put together again where
there is one way to do it that fits the columns of times, states and numbers.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TASKS, MAX_TIME_S, Job, Recorded
from ganger.workload.readers.clock import start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.ids import Ids
from ganger.workload.readers.opening import Truncated, lines
from ganger.workload.readers.rigid import RigidStages

NAME = "sacct"

DUMP_COLUMNS = (
    *("jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid"),
    *("submit", "eligible", "start", "end", "elapsed", "exitcode", "state", "nnodes", "ncpus"),
    *("reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname"),
)
"""Of the dump without a header."""

_FREE_TEXT = (
    "jobname",
    "submitline",
    "workdir",
    "constraints",
    "comment",
    "admincomment",
    "systemcomment",
    "extra",
)
"""Columns that may hold the separator, likeliest first."""

_MOST_PIECES = 1000  # lines that one row may be broken into
_PER_CPU_FLAG = 1 << 31  # Slurm's own mark, in MiB, which old versions print
_EXPECTED = "rows of sacct --parsable2, with a header that names JobID and Submit or Start"

_PIECE = "piece of a row: fewer columns than the header has"
_UNFIT = "values do not fit their columns"
_STEP = "job step: the job has a row of its own"
_NO_ID = "no job id"
_SAME = "the same row again"
_AGAIN = "job id is used by an earlier row, as after a requeue: #2, #3, ... is put after it"
_REJOINED = "separator or line end inside a text: put together again"
_NOT_ENDED = "has not ended (RUNNING, PENDING, SUSPENDED, ...)"
_NEVER_RAN = "never started"
_NO_SUBMIT = "submit time is unknown"
_NO_RUN = "run time is unknown: neither Elapsed nor Start and End"
_NO_CPUS = "CPUs are unknown: neither allocated nor requested"
_AS_REQUESTED = "allocated CPUs are unknown: as many as requested"
_NODES = "no column of CPUs: as many as nodes"
_ONE = "no column of CPUs or nodes: one"
_NO_LIMIT = "no time limit: schedulers are told the run time"
_NO_SUBMIT_COLUMN = "no column Submit: jobs are taken to arrive when they start"
_EARLY = "starts before it was submitted: start and finish are taken for unknown"
_ELAPSED_OTHER = "Elapsed is not End less Start, as after a suspension: Elapsed is the run time"
_FLAG = "ReqMem holds Slurm's mark for memory per CPU, 2^31: it is taken off"
_OVERRAN = "ran longer than its time limit"

_UNFINISHED = {
    *("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "COMPLETING", "CONFIGURING"),
    *("REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "R", "PD", "S"),
}
_NO_TIME = {"", "unknown", "none", "n/a", "invalid"}


def recognise(head: bytes, path: Path) -> bool:
    """A header with the columns of sacct, or rows of the dump without one."""
    for line in head.splitlines()[:20]:
        fields = line.decode("utf-8", "replace").split("|")
        if _header(fields) is not None:
            return True
        if len(fields) >= len(DUMP_COLUMNS) and _align(fields, DUMP_COLUMNS) is not None:
            return True
    return False


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read dumps into jobs, sorted by arrival. Files may overlap: a row in both counts once.

    Raises:
        WorkloadError: if a file cannot be read, or there is no job.
    """
    findings.format = "Slurm accounting"
    jobs: list[Job] = []
    ids = Ids()
    seen: set[tuple[str | None, ...]] = set()
    shapes = RigidStages()
    rows_before = findings.rows
    for path in paths:
        findings.files += 1
        for where, row in _rows(path, findings):
            job = _job(row, where, ids, seen, shapes, findings)
            if job is not None:
                jobs.append(job)
    if not jobs:
        rows = findings.rows - rows_before
        what = f"none of its {rows} rows is a job that ran" if rows else "there are no rows"
        raise WorkloadError(f"{', '.join(map(str, paths[:3]))}: {what}; expected {_EXPECTED}")
    findings.epoch_s = start_at_zero(jobs)
    jobs.reverse()
    while jobs:  # handed over one by one, so that nobody keeps a list of them all
        yield jobs.pop()


# --- rows


def _rows(path: Path, findings: Findings) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a file by column, in lower case, with their places."""
    columns: Sequence[str] | None = None
    pieces: list[str] = []
    first = number = 0
    try:
        for number, line in lines(path):
            text = line.decode("utf-8", "replace")
            if columns is None:
                if not text.strip():
                    continue
                columns = _header(text.split("|"))
                if columns is not None:
                    continue
                columns = DUMP_COLUMNS
            findings.rows += 1
            row = _align(text.split("|"), columns)
            if row is not None:
                _drop_pieces(pieces, f"{path}:{first}", findings)
                if text.count("|") >= len(columns):
                    findings.add("repaired", _REJOINED, f"{path}:{number}")
                yield f"{path}:{number}", row
                continue
            if text.count("|") >= len(columns) - 1:
                _drop_pieces(pieces, f"{path}:{first}", findings)
                findings.add("dropped", _UNFIT, f"{path}:{number}")
                continue
            if not pieces:
                first = number
            pieces.append(text)
            if len(pieces) > 1 and sum(piece.count("|") for piece in pieces) >= len(columns) - 1:
                row = _align("\n".join(pieces).split("|"), columns)
                if row is not None:
                    findings.add("repaired", _REJOINED, f"{path}:{first}")
                    findings.rows -= len(pieces) - 1
                    pieces.clear()
                    yield f"{path}:{first}", row
            if len(pieces) > _MOST_PIECES:
                _drop_pieces(pieces, f"{path}:{first}", findings)
    except Truncated:
        findings.add(
            "dropped", "compressed data end too early: what would follow", f"{path}:{number}"
        )
    _drop_pieces(pieces, f"{path}:{first}", findings)


def _drop_pieces(pieces: list[str], where: str, findings: Findings) -> None:
    if pieces:
        findings.add("dropped", _PIECE, where, count=len(pieces))
        pieces.clear()


def _header(fields: Sequence[str]) -> tuple[str, ...] | None:
    """The columns, if these are their names."""
    names = tuple(field.strip().lower() for field in fields)
    if not {"jobid", "jobidraw"} & set(names) or not {"submit", "start"} & set(names):
        return None
    return names


def _align(fields: Sequence[str], columns: Sequence[str]) -> dict[str, str] | None:
    """Fields by column; None if there is no way, or more than one, that fits the columns.

    Where there are more fields than columns, one text, or two, held separators.
    """
    extra = len(fields) - len(columns)
    if extra < 0:
        return None
    if extra == 0:
        row = dict(zip(columns, fields, strict=True))
        return row if _fits(row) else None
    texts = [columns.index(name) for name in _FREE_TEXT if name in columns]
    for spread in (
        [{at: extra} for at in texts],
        [
            {a: some, b: extra - some}
            for a, b in combinations(texts, 2)
            for some in range(1, min(extra, 20))
        ],
    ):
        ways = [row for row in (_joined(fields, columns, taken) for taken in spread) if _fits(row)]
        if not ways:
            continue
        # A shifted row may fit where empty fields fit anything: what fills most columns is right.
        filled = [sum(bool(row.get(name)) for name in _CHECKS) for row in ways]
        best = [row for row, count in zip(ways, filled, strict=True) if count == max(filled)]
        # Ways that differ in texts only tell us the same.
        told = {tuple(row.get(name) for name in _USED) for row in best}
        return best[0] if len(told) == 1 else None
    return None


def _joined(fields: Sequence[str], columns: Sequence[str], taken: dict[int, int]) -> dict[str, str]:
    """Fields by column, if each of these columns held so many separators."""
    row = {}
    at = 0
    for i, name in enumerate(columns):
        size = 1 + taken.get(i, 0)
        row[name] = "|".join(fields[at : at + size])
        at += size
    return row


_JOB_ID = re.compile(r"(\d+([_+.\[].*)?)?$")
_COUNT = re.compile(r"\d*$")
_STATE = re.compile(r"[A-Z_]+\+?( by \S+)?$")
_TRES = re.compile(r"(\w[\w/:.-]*=.*)?$")
_SPAN = re.compile(r"(\d+-)?\d+(:\d+){0,2}(\.\d+)?$")


def _is_time(text: str) -> bool:
    return text.lower() in _NO_TIME or _time_s(text) is not None


def _is_span(text: str) -> bool:
    return not text or _SPAN.match(text) is not None or text.lower() in _NO_TIME


_CHECKS: dict[str, Callable[[str], object]] = {
    "jobid": _JOB_ID.match,
    "jobidraw": _JOB_ID.match,
    "submit": _is_time,
    "eligible": _is_time,
    "start": _is_time,
    "end": _is_time,
    "elapsed": _is_span,
    "elapsedraw": _COUNT.match,
    "state": _STATE.match,
    "alloccpus": _COUNT.match,
    "ncpus": _COUNT.match,
    "reqcpus": _COUNT.match,
    "nnodes": _COUNT.match,
    "allocnodes": _COUNT.match,
    "alloctres": _TRES.match,
    "reqtres": _TRES.match,
    "uid": _COUNT.match,
}
_CPU_COLUMNS = ("alloccpus", "ncpus", "alloctres", "reqcpus", "reqtres")
_USED = (
    *("jobid", "jobidraw", "submit", "start", "end", "elapsed", "elapsedraw", "state", "user"),
    *("uid", "alloccpus", "ncpus", "reqcpus", "alloctres", "reqtres", "nnodes", "allocnodes"),
    *("reqmem", "timelimit", "timelimitraw", "nodelist"),
)


def _fits(row: dict[str, str]) -> bool:
    return all(name not in row or check(row[name].strip()) for name, check in _CHECKS.items())


# --- a row's job


def _job(
    row: dict[str, str],
    where: str,
    ids: Ids,
    seen: set[tuple[str | None, ...]],
    shapes: RigidStages,
    findings: Findings,
) -> Job | None:
    """The job of a row, its times Unix times; None if it is none, which is counted."""
    id = (row.get("jobid") or row.get("jobidraw") or "").strip()
    if not id:
        findings.add("dropped", _NO_ID, where)
        return None
    if "." in id:
        findings.add("noted", _STEP, where)
        return None
    same = tuple(row.get(name) for name in ("jobid", "jobidraw", "submit", "start", "end", "state"))
    if same in seen:
        findings.add("dropped", _SAME, where)
        return None
    seen.add(same)

    start_s, end_s = _time_s(row.get("start", "")), _time_s(row.get("end", ""))
    state = (row.get("state", "").split() or [""])[0].rstrip("+")
    if state in _UNFINISHED:
        findings.add("dropped", _NOT_ENDED, where)
        return None
    run_s = _elapsed_s(row)
    if run_s is None and start_s is not None and end_s is not None and end_s >= start_s:
        run_s = end_s - start_s
    unassigned = row.get("nodelist", "None assigned").strip() in ("None assigned", "")
    if ("start" in row and start_s is None) or (state == "CANCELLED" and not run_s and unassigned):
        findings.add("dropped", _NEVER_RAN, where)
        return None
    if run_s is None or not run_s <= MAX_TIME_S:
        findings.add("dropped", _NO_RUN, where)
        return None

    submit_s = _time_s(row.get("submit", ""))
    if submit_s is None:
        if "submit" in row or start_s is None:
            findings.add("dropped", _NO_SUBMIT, where)
            return None
        findings.add("guessed", _NO_SUBMIT_COLUMN, where)
        submit_s = start_s
    cpus = _allocated(row)
    if not any(name in row for name in _CPU_COLUMNS):
        cpus = _nodes(row)
        findings.add("guessed", _NODES if cpus else _ONE, where)
        cpus = cpus or 1
    elif cpus == 0:
        cpus = _number(row.get("reqcpus")) or _tres(row.get("reqtres"), "cpu")
        if not 0 < cpus <= MAX_TASKS:
            findings.add("dropped", _NO_CPUS, where)
            return None
        findings.add("guessed", _AS_REQUESTED, where)
    limit_s = _limit_s(row)
    if limit_s is None:
        findings.add("guessed", _NO_LIMIT, where)
    elif run_s > limit_s:
        findings.add("noted", _OVERRAN, where)
    memory = _memory_per_cpu(row, cpus, where, findings)

    if id in ids:
        findings.add("repaired", _AGAIN, where)
    if start_s is not None and start_s < submit_s:
        findings.add("repaired", _EARLY, where)
        start_s = end_s = None
    elif start_s is not None:
        if end_s is None or end_s < start_s:
            end_s = start_s + run_s
        elif abs(end_s - start_s - run_s) >= 1:
            findings.add("noted", _ELAPSED_OTHER, where)
    return Job(
        id=ids.take(id),
        arrival_s=submit_s,
        stages=shapes[cpus, run_s, limit_s, memory],
        user=(row.get("user") or row.get("uid") or "").strip() or None,
        recorded=Recorded(
            start_s=start_s, finish_s=None if start_s is None else end_s, status=state or None
        ),
    )


def _allocated(row: dict[str, str]) -> int:
    """Allocated CPUs; 0 if that is unknown."""
    cpus = (
        _number(row.get("alloccpus"))
        or _number(row.get("ncpus"))
        or _tres(row.get("alloctres"), "cpu")
    )
    return cpus if cpus <= MAX_TASKS else 0


def _nodes(row: dict[str, str]) -> int:
    return _number(row.get("allocnodes")) or _number(row.get("nnodes"))


def _number(text: str | None) -> int:
    """A count; 0 if there is none."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def _tres(text: str | None, name: str) -> int:
    """A count among trackable resources, as cpu in "cpu=12,mem=62.50G,node=1"."""
    for part in (text or "").split(","):
        key, _, value = part.partition("=")
        if key.strip() == name:
            return _number(value)
    return 0


def _time_s(text: str) -> float | None:
    """Unix time of "2024-05-01T10:00:00", with or without a zone, or of a number; None if none."""
    text = text.strip()
    if text.isascii() and text.isdigit() and 6 < len(text) < 13:  # SLURM_TIME_FORMAT=%s
        return float(text)
    if len(text) < 16:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def span_s(text: str) -> float | None:
    """Seconds of [days-]hours:minutes:seconds, minutes:seconds, or days-hours[:minutes]."""
    if not _SPAN.match(text) or not text.isascii():
        return None
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if dash:
        parts += [0.0] * (3 - len(parts))  # days-hours leaves out the end, not the beginning
    seconds = 0.0
    for part in parts:
        seconds = seconds * 60 + part
    return seconds + float(days or 0) * 86400


def _elapsed_s(row: dict[str, str]) -> float | None:
    raw = row.get("elapsedraw", "").strip()
    if raw.isascii() and raw.isdigit() and len(raw) < 16:
        return float(raw)
    return span_s(row.get("elapsed", "").strip())


def _limit_s(row: dict[str, str]) -> float | None:
    """The time limit; None if there is none, as with UNLIMITED."""
    limit_s = span_s(row.get("timelimit", "").strip())
    if limit_s is None and (minutes := _number(row.get("timelimitraw"))):
        limit_s = minutes * 60.0
    return limit_s if limit_s and limit_s <= MAX_TIME_S else None


_MEMORY = re.compile(r"(\d+(?:\.\d*)?)([KMGTP]?)([nc]?)$")
_GIB = {"K": 2.0**-20, "": 2.0**-10, "M": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20}


def _memory_per_cpu(row: dict[str, str], cpus: int, where: str, findings: Findings) -> float:
    """GiB of ReqMem for each CPU: of "31000Mn" a node's, of "3000Mc" a CPU's, else the job's."""
    match = _MEMORY.match(row.get("reqmem", "").strip())
    if match is None:
        return 0.0
    amount, unit, per = float(match[1]), match[2], match[3]
    if unit == "M" and per == "n" and amount >= _PER_CPU_FLAG:
        findings.add("repaired", _FLAG, where)
        amount, per = amount - _PER_CPU_FLAG, "c"
    memory = amount * _GIB[unit]
    if per == "n":
        memory *= max(_nodes(row), 1)
    if per != "c":
        memory /= cpus
    return memory if memory <= MAX_TIME_S else 0.0
