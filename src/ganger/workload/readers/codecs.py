"""The two block formats that Spark writes and few other programs read.

`LZ4Block`, of lz4-java's LZ4BlockOutputStream; a stream is blocks, each of

    8 bytes   "LZ4Block"
    1         high half: 1 stored, 2 compressed; low half: the block size's level
    4 x 3     little-endian: bytes that follow, bytes they stand for, checksum of the latter
              (the low 28 bits of xxHash32 with seed 0x9747b28c)

and ends with a block of length 0; another stream may follow.

`SNAPPY`, of snappy-java's SnappyOutputStream: a header of 8 bytes, 0x82 "SNAPPY" 0, and two
big-endian numbers of 4 bytes, its version and the oldest compatible one; then blocks, each 4 bytes
big-endian, the bytes that follow, and one raw snappy block. Headers may come again.

Sources: github.com/lz4/lz4-java (its pull request 181 is about the 28 bits) and
github.com/xerial/snappy-java. That snappy's numbers are big-endian is not written there; it shows.
"""

import struct
from collections.abc import Iterator
from types import ModuleType

from ganger.errors import MissingExtraError

LZ4_MAGIC = b"LZ4Block"
SNAPPY_MAGIC = b"\x82SNAPPY\x00"

_LARGEST = 1 << 25
"""Largest block: lz4-java allows 32 MiB; Spark writes 32 KiB unless told otherwise."""

_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_SEED = 0x9747B28C
_STORED, _COMPRESSED = 0x10, 0x20


def lz4_blocks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress lz4-java's block format, block by block.

    Raises:
        EOFError: if the data end in the middle of a block.
        ValueError: if a block is damaged.
        MissingExtraError: without the packages of ganger[spark].
    """
    cramjam, xxhash = _packages()
    packed = _Packed(chunks)
    while header := packed.take(_LZ4_HEADER.size):
        magic, token, size, length, checksum = _LZ4_HEADER.unpack(header)
        if magic != LZ4_MAGIC:
            raise ValueError("no magic bytes before a block")
        if max(size, length) > _LARGEST:
            raise ValueError(f"a block of {max(size, length)} bytes")
        data = packed.take(size) if size else b""
        if length == 0:  # the end of a stream, perhaps not the last one
            continue
        if token & 0xF0 == _COMPRESSED:
            try:
                data = bytes(cramjam.lz4.decompress_block(data, output_len=length))
            except cramjam.DecompressionError as error:
                raise ValueError(error) from None
        elif token & 0xF0 != _STORED:
            raise ValueError(f"unknown method {token >> 4}")
        if len(data) != length:
            raise ValueError(f"{len(data)} bytes where {length} are announced")
        if xxhash.xxh32_intdigest(data, _LZ4_SEED) & 0x0FFFFFFF != checksum:
            raise ValueError("a checksum is wrong")
        yield data


def snappy_blocks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Decompress snappy-java's stream format, block by block.

    Raises:
        EOFError: if the data end in the middle of a block.
        ValueError: if a block is damaged.
        MissingExtraError: without the packages of ganger[spark].
    """
    cramjam, _ = _packages()
    packed = _Packed(chunks)
    while prefix := packed.take(4):
        if prefix == SNAPPY_MAGIC[:4]:
            if packed.take(12)[:4] != SNAPPY_MAGIC[4:]:
                raise ValueError("no magic bytes in a header")
            continue
        size = int.from_bytes(prefix, "big")
        if size > _LARGEST:
            raise ValueError(f"a block of {size} bytes")
        data = packed.take(size) if size else b""
        try:
            length = cramjam.snappy.decompress_raw_len(data)
            if length > _LARGEST:
                raise ValueError(f"a block of {length} bytes")
            yield bytes(cramjam.snappy.decompress_raw(data))
        except cramjam.DecompressionError as error:
            raise ValueError(error) from None


class _Packed:
    """Compressed chunks, taken in pieces of a wanted size."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._buffer = bytearray()

    def take(self, size: int) -> bytes:
        """So many bytes; none at the end of the data."""
        while len(self._buffer) < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                if not self._buffer:
                    return b""
                raise EOFError
            self._buffer += chunk
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken


def _packages() -> tuple[ModuleType, ModuleType]:
    try:
        import cramjam
        import xxhash
    except ImportError:
        raise MissingExtraError("Reading Spark's lz4 and snappy logs", "spark") from None
    return cramjam, xxhash
