"""Standard Workload Format, versions 2 to 2.2: the logs of the Parallel Workloads Archive.

Source: Feitelson, https://www.cs.huji.ac.il/labs/parallel/workload/swf.html. A line is a comment
(`;`, at the beginning often `; Key: value`) or a row of 18 numbers, seconds and KB; -1 is unknown.

A row becomes a job of one gang stage:

- its tasks are the processors it was allocated, and its run time was measured on; where that is
  unknown, those it asked for (guessed);
- its duration is the run time. 0 is legal; a job without a run time is dropped;
- limit and estimate are the requested time; without one, the estimate is the run time (guessed);
- memory demanded is what was requested per processor, if anything was;
- arrivals count from the first submission; starts and finishes are there where the wait is known.

A job of more processors than the cluster has, or that ran longer than it asked for, is none of a
reader's business: it is in the result as it is in the log.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

from ganger.errors import WorkloadError
from ganger.workload.model import MAX_TASKS, MAX_TIME_S, Job, Recorded
from ganger.workload.readers.clock import first_timezone, move_clock, start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.ids import Ids
from ganger.workload.readers.opening import Truncated, lines
from ganger.workload.readers.rigid import RigidStages

NAME = "swf"

COLUMNS = 18
_KB_PER_GIB = float(1 << 20)
_COMMENT = (b";", b"#")
_PARTIAL = (b"2", b"3", b"4")
_CANCELLED = b"5"
_UNKNOWN = b"-1"
_LATEST_S = MAX_TIME_S / 4  # so that a finish fits, too, and a difference
_EXPECTED = "rows of 18 numbers"

_BAD_COLUMNS = f"fewer than {COLUMNS} columns"
_BAD_NUMBER = "not a number, or not a whole one, where one is expected"
_BAD_SUBMIT = "submit time is unknown (-1) or out of range"
_NEVER_RAN = "cancelled before it started (status 5)"
_NO_RUN = "run time is unknown (-1)"
_BAD_RUN = "run time is negative or out of range"
_NO_PROCESSORS = "processors are unknown: neither allocated nor requested"
_TOO_MANY = f"processors are more than {MAX_TASKS}"
_PART = "part of an execution (status 2, 3 or 4): the job's whole row is there, too"
_SAME_NUMBER = "job number is used by an earlier row: #2, #3, ... is put after it"
_AS_REQUESTED = "allocated processors are unknown: as many as requested"
_NO_REQUEST = "no requested time: schedulers are told the run time"
_OTHER_NUMBER = "was allocated another number of processors than it requested: the allocated one"
_OVERRAN = "ran longer than it requested"
_MORE_COLUMNS = f"more than {COLUMNS} columns: the rest is ignored"
_BAD_WAIT = "wait time is negative or out of range: start and finish are taken for unknown"


def recognise(head: bytes, path: Path) -> bool:
    """Most of the first lines that are no comments are rows of 18 or more numbers."""
    rows = [line for line in head.splitlines()[:2000] if line.strip() and not _comment(line)][:50]
    if len(rows) > 1 and len(head) >= 1 << 16:
        rows = rows[:-1]  # it may be cut
    good = sum(COLUMNS <= len(row.split()) <= COLUMNS + 2 and _numeric(row) for row in rows)
    return good > len(rows) / 2


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read logs into jobs, sorted by arrival.

    Several files are put on one clock by their UnixStartTime, if all have one; their jobs' ids are
    then `file:number`.

    Raises:
        WorkloadError: if a file cannot be read, or holds no job.
    """
    findings.format = "Standard Workload Format"
    read_before = findings.rows
    jobs: list[Job] = []
    ids = Ids()
    shapes = RigidStages()
    headers = []
    ends = []
    for path in paths:
        prefix = "" if len(paths) == 1 else f"{path.stem}:"
        headers.append(_read_file(path, prefix, jobs, ids, shapes, findings))
        ends.append(len(jobs))
    if not jobs:
        rows = findings.rows - read_before
        what = f"none of its {rows} rows is a job" if rows else "there are no rows"
        raise WorkloadError(f"{', '.join(map(str, paths[:3]))}: {what}; expected {_EXPECTED}")

    starts = [_seconds(header.get("UnixStartTime")) for header in headers]
    known = all(start is not None for start in starts)
    if len(paths) > 1:
        if known:
            begin = 0
            for start, end in zip(starts, ends, strict=True):
                assert start is not None
                move_clock(islice(jobs, begin, end), start)
                begin = end
        else:
            findings.notes.append(
                "not every file has a UnixStartTime: all are taken to begin at the same moment"
            )
    disorder = sum(before.arrival_s > after.arrival_s for before, after in pairwise(jobs))
    if disorder:
        findings.notes.append(f"rows are not in order of submission: {disorder} go back in time")
    first_s = start_at_zero(jobs)
    if first_s != 0.0 and not (known and len(paths) > 1):
        findings.notes.append(
            f"the first submission, at {first_s:g} s of the log, is 0 s of the jobs' clock"
        )
    if known:
        findings.epoch_s = first_s + (starts[0] or 0.0 if len(paths) == 1 else 0.0)
    _describe(headers, paths, findings)
    jobs.reverse()
    while jobs:  # handed over one by one, so that nobody keeps a list of them all
        yield jobs.pop()


