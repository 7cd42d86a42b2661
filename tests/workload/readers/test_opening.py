import gzip
import io
import os
import sys
import threading
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.workload.readers import opening
from ganger.workload.readers.opening import STDIN, Truncated, expand, head, lines, open_bytes

TEXT = b"".join(b"line %d of a file\n" % i for i in range(5000))


def read(path):
    with open_bytes(path) as stream:
        return stream.read()


@pytest.fixture
def write(tmp_path):
    def write(data, name="file"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def in_frames(pack):
    return b"".join(pack(part) for part in (TEXT[:10], b"", TEXT[10:50_000], TEXT[50_000:]))


@pytest.mark.parametrize(
    "data",
    [
        TEXT,
        gzip.compress(TEXT),
        in_frames(gzip.compress),
        in_frames(gzip.compress) + b"\0" * 9000,
        zstandard.compress(TEXT),
        in_frames(zstandard.compress),
    ],
    ids=["plain", "gzip", "gzip members", "padded gzip", "zstd", "zstd frames"],
)
def test_content_says_how_a_file_is_compressed(write, data):
    path = write(data, "misleading.zst.gz.txt")
    assert read(path) == TEXT
    assert head(path, 100) == TEXT[:100]
    assert list(lines(path)) == list(enumerate(TEXT.splitlines(), start=1))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_of_compressed_data_that_are_cut_off_the_complete_lines_are_read(write, pack, share):
    # Noise in hexadecimal, so that there is something to cut.
    text = b"".join(os.urandom(40).hex().encode() + b"\n" for _ in range(20_000))
    packed = pack(text)
    path = write(packed[: int(len(packed) * share)])
    seen = []
    with pytest.raises(Truncated, match=r"file: ends in the middle of its \w+ data, after line"):
        for number, line in lines(path):
            seen.append((number, line))
    assert seen == list(enumerate(text.splitlines(), start=1))[: len(seen)]
    assert len(seen) >= 20_000 * share * 0.6 - 4000
    assert text.startswith(head(path))


def test_a_frame_cut_right_after_its_magic_is_truncated(write):
    with pytest.raises(Truncated, match="zstd"):
        list(lines(write(zstandard.compress(TEXT)[:4])))
    with pytest.raises(Truncated, match="gzip"):
        head(write(gzip.compress(TEXT)[:2]))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_damaged_data_are_an_error_that_names_the_file(write, pack):
    packed = bytearray(pack(TEXT))
    packed[len(packed) // 2 :] = bytes(200)
    with pytest.raises(WorkloadError, match=r"file: (damaged|ends in)"):
        list(lines(write(bytes(packed))))


@given(
    data=st.binary(max_size=200),
    start=st.sampled_from([b"", *opening.DECODERS]),
)
def test_no_bytes_give_anything_but_lines_or_an_error(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("bytes") / "file"
    path.write_bytes(start + data)
    try:
        for _, line in lines(path):
            assert b"\n" not in line
    except WorkloadError as error:
        assert str(path) in str(error)


def test_line_ends_are_taken_off_and_a_byte_order_mark_too(write):
    path = write(b"\xef\xbb\xbfone\r\n\r\n two \nlast")
    assert list(lines(path)) == [(1, b"one"), (2, b""), (3, b" two "), (4, b"last")]
    assert list(lines(write(b""))) == []


def test_a_line_without_end_is_refused_before_it_fills_the_memory(write, monkeypatch):
    monkeypatch.setattr(opening, "LINE_LIMIT", 1 << 20)
    packed = zstandard.compress(b"first\n" + bytes(1 << 22))
    assert len(packed) < 10_000
    with pytest.raises(WorkloadError, match="file:2: the line is longer than 1 MiB"):
        list(lines(write(packed)))


def test_a_directory_is_its_files_in_natural_order(tmp_path):
    for name in ("b/events_10", "b/events_2", "b/events_1", "a2", "a10", ".hidden", ".git/x"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    found = [str(path.relative_to(tmp_path)) for path in expand(tmp_path)]
    assert found == ["a2", "a10", "b/events_1", "b/events_2", "b/events_10"]
    assert expand(f"{tmp_path}/*") == expand(tmp_path)
    assert [path.name for path in expand(f"{tmp_path}/a*")] == ["a2", "a10"]
    assert expand(f"{tmp_path}/a2") == [tmp_path / "a2"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    (tmp_path / "log[1].txt").write_bytes(b"")
    (tmp_path / "log1.txt").write_bytes(b"")
    assert [path.name for path in expand(f"{tmp_path}/log[1].txt")] == ["log[1].txt"]


def test_a_name_for_nothing_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match=r"absent: there is no such file"):
        expand(tmp_path / "absent")
    with pytest.raises(WorkloadError, match=r"\*\.swf: nothing matches"):
        expand(f"{tmp_path}/*.swf")
    with pytest.raises(WorkloadError, match="holds no files"):
        expand(tmp_path)
    with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
        head(tmp_path)
    with pytest.raises(WorkloadError):
        expand("a\0b")
    with pytest.raises(WorkloadError, match="cannot be read: No such file"):
        list(lines(tmp_path / "absent"))


def test_standard_input_can_be_recognised_and_then_read(monkeypatch):
    stdin = SimpleNamespace(buffer=io.BytesIO(gzip.compress(TEXT)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert expand("-") == [STDIN]
    assert TEXT.startswith(head(STDIN))
    assert read(STDIN) == TEXT


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_can_be_recognised_and_then_read(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(TEXT,))
    writer.start()
    assert TEXT.startswith(head(path))
    assert read(path) == TEXT
    writer.join()
