"""Ganger's own files (ganger.workload.native), as one format among the others."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ganger.errors import WorkloadError
from ganger.workload import native
from ganger.workload.model import Job
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.opening import seekable

NAME = "jobs"
SUFFIXES = (".jobs.jsonl", ".jobs.jsonl.zst")


def recognise(head: bytes, path: Path) -> bool:
    """The first line says so, or the name does: then errors say what is wrong with the file."""
    return path.name.endswith(SUFFIXES) or (
        head.startswith(b"{") and b'"' + native.FORMAT.encode() + b'"' in head.split(b"\n", 1)[0]
    )


def read(paths: Sequence[Path], findings: Findings) -> Iterator[Job]:
    """Read the files in order, their clocks taken to begin together. Nothing in them is repaired.

    Raises:
        WorkloadError: with the path and line of what is wrong, or if two files share a job's id.
    """
    findings.format = "Ganger's own format"
    findings.version = str(native.VERSION)
    ids: dict[str, Path] = {}
    for path in paths:
        findings.files += 1
        for job in native.read_jobs(seekable(path)):
            if ids.setdefault(job.id, path) != path:
                raise WorkloadError(f"{path}: job {job.id!r} is also in {ids[job.id]}")
            findings.rows += 1
            yield job