def _read_file(
    path: Path,
    prefix: str,
    jobs: list[Job],
    ids: Ids,
    shapes: RigidStages,
    findings: Findings,
) -> dict[str, str]:
    """Append the file's jobs, on its own clock, to `jobs`; returns its header."""
    header: dict[str, str] = {}
    texts: dict[bytes, str] = {}
    add = findings.add
    findings.files += 1
    number = rows = 0
    try:
        for number, line in lines(path):
            row = line.split()
            if not row:
                continue
            if row[0][:1] in _COMMENT:
                _read_header(line, header)
                continue
            rows += 1
            if len(row) != COLUMNS:
                if len(row) < COLUMNS:
                    add("dropped", _BAD_COLUMNS, f"{path}:{number}")
                    continue
                add("noted", _MORE_COLUMNS, f"{path}:{number}")
            try:
                submit_s = float(row[1])
                wait_s = float(row[2])
                run_s = float(row[3])
                allocated = int(row[4]) if row[4].isdigit() else _whole(row[4])
                requested = int(row[7]) if row[7].isdigit() else _whole(row[7])
                limit_s = float(row[8])
                memory_kb = float(row[9])
                id = prefix + str(row[0], "ascii")
            except ValueError:
                add("dropped", _BAD_NUMBER, f"{path}:{number}")
                continue
            status = row[10]
            if submit_s == -1 or not -_LATEST_S <= submit_s <= _LATEST_S:
                add("dropped", _BAD_SUBMIT, f"{path}:{number}")
                continue
            if status == _CANCELLED and (run_s == -1 or (run_s == 0 and allocated <= 0)):
                add("dropped", _NEVER_RAN, f"{path}:{number}")
                continue
            if not 0.0 <= run_s <= MAX_TIME_S:
                add("dropped", _NO_RUN if run_s == -1 else _BAD_RUN, f"{path}:{number}")
                continue
            processors = allocated
            if allocated <= 0:
                processors = requested
                if requested <= 0:
                    add("dropped", _NO_PROCESSORS, f"{path}:{number}")
                    continue
                add("guessed", _AS_REQUESTED, f"{path}:{number}")
            elif allocated != requested and requested > 0:
                add("noted", _OTHER_NUMBER, f"{path}:{number}")
            if processors > MAX_TASKS:
                add("dropped", _TOO_MANY, f"{path}:{number}")
                continue
            if id in ids:
                if status in _PARTIAL:
                    add("dropped", _PART, f"{path}:{number}")
                    continue
                add("repaired", _SAME_NUMBER, f"{path}:{number}")
            id = ids.take(id)
            limit: float | None = limit_s
            if not 0.0 < limit_s <= MAX_TIME_S:
                add("guessed", _NO_REQUEST, f"{path}:{number}")
                limit = None
            elif run_s > limit_s:
                add("noted", _OVERRAN, f"{path}:{number}")
            memory = memory_kb / _KB_PER_GIB if 0.0 < memory_kb <= MAX_TIME_S else 0.0

            start_s = finish_s = None
            if 0.0 <= wait_s <= _LATEST_S:
                start_s = submit_s + wait_s
                finish_s = start_s + run_s
            elif wait_s != -1:
                add("repaired", _BAD_WAIT, f"{path}:{number}")
            outcome = texts.get(status) or texts.setdefault(status, _text(status))
            user = texts.get(row[11]) or texts.setdefault(row[11], _text(row[11]))
            recorded = None
            if start_s is not None or status != _UNKNOWN:
                recorded = Recorded(
                    start_s=start_s,
                    finish_s=finish_s,
                    status=None if status == _UNKNOWN else outcome,
                )
            jobs.append(
                Job(
                    id=id,
                    arrival_s=submit_s,
                    stages=shapes[processors, run_s, limit, memory],
                    user=None if user == "-1" else user,
                    recorded=recorded,
                )
            )
    except Truncated:
        add("dropped", "compressed data end too early: what would follow", f"{path}:{number}")
    finally:
        findings.rows += rows
    said = _seconds(header.get("MaxRecords")) or _seconds(header.get("MaxJobs"))
    if said is not None and said > 0 and said != rows:
        findings.notes.append(f"{path}: the header says {said:.0f} jobs; there are {rows} rows")
    return header


