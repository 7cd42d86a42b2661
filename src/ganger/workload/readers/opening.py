"""From what the user names to lines of bytes: files, directories, globs, pipes, compressed data.

Compression is recognised by the first bytes and never by the name. Everything streams: a file of
many gigabytes costs the memory of one buffer and its longest line.
"""

import atexit
import contextlib
import glob
import io
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO

import zstandard

from ganger.errors import WorkloadError
from ganger.workload.readers.codecs import LZ4_MAGIC, SNAPPY_MAGIC, lz4_blocks, snappy_blocks

STDIN = Path("-")
HEAD_SIZE = 1 << 16
LINE_LIMIT = 1 << 28

_PLAIN_SIZE = 1 << 20
# Small, because a few compressed bytes may stand for megabytes.
_PACKED_SIZE = 1 << 12
_BOM = b"\xef\xbb\xbf"

Decoder = Callable[[Iterator[bytes], str], Iterator[bytes]]
"""Takes the compressed chunks of a file and the file's name; gives decompressed chunks.

Raises Truncated where the data end too early, WorkloadError where they are damaged.
"""


class Truncated(WorkloadError):  # noqa: N818  # it may end a reading that was fine
    """Compressed data end before their end; whatever came before them was readable."""


def expand(spec: str | os.PathLike[str]) -> list[Path]:
    """The files that a name stands for, in natural order of their names ("2" before "10").

    A directory stands for all files below it, less those whose name, or whose directory's, starts
    with a dot; a name with *, ? or [ that is no file itself for what it matches; "-" for standard
    input.

    Raises:
        WorkloadError: if there is no such file.
    """
    name = os.fspath(spec)
    if name == "-":
        return [STDIN]
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return _below(path)
        if path.exists():
            return [path]
        matches = sorted(glob.glob(str(path), recursive=True), key=_natural)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise unreadable(path, error) from None
    if not matches:
        what = "nothing matches" if glob.has_magic(name) else "there is no such file"
        raise WorkloadError(f"{name}: {what}")
    files = [file for match in map(Path, matches) for file in _files(match)]
    return list(dict.fromkeys(files))


def _files(path: Path) -> list[Path]:
    return _below(path) if path.is_dir() else [path]


def _below(directory: Path) -> list[Path]:
    found = []
    for folder, folders, files in os.walk(directory, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(folder, name) for name in files if not name.startswith(".")]
    if not found:
        raise WorkloadError(f"{directory}: the directory holds no files")
    return [Path(name) for name in sorted(found, key=_natural)]


def _raise(error: OSError) -> None:
    raise unreadable(error.filename, error) from None


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Digits compare as numbers; the name itself settles "1" against "01"."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    # Numbers go before words; 4,300 digits are more than int() takes.
    key = [(0, int(p[:4000]), "") if "0" <= p[0] <= "9" else (1, 0, p) for p in parts]
    return key, name


def unreadable(path: str | os.PathLike[str], error: Exception) -> WorkloadError:
    """The error for a file that the system does not let us read."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return WorkloadError(f"{os.fspath(path)}: cannot be read: {reason}")


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for "-", as a stream of decompressed bytes.

    Raises:
        WorkloadError: also while reading; Truncated at the point where compressed data end too
            early, after everything before it could be read.
    """
    with closing(_decoded(path)) as chunks, io.BufferedReader(_Chunks(chunks), 1 << 15) as stream:
        yield stream


