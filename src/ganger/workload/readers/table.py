"""Any table of jobs, CSV or Parquet, whose columns are named on the command line.

    table,submit=Queued,run=Seconds,processors=CPUs:jobs.csv

A column is given by its name in the header, in upper or lower case, or by its number from 1. A time
is a number (in `unit`, seconds unless given), a date, or text as 2024-05-01T10:00:00, which is
taken for UTC where it has no zone; a duration is a number or [days-]hours:minutes:seconds.

A row becomes a job of one gang stage, as in the Standard Workload Format: a row without a time of
submission, a run time or processors is dropped; without a requested run time, schedulers are told
the real one (guessed).
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from ganger.errors import MissingExtraError, WorkloadError
from ganger.workload.model import MAX_TASKS, MAX_TIME_S, Job, Recorded
from ganger.workload.readers.clock import is_time, start_at_zero
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.ids import Ids
from ganger.workload.readers.opening import Truncated, lines, open_bytes, seekable
from ganger.workload.readers.rigid import RigidStages
from ganger.workload.readers.sacct import span_s

NAME = "table"

Unit = Literal["s", "ms", "us", "ns", "m", "h"]
_UNITS_S: dict[Unit, float] = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "m": 60.0,
    "h": 3600.0,
}
_PARQUET = b"PAR1"

_BAD_SUBMIT = "time of submission is missing or no time"
_BAD_RUN = "run time is missing, negative or no duration"
_BAD_PROCESSORS = f"processors are missing or no whole number from 1 to {MAX_TASKS}"
_NO_LIMIT = "no requested run time: schedulers are told the real one"
_EARLY = "starts before it was submitted: start and finish are taken for unknown"
_AGAIN = "job id is used by an earlier row: #2, #3, ... is put after it"
_SHORT = "fewer columns than are asked for"


def recognise(head: bytes, path: Path) -> bool:
    """Never: only the user knows what the columns mean."""
    return False


def read(
    paths: Sequence[Path],
    findings: Findings,
    *,
    submit: str,
    run: str = "",
    start: str = "",
    end: str = "",
    processors: str = "",
    limit: str = "",
    user: str = "",
    status: str = "",
    id: str = "",
    unit: Unit = "s",
) -> Iterator[Job]:
    """Read tables into jobs, sorted by arrival, those of several files on one clock.

    Args:
        submit: column of the time of submission.
        run: column of the run time; without one, end less start.
        start, end: columns of times.
        processors: column of processors; without one, every job has one.
        limit: column of the requested run time.
        user, status, id: columns of text; without `id`, jobs are named by file and row.
        unit: of times and durations that are numbers.

    Raises:
        WorkloadError: if a file cannot be read, has no such column, or there is no job.
        MissingExtraError: for Parquet without pyarrow.
    """
    if not run and not (start and end):
        raise WorkloadError("a table needs columns for run, or for start and end; see format table")
    columns = {
        "submit": submit,
        "run": run,
        "start": start,
        "end": end,
        "processors": processors,
        "limit": limit,
        "user": user,
        "status": status,
        "id": id,
    }
    columns = {meaning: name for meaning, name in columns.items() if name}
    if not processors:
        findings.notes.append("no column of processors is given: every job has one")
    jobs: list[Job] = []
    ids, stages = Ids(), RigidStages()
    dated = True
    for path in paths:
        findings.files += 1
        with open_bytes(path) as stream:
            is_parquet = stream.read(len(_PARQUET)) == _PARQUET
        findings.format = "Parquet table" if is_parquet else "CSV table"
        rows = _parquet_rows if is_parquet else _csv_rows
        for number, row in rows(path, columns, _UNITS_S[unit], findings):
            findings.rows += 1
            where = f"{path}:{number}"
            job = _job(row, where, f"{path.stem}:{number}", _UNITS_S[unit], stages, findings)
            if job is not None:
                if job.id in ids:
                    findings.add("repaired", _AGAIN, where)
                jobs.append(
                    Job(
                        id=ids.take(job.id),
                        arrival_s=job.arrival_s,
                        stages=job.stages,
                        user=job.user,
                        recorded=job.recorded,
                    )
                )
                dated = dated and _is_dated(row["submit"])
    if not jobs:
        raise WorkloadError(
            f"{', '.join(map(str, paths[:3]))}: there is no usable row; expected a table with "
            + ", ".join(f"{meaning} in {name!r}" for meaning, name in columns.items())
        )
    first_s = start_at_zero(jobs)
    if dated:
        findings.epoch_s = first_s
    yield from jobs


def _job(
    row: dict[str, Any],
    where: str,
    name: str,
    unit_s: float,
    stages: RigidStages,
    findings: Findings,
) -> Job | None:
    """The job of a row, on the table's clock; None if it is unusable, which is counted."""
    submit_s = _time_s(row["submit"], unit_s)
    if submit_s is None:
        findings.add("dropped", _BAD_SUBMIT, where)
        return None
    start_s, end_s = (_time_s(row.get(key), unit_s) for key in ("start", "end"))
    run_s = _duration_s(row.get("run"), unit_s)
    if "run" not in row and start_s is not None and end_s is not None:
        run_s = end_s - start_s
    if run_s is None or not 0.0 <= run_s <= MAX_TIME_S:
        findings.add("dropped", _BAD_RUN, where)
        return None
    processors = _number(row.get("processors", 1))
    if processors is None or not processors.is_integer() or not 1 <= processors <= MAX_TASKS:
        findings.add("dropped", _BAD_PROCESSORS, where)
        return None
    limit_s = _duration_s(row.get("limit"), unit_s)
    if limit_s is None or not 0.0 < limit_s <= MAX_TIME_S:
        findings.add("guessed", _NO_LIMIT, where)
        limit_s = None
    if start_s is not None and start_s < submit_s:
        findings.add("repaired", _EARLY, where)
        start_s = None
    status = _text(row.get("status"))
    recorded = None
    if start_s is not None or status is not None:
        finish_s = None if start_s is None else start_s + run_s
        recorded = Recorded(start_s=start_s, finish_s=finish_s, status=status)
    return Job(
        id=_text(row.get("id")) or name,
        arrival_s=submit_s,
        stages=stages[int(processors), run_s, limit_s, 0.0],
        user=_text(row.get("user")),
        recorded=recorded,
    )


