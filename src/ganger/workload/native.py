"""Ganger's own workload file: JSON lines, optionally compressed with zstd.

The first line is a header; every other line is a job, or a template whose stages jobs share:

    {"format":"ganger.jobs","version":1}
    {"template":"a","stages":[{"id":"0","task_count":2,"durations":{"kind":"pool","values_s":[1]}}]}
    {"id":"first","arrival_s":0.0,"template":"a"}
    {"id":"second","arrival_s":2.5,"stages":[...]}

Reading and writing go line by line, floats survive to the bit, and a file appears under its name
only when it is complete. docs/workloads.md describes every field.
"""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import zstandard
from msgspec import UNSET, Struct, UnsetType

from ganger.errors import WorkloadError
from ganger.workload.model import (
    Job,
    Recorded,
    Stage,
    Workload,
    check_arrival,
    check_recorded,
    check_stages,
)

FORMAT = "ganger.jobs"
VERSION = 1

_HEADER = f'{{"format":"{FORMAT}","version":{VERSION}}}'
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_BOM = b"\xef\xbb\xbf"
# A file of zeros must not fill the memory before its first line is looked at.
_HEADER_LIMIT = 1 << 16
_LINE_LIMIT = 1 << 28
# Small, because a few bytes of zstd may stand for megabytes.
_READ_SIZE = 1 << 12
_REMEMBERED_STAGES = 4096


class _Line(Struct, forbid_unknown_fields=True):
    """A job or a template, its stages not yet decoded."""

    id: str | UnsetType = UNSET
    arrival_s: float | UnsetType = UNSET
    template: str | UnsetType = UNSET
    stages: msgspec.Raw | UnsetType = UNSET
    user: str | UnsetType = UNSET
    recorded: Recorded | UnsetType = UNSET


class _TemplateLine(Struct):
    template: str
    stages: tuple[Stage, ...]


class _TemplateJobLine(Struct, omit_defaults=True):
    id: str
    arrival_s: float
    template: str
    user: str | None = None
    recorded: Recorded | None = None


_line_decoder = msgspec.json.Decoder(_Line)
_stages_decoder = msgspec.json.Decoder(tuple[Stage, ...])
_encoder = msgspec.json.Encoder()


def read_workload(path: str | os.PathLike[str]) -> Workload:
    """Read a whole native file.

    Raises:
        WorkloadError: with the path and line of what is wrong.
    """
    return Workload(tuple(read_jobs(path)))


def read_jobs(path: str | os.PathLike[str]) -> Iterator[Job]:
    """Read a native file job by job, in the file's order; identical stages become one tuple.

    Raises:
        WorkloadError: with the path and line of what is wrong.
    """
    lines = _lines(os.fspath(path))
    _check_header(next(lines, None), os.fspath(path))
    templates: dict[str, tuple[Stage, ...]] = {}
    remembered: dict[bytes, tuple[Stage, ...]] = {}
    ids: set[str] = set()
    for number, text in enumerate(lines, start=2):
        where = f"{os.fspath(path)}:{number}"
        line = _decode_line(text, where)
        if line.id is UNSET:
            name = line.template
            of_a_job = any(
                field is not UNSET for field in (line.arrival_s, line.user, line.recorded)
            )
            if name is UNSET or line.stages is UNSET or of_a_job:
                raise WorkloadError(
                    f"{where}: neither a job (id, arrival_s, and stages or template) "
                    "nor a template (template, stages)"
                )
            if name in templates:
                raise WorkloadError(f"{where}: template {name!r} is defined twice")
            templates[name] = _decode_stages(line.stages, remembered, f"{where}: template {name!r}")
            continue
        where = f"{where}: job {line.id!r}"
        if line.id in ids:
            raise WorkloadError(f"{where}: id is used by an earlier job; expected unique ids")
        ids.add(line.id)
        if line.arrival_s is UNSET:
            raise WorkloadError(f"{where}: arrival_s is missing; expected seconds, 0 or more")
        check_arrival(line.arrival_s, where)
        if (line.template is UNSET) == (line.stages is UNSET):
            raise WorkloadError(f"{where}: expected either stages or template")
        if line.stages is not UNSET:
            stages = _decode_stages(line.stages, remembered, where)
        elif line.template in templates:
            stages = templates[line.template]
        else:
            raise WorkloadError(
                f"{where}: template {line.template!r} is unknown; expected an earlier line to "
                "define it"
            )
        recorded = None if line.recorded is UNSET else line.recorded
        check_recorded(recorded, where)
        yield Job(
            id=line.id,
            arrival_s=line.arrival_s,
            stages=stages,
            user=None if line.user is UNSET else line.user,
            recorded=recorded,
        )


def write_workload(path: str | os.PathLike[str], workload: Workload) -> None:
    """Write a native file, compressed if its name ends in .zst; shared stages are written once."""
    uses = Counter(id(job.stages) for job in workload.jobs)
    names: dict[int, str] = {}

    def lines() -> Iterator[bytes]:
        for job in workload.jobs:
            key = id(job.stages)
            if uses[key] == 1:
                yield _encoder.encode(job)
                continue
            if key not in names:
                names[key] = f"t{len(names)}"
                yield _encoder.encode(_TemplateLine(names[key], job.stages))
            yield _encoder.encode(
                _TemplateJobLine(job.id, job.arrival_s, names[key], job.user, job.recorded)
            )

    _write(path, lines())