def head(path: Path, size: int = HEAD_SIZE) -> bytes:
    """The first decompressed bytes of a file, for recognising its format.

    Raises:
        WorkloadError: if it cannot be read, or is damaged right at its beginning.
    """
    gathered = bytearray()
    with closing(_decoded(path)) as chunks:
        try:
            while len(gathered) < size and (chunk := next(chunks, None)) is not None:
                gathered += chunk
        except WorkloadError:
            # Damage further on is for whoever reads the file to report.
            if not gathered:
                raise
    return bytes(gathered[:size])


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, without their ends (LF or CRLF).

    Raises:
        WorkloadError: if it cannot be read, or a line is longer than LINE_LIMIT.
        Truncated: after the last complete line, where compressed data end too early.
    """
    number = 0
    with open_bytes(path) as stream:
        try:
            for line in iter(partial(stream.readline, LINE_LIMIT + 1), b""):
                number += 1
                if len(line) > LINE_LIMIT:
                    raise WorkloadError(
                        f"{path}:{number}: the line is longer than {LINE_LIMIT >> 20} MiB"
                    )
                if number == 1:
                    line = line.removeprefix(_BOM)
                yield number, line.rstrip(b"\r\n")
        except Truncated as error:
            raise Truncated(f"{error}, after line {number}") from None


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a raw stream."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _decoded(path: Path) -> Generator[bytes]:
    try:
        with open(seekable(path), "rb", buffering=0) as file:
            start = file.read(max(map(len, DECODERS)))
            file.seek(0)
            decoder = next((DECODERS[magic] for magic in DECODERS if start.startswith(magic)), None)
            if decoder is None:
                yield from iter(partial(file.read, _PLAIN_SIZE), b"")
            else:
                yield from decoder(iter(partial(file.read, _PACKED_SIZE), b""), str(path))
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise unreadable(path, error) from None


def _frames(
    new: Callable[[], Any], damage: type[Exception], name: str, chunks: Iterator[bytes], path: str
) -> Iterator[bytes]:
    """Decompress frame after frame, as gzip members and zstd frames follow each other in a file."""
    frame = new()
    try:
        for chunk in chunks:
            while chunk:
                if frame.eof:
                    chunk = chunk.lstrip(b"\0")  # padding, as tapes and block devices add it
                    if not chunk:
                        break
                    frame = new()
                yield frame.decompress(chunk)
                chunk = frame.unused_data
    except damage as error:
        raise WorkloadError(f"{path}: damaged {name} data ({error})") from None
    if not frame.eof:
        raise Truncated(f"{path}: ends in the middle of its {name} data")


def _blocks(
    decode: Callable[[Iterator[bytes]], Iterator[bytes]],
    name: str,
    chunks: Iterator[bytes],
    path: str,
) -> Iterator[bytes]:
    """Decompress the blocks of a format that Spark writes."""
    try:
        yield from decode(chunks)
    except EOFError:
        raise Truncated(f"{path}: ends in the middle of its {name} data") from None
    except ValueError as error:
        raise WorkloadError(f"{path}: damaged {name} data ({error})") from None


DECODERS: dict[bytes, Decoder] = {
    b"\x1f\x8b": partial(
        _frames, partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), zlib.error, "gzip"
    ),
    b"\x28\xb5\x2f\xfd": partial(
        _frames,
        lambda: zstandard.ZstdDecompressor().decompressobj(),
        zstandard.ZstdError,
        "zstd",
    ),
    LZ4_MAGIC: partial(_blocks, lz4_blocks, "lz4"),
    SNAPPY_MAGIC: partial(_blocks, snappy_blocks, "snappy"),
}
"""The first bytes of compressed data, and what decompresses them."""


def seekable(path: Path) -> Path:
    """The file itself, or a copy of what comes through a pipe, which is read more than once.

    A format is recognised by its first bytes, and then read from there again.
    """
    if path == STDIN:
        return _copy(sys.stdin.buffer)
    if path.is_fifo():
        return _copy_of_pipe(path)
    return path


@lru_cache(maxsize=64)
def _copy_of_pipe(path: Path) -> Path:
    with open(path, "rb") as file:
        return _copy(file)


@lru_cache(maxsize=64)
def _copy(stream: BinaryIO) -> Path:
    """Copy a stream to a temporary file, which is removed when the process ends."""
    with tempfile.NamedTemporaryFile(prefix="ganger-", delete=False) as file:
        atexit.register(_remove, file.name)
        shutil.copyfileobj(stream, file, _PLAIN_SIZE)
    return Path(file.name)


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)