# --- rows


def _csv_rows(
    path: Path, columns: dict[str, str], unit_s: float, findings: Findings
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and the cells that are asked for, by meaning."""
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        try:
            for number, line in lines(path):  # noqa: B007  # read by the loop below
                yield line.decode("utf-8", "replace") + "\n"
        except Truncated:
            findings.add(
                "dropped", "compressed data end too early: what would follow", f"{path}:{number}"
            )

    source = text()
    first = next(source, "")
    # The one that is there most often; a comma if none is.
    separator = max(",;\t|", key=first.count)
    at: dict[str, int] | None = None
    reader = csv.reader(_after(first, source), delimiter=separator)
    try:
        for cells in reader:
            if not any(cells):
                continue
            if at is None:
                at = _positions(path, columns, cells)
                named = not all(name.isdigit() for name in columns.values())
                if named or _time_s(_cell(cells, at["submit"]), unit_s) is None:
                    continue  # the header
            if len(cells) <= max(at.values()):
                findings.rows += 1
                findings.add("dropped", _SHORT, f"{path}:{number}")
                continue
            yield number, {meaning: cells[i] for meaning, i in at.items()}
    except csv.Error as error:
        raise WorkloadError(f"{path}:{number}: {error}; is a quotation mark not closed?") from None


def _after(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _cell(cells: Sequence[str], i: int) -> str | None:
    return cells[i] if i < len(cells) else None


def _positions(path: Path, columns: dict[str, str], header: Sequence[str]) -> dict[str, int]:
    """Where each column is."""
    names = [name.strip().lower() for name in header]
    at = {}
    for meaning, name in columns.items():
        # Numbers first: without a header, a first row may hold them, too.
        if name.isascii() and name.isdigit() and 1 <= int(name[:9]) <= len(names):
            at[meaning] = int(name[:9]) - 1
        elif name.strip().lower() in names:
            at[meaning] = names.index(name.strip().lower())
        else:
            there_are = ", ".join(cell.strip() for cell in header)[:300]
            raise WorkloadError(
                f"{path}: there is no column {name!r} for {meaning}; there are {there_are}"
            )
    return at


def _parquet_rows(
    path: Path, columns: dict[str, str], unit_s: float, findings: Findings
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Row numbers and the cells that are asked for, by meaning."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("Reading Parquet", "parquet") from None
    number = 0
    try:
        with parquet.ParquetFile(seekable(path)) as file:
            names = file.schema_arrow.names
            at = _positions(path, columns, names)
            wanted = {meaning: names[i] for meaning, i in at.items()}
            for batch in file.iter_batches(columns=sorted(set(wanted.values()))):
                values = {name: batch.column(name).to_pylist() for name in set(wanted.values())}
                for i in range(batch.num_rows):
                    number += 1
                    yield number, {meaning: values[name][i] for meaning, name in wanted.items()}
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise WorkloadError(
            f"{path}: no readable Parquet: {' '.join(str(error).split())}"
        ) from None


# --- cells


def _number(cell: Any) -> float | None:
    """A number that is not absurd; None if there is none."""
    if isinstance(cell, bool) or not isinstance(cell, int | float | str | Decimal):
        return None
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if abs(value) < 1e300 else None  # NaN is not


def _in_range(
    convert: Callable[[Any, float], float | None],
) -> Callable[[Any, float], float | None]:
    """The same, and None where a clock cannot show the result."""

    def converted(cell: Any, unit_s: float) -> float | None:
        value = convert(cell, unit_s)
        return value if value is not None and is_time(value) else None

    return converted


@_in_range
def _time_s(cell: Any, unit_s: float) -> float | None:
    number = _number(cell)
    if number is not None:
        return number * unit_s
    try:
        if isinstance(cell, str):
            cell = datetime.fromisoformat(cell.strip())
        elif isinstance(cell, date) and not isinstance(cell, datetime):
            cell = datetime(cell.year, cell.month, cell.day)
        if isinstance(cell, datetime):
            return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        pass
    return None


@_in_range
def _duration_s(cell: Any, unit_s: float) -> float | None:
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    number = _number(cell)
    if number is not None:
        return number * unit_s
    return span_s(cell.strip()) if isinstance(cell, str) else None


def _text(cell: Any) -> str | None:
    return None if cell is None else str(cell).strip() or None


def _is_dated(cell: Any) -> bool:
    return _number(cell) is None