def write_jobs(path: str | os.PathLike[str], jobs: Iterable[Job]) -> None:
    """Write a native file job by job, never holding more than one; compressed if named .zst.

    Raises:
        WorkloadError: naming the job and the field, if a job is invalid; no file is left.
    """

    def lines() -> Iterator[bytes]:
        ids = set()
        for job in jobs:
            where = f"job {job.id!r}"
            if job.id in ids:
                raise WorkloadError(f"{where}: id is used by an earlier job; expected unique ids")
            ids.add(job.id)
            check_arrival(job.arrival_s, where)
            check_recorded(job.recorded, where)
            check_stages(job.stages, where)
            yield _encoder.encode(job)

    _write(path, lines())


def _decode_line(text: bytes, where: str) -> _Line:
    if not text.strip():
        raise WorkloadError(f"{where}: blank line; expected one job per line")
    try:
        return _line_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise WorkloadError(
            f"{where}: {_reason(error)}; expected a job with id, arrival_s, and stages or template"
        ) from None


def _decode_stages(
    raw: msgspec.Raw, remembered: dict[bytes, tuple[Stage, ...]], where: str
) -> tuple[Stage, ...]:
    key = hashlib.blake2b(raw, digest_size=16).digest()
    if key in remembered:
        return remembered[key]
    try:
        stages = _stages_decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        reason = _reason(error).replace("`$[", "`stages[").replace("`$`", "`stages`")
        raise WorkloadError(
            f"{where}: {reason}; expected stages as docs/workloads.md describes them"
        ) from None
    check_stages(stages, where)
    if len(remembered) >= _REMEMBERED_STAGES:
        del remembered[next(iter(remembered))]
    remembered[key] = stages
    return stages


def _check_header(text: bytes | None, path: str) -> None:
    if text is None:
        raise WorkloadError(f"{path}: the file is empty; expected a first line {_HEADER}")
    if text.startswith(_BOM):
        raise WorkloadError(f"{path}:1: byte order mark; expected plain UTF-8 without one")
    try:
        header = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        header = None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise WorkloadError(f"{path}:1: not a Ganger workload; expected a first line {_HEADER}")
    version = header.get("version")
    if type(version) is not int or version != VERSION:
        raise WorkloadError(f"{path}:1: version is {version!r}; this Ganger reads {VERSION}")
    unknown = sorted(header.keys() - {"format", "version"})
    if unknown:
        raise WorkloadError(f"{path}:1: unknown key {unknown[0]!r}; expected only {_HEADER}")


def _reason(error: Exception) -> str:
    """The decoder's message on one line."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())


def _lines(path: str) -> Iterator[bytes]:
    """The lines of a plain or compressed file, without their ends."""
    pending: list[bytes] = []
    size = 0
    number = 1
    for chunk in _chunks(path):
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            pending.append(piece)
            yield b"".join(pending)
            pending, size = [], 0
            number += 1
        pending.append(rest)
        size += len(rest)
        if size > (_HEADER_LIMIT if number == 1 else _LINE_LIMIT):
            expected = f"a first line {_HEADER}" if number == 1 else f"at most {_LINE_LIMIT} bytes"
            raise WorkloadError(f"{path}:{number}: the line is too long; expected {expected}")
    if size:
        yield b"".join(pending)


def _chunks(path: str) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            magic = file.read(len(_ZSTD_MAGIC))
            file.seek(0)
            if magic != _ZSTD_MAGIC:
                while chunk := file.read(_READ_SIZE * 16):
                    yield chunk
                return
            frame = zstandard.ZstdDecompressor().decompressobj()
            while chunk := file.read(_READ_SIZE):
                while chunk:
                    if frame.eof:  # files may be made of several frames
                        frame = zstandard.ZstdDecompressor().decompressobj()
                    yield frame.decompress(chunk)
                    chunk = frame.unused_data
            if not frame.eof:
                raise WorkloadError(
                    f"{path}: ends in the middle of its zstd data; expected a complete file"
                )
    except zstandard.ZstdError as error:
        raise WorkloadError(f"{path}: damaged zstd data ({error})") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise WorkloadError(f"{path}: cannot be read: {reason}") from None


def _write(path: str | os.PathLike[str], lines: Iterator[bytes]) -> None:
    """Write header and lines to a temporary name, then give the complete file its own."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as file:
            if target.name.endswith(".zst"):
                with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as out:
                    _write_lines(out.write, lines)
            else:
                _write_lines(file.write, lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise WorkloadError(f"{target}: cannot be written: {error.strerror}") from None
    except UnicodeEncodeError:
        raise WorkloadError(f"{target}: an id is not valid Unicode; expected UTF-8 text") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _write_lines(write: Callable[[bytes], object], lines: Iterator[bytes]) -> None:
    write(_HEADER.encode() + b"\n")
    for line in lines:
        write(line + b"\n")
