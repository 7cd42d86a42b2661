"""The jobs of a comparison as rows, kept in files: so that it goes on where it was stopped.

A part is what one scheduler made of a few windows on one cluster. It is written when it is done,
under another name first: a comparison that is stopped loses the parts under way and nothing else.
Columns that Batsim's jobs.csv has bear its names, and its tools read them; all times are seconds.

Source: https://batsim.readthedocs.io/en/latest/output-jobs.html
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from ganger.errors import ConfigError, MissingExtraError
from ganger.evaluation.episodes import JobLists, Outcomes

if TYPE_CHECKING:
    from pyarrow import Table

SETTINGS, SUMMARY = "settings.json", "summary.json"
JOBS_PARQUET, JOBS_CSV = "jobs.parquet", "jobs.csv"
TASKS_PARQUET = "tasks.parquet"
_PARTS = "parts"


class Part(NamedTuple):
    """A scheduler, a cluster, a load, and which windows."""

    scheduler: str
    mode: str
    executors: int
    load: float | None
    """Offered; None: as the workload has it."""
    windows: tuple[int, ...]

    def file(self) -> str:
        load = "" if self.load is None else f"-load{self.load:g}"
        name = "".join(c if c.isalnum() else "_" for c in f"{self.scheduler}-{self.mode}")
        return f"{self.executors}{load}-{name}-{self.windows[0]}.parquet"


def columns(part: Part, lists: JobLists, outcomes: Outcomes, workload: str) -> dict[str, Any]:
    """The rows of a part, by column; outcomes are [window, ...].

    A job that did not finish has no finish and no turnaround, and is not a success.
    """
    found: dict[str, list[Any]] = {}

    def add(**values: Any) -> None:
        for name, value in values.items():
            found.setdefault(name, []).append(np.broadcast_to(value, lists.jobs))

    known = lists.jobs_of(part.windows)
    for k, window in enumerate(part.windows):
        log = lists.log_jobs(window)
        arrival_s, jct_s = known.arrival_s[k], outcomes.jct_s[k]
        wait_s = outcomes.wait_s[k]
        run_s = jct_s - wait_s
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = jct_s / run_s
        done = np.isfinite(jct_s)
        gangs = [max((s.task_count for s in job.stages if s.gang), default=None) for job in log]
        limits = [job.stages[0].limit_s if len(job.stages) == 1 else None for job in log]
        add(
            job_id=np.array([job.id for job in log] or list(map(str, range(lists.jobs))), object),
            workload_name=np.array(workload, object),
            submission_time=arrival_s,
            requested_number_of_resources=np.array(gangs or None, object),
            requested_time=np.array(limits or None, object),
            success=done.astype(np.int64),
            final_state=np.where(done, "COMPLETED_SUCCESSFULLY", "UNFINISHED").astype(object),
            starting_time=arrival_s + wait_s,
            execution_time=run_s,
            finish_time=arrival_s + jct_s,
            waiting_time=wait_s,
            turnaround_time=jct_s,
            stretch=stretch,
            scheduler=np.array(part.scheduler, object),
            mode=np.array(part.mode, object),
            window=np.int64(window),
            executors=np.int64(part.executors),
            load=np.float64(np.nan if part.load is None else part.load),
            user=np.array([job.user for job in log] or None, object),
            work_s=lists.work_s(window),
            critical_path_s=known.path_s[k],
            window_busy_s=np.float64(outcomes.busy_s[k]),
        )
    return {name: np.concatenate(values) for name, values in found.items()}


class Results:
    """A directory of results, made for certain settings.

    Raises:
        ConfigError: it holds other settings' results, or is no such directory.
        MissingExtraError: there is no pyarrow.
    """

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingExtraError("Results of a comparison", "parquet") from None
        self.path = path
        about = path / SETTINGS
        if about.exists():
            before = json.loads(about.read_text())
            now = json.loads(json.dumps(settings))
            if differ := sorted(k for k in before | now if before.get(k) != now.get(k)):
                first = differ[0]
                raise ConfigError(
                    f"{path} holds a comparison with another {first}: {before.get(first)}, not "
                    f"{now.get(first)}; name another directory with --out, or remove that one"
                )
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"{path} exists and holds no comparison; expected a new directory")
        else:
            try:
                (path / _PARTS).mkdir(parents=True, exist_ok=True)
                about.write_text(json.dumps(settings, indent=2))
            except OSError as error:
                raise ConfigError(f"{path}: {error.strerror}") from None

    def has(self, part: Part) -> bool:
        return self._file(part).exists()

    def keep(self, part: Part, rows: dict[str, Any]) -> None:
        """Write a part; whole or not at all."""
        from pyarrow import parquet

        file = self._file(part)
        under_way = file.with_suffix(".tmp")
        parquet.write_table(_table(rows), under_way)
        os.replace(under_way, file)

    def finish(self, parts: list[Part]) -> "Table":
        """All rows in one file, as Parquet and as CSV; returns them."""
        import pyarrow
        from pyarrow import csv, parquet

        table = pyarrow.concat_tables(self._read(parts))
        parquet.write_table(table, self.path / JOBS_PARQUET)
        csv.write_csv(table, self.path / JOBS_CSV)
        return table

    def keep_tasks(self, rows: dict[str, Any]) -> None:
        """Write what ran when in the window that is shown; see `timeline`."""
        from pyarrow import parquet

        parquet.write_table(_table(rows), self.path / TASKS_PARQUET, compression="zstd")

    def keep_summary(self, summary: msgspec.Struct) -> None:
        encoded = msgspec.json.format(msgspec.json.encode(summary), indent=2)
        (self.path / SUMMARY).write_bytes(encoded)

    def _file(self, part: Part) -> Path:
        return self.path / _PARTS / part.file()

    def _read(self, parts: list[Part]) -> Iterator["Table"]:
        import pyarrow
        from pyarrow import parquet

        for part in parts:
            try:
                yield parquet.read_table(self._file(part))
            except (pyarrow.ArrowException, OSError) as error:
                raise ConfigError(
                    f"{self._file(part)}: {error}; remove it, and compare again"
                ) from None


def _table(rows: dict[str, Any]) -> "Table":
    """NaN and None are missing values."""
    import pyarrow as pa

    text = {"job_id", "workload_name", "final_state", "scheduler", "mode", "user"}
    whole = {"success", "window", "executors", "requested_number_of_resources"}
    whole |= {"stage", "task", "executor"}
    kind = {name: pa.string() for name in text} | {name: pa.int64() for name in whole}
    return pa.table(
        {
            name: pa.array(values, kind.get(name, pa.float64()), from_pandas=True)
            for name, values in rows.items()
        }
    )