def _comment(start: bytes) -> bool:
    return start.lstrip().startswith((b";", b"#"))


def _numeric(row: bytes) -> bool:
    try:
        for value in row.split()[:COLUMNS]:
            float(value)
    except ValueError:
        return False
    return True


def _whole(value: bytes) -> int:
    """A count, though it may be written 32.0.

    Raises:
        ValueError: if it is none.
    """
    try:
        return int(value)
    except ValueError:
        number = float(value)
        if not number.is_integer():  # NaN and infinity are not, either
            raise
        return int(number)


def _text(value: bytes) -> str:
    return value.decode("ascii", "replace")


# --- the header


_HEADER_LINE = re.compile(rb"\s*[;#]+\s*([A-Za-z]+)\s*:\s*(.*?)\s*$", re.DOTALL)
_HEADER_KEYS = (
    "Version",
    "MaxJobs",
    "MaxRecords",
    "MaxNodes",
    "MaxProcs",
    "UnixStartTime",
    "TimeZone",
    "TimeZoneString",
)


def _read_header(line: bytes, header: dict[str, str]) -> None:
    """Keep a header field that is used here; of one given twice, the first."""
    if match := _HEADER_LINE.match(line):
        key = match[1].decode("ascii")
        if key in _HEADER_KEYS:
            header.setdefault(key, match[2].decode("utf-8", "replace"))


def _seconds(value: str | None) -> float | None:
    """The number that a header field begins with."""
    match = re.match(r"\s*(-?\d+(\.\d+)?)(?![\w.])", value or "")
    return float(match[1]) if match and abs(float(match[1])) <= _LATEST_S else None


def _describe(headers: list[dict[str, str]], paths: Sequence[Path], findings: Findings) -> None:
    """Tell what the headers say of the format and of the cluster."""
    versions = dict.fromkeys(header["Version"] for header in headers if "Version" in header)
    findings.version = ", ".join(versions)
    sizes: dict[int, Path] = {}
    for header, path in zip(headers, paths, strict=True):
        processors, nodes = _seconds(header.get("MaxProcs")), _seconds(header.get("MaxNodes"))
        if (processors or 0) > 0:
            sizes.setdefault(int(processors or 0), path)
        elif (nodes or 0) > 0:
            sizes.setdefault(int(nodes or 0), path)
            findings.notes.append(
                f"{path}: the header has no MaxProcs; MaxNodes, {nodes:.0f}, is taken"
            )
    if len(sizes) == 1:
        findings.executors = next(iter(sizes))
    elif sizes:
        several = ", ".join(f"{size} ({path})" for size, path in sizes.items())
        findings.notes.append(f"the headers give clusters of several sizes: {several}")
    findings.timezone = first_timezone(
        header[key] for key in ("TimeZoneString", "TimeZone") for header in headers if key in header
    )
