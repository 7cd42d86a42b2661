"""The files that Spark logs come in: compressed, rolling, cut, damaged."""

import gzip
import struct

import cramjam
import pytest
import xxhash
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from spark_logs import END, executor, job, job_end, stage, start, submitted, task, text, two_stages
from spark_logs import write as write_log

from ganger.errors import MissingExtraError, WorkloadError
from ganger.testing import check_reader
from ganger.workload import Workload
from ganger.workload.readers import codecs, spark
from ganger.workload.readers.findings import Findings
from ganger.workload.readers.opening import expand, head


def read(spec, **options):
    findings = Findings(**options)
    jobs = spark.read(expand(spec), findings)
    Workload(tuple(jobs))
    return jobs, findings


def found(findings):
    """What was altered, and how often."""
    return {
        (action, reason): each.count
        for (action, reason), each in findings.found.items()
        if action != "noted"
    }


WHOLE = text(two_stages())
JOBS = "app-1/job0"


def zstd_frames(data, size=300):
    """Frame after frame, as Spark flushes them."""
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(map(zstandard.ZstdCompressor().compress, pieces))


# No real logs in the next two formats were at hand: these writers follow the published descriptions
# (lz4-java's LZ4BlockOutputStream, snappy-java's SnappyOutputStream); a library makes the blocks.


def lz4_java(data, size=500, end=True, stored=False):
    out = b""
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    for piece in [*pieces, b""] if end else pieces:
        packed = piece
        if piece and not stored:
            packed = bytes(cramjam.lz4.compress_block(piece, store_size=False))
        token = 0x25 if packed is not piece else 0x15
        checksum = xxhash.xxh32_intdigest(piece, seed=0x9747B28C) & 0x0FFFFFFF if piece else 0
        out += b"LZ4Block" + struct.pack("<BIII", token, len(packed), len(piece), checksum)
        out += packed
    return out


def snappy_java(data, size=500):
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for i in range(0, len(data), size):
        packed = bytes(cramjam.snappy.compress_raw(data[i : i + size]))
        out += struct.pack(">i", len(packed)) + packed
    return out


CONTAINERS = {
    "plain": WHOLE,
    "gzip": gzip.compress(WHOLE),
    "zstd": zstd_frames(WHOLE),
    "lz4": lz4_java(WHOLE),
    "lz4 stored": lz4_java(WHOLE, stored=True),
    "lz4 without its last block": lz4_java(WHOLE, end=False),
    "lz4, two streams": lz4_java(WHOLE[:1_000]) + lz4_java(WHOLE[1_000:]),
    "snappy": snappy_java(WHOLE),
    "snappy, two streams": snappy_java(WHOLE[:1_000]) + snappy_java(WHOLE[1_000:]),
}


def test_what_snappy_java_wrote_is_decompressed():
    written = bytes.fromhex("82534e41505059000000000100000001000000090718666f6f6261720a")
    assert list(codecs.snappy_blocks(iter([written]))) == [b"foobar\n"]
    assert snappy_java(b"foobar\n") == written


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_holds_the_same_jobs(tmp_path, container):
    path = tmp_path / "log"
    path.write_bytes(CONTAINERS[container])
    jobs, findings = read(path)
    assert jobs == read(write_log(tmp_path / "plain", two_stages()))[0]
    assert [job.id for job in jobs] == [JOBS]
    assert found(findings) == {}
    assert spark.recognise(head(path), path)


@pytest.mark.parametrize("container", ["gzip", "zstd", "lz4", "snappy"])
def test_of_compressed_data_that_are_cut_the_readable_beginning_is_kept(tmp_path, container):
    # Jobs that differ, so that the compressed data have a middle.
    events = [*start(), executor("1")]
    for number in range(300):
        info = stage(number)
        events += [
            job(number, info, at=number * 7_001),
            submitted(info),
            task(number, number, number * 7_001 + number**2 % 977, number * 7_003 + 997, index=0),
            job_end(number, number * 7_003 + 1_000),
        ]
    pack = {"gzip": gzip.compress, "zstd": zstd_frames, "lz4": lz4_java, "snappy": snappy_java}
    data = pack[container](text([*events, END]))
    path = tmp_path / "log.inprogress"
    path.write_bytes(data[: len(data) * 2 // 3])
    jobs, findings = read(path)
    assert 100 < len(jobs) < 300
    assert (
        findings.found["dropped", "compressed data ends in the middle: what follows is lost"]
        .places[0]
        .startswith(f"{path}:")
    )
    with pytest.raises(WorkloadError, match=r"log.inprogress:\d+: "):
        read(path, strict=True)


@pytest.mark.parametrize("damage", ["magic", "method", "sizes", "checksum", "bytes", "length"])
def test_damaged_lz4_blocks_are_refused(tmp_path, damage):
    data = bytearray(lz4_java(WHOLE))
    header = 8 + 13
    match damage:
        case "magic":
            size = struct.unpack_from("<I", data, 9)[0]
            data[header + size] ^= 1  # of the second block
        case "method":
            data[8] = 0x35
        case "sizes":
            data[9:13] = struct.pack("<I", 1 << 31)
        case "length":
            data[13:17] = struct.pack("<I", 400)
        case "checksum":
            data[17] ^= 1
        case "bytes":
            data[header + 3] ^= 1
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(WorkloadError, match="log: damaged lz4 data"):
        read(path)


@pytest.mark.parametrize("damage", ["header", "size", "bytes", "promise"])
def test_damaged_snappy_blocks_are_refused(tmp_path, damage):
    data = bytearray(snappy_java(WHOLE))
    match damage:
        case "header":
            data += b"\x82SNAPPX\x00" + bytes(8)
        case "size":
            data[16:20] = struct.pack(">i", (1 << 25) + 1)
        case "bytes":
            data[21:23] = b"\xff\xff"
        case "promise":  # a block that says it stands for two gigabytes
            data[20:25] = b"\xff\xff\xff\xff\x07"
    path = tmp_path / "log"
    path.write_bytes(data)
    with pytest.raises(WorkloadError, match="log: damaged snappy data"):
        read(path)


def test_without_the_packages_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cramjam", None)
    path = tmp_path / "log"
    path.write_bytes(lz4_java(WHOLE))
    with pytest.raises(MissingExtraError, match=r"pip install 'ganger\[spark\]'"):
        read(path)
    assert codecs.LZ4_MAGIC == b"LZ4Block"


def rolled(directory, parts, suffix=""):
    """A rolling log of some parts, its number 10 after its number 9."""
    folder = directory / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1.inprogress").touch()
    for number, part in parts.items():
        (folder / f"events_{number}_app-1{suffix}").write_bytes(part)
    return folder


def test_a_rolling_log_is_read_in_the_order_of_its_numbers(tmp_path):
    lines = WHOLE.splitlines(keepends=True)
    parts = dict(enumerate(lines, start=1))
    assert len(parts) == 11
    folder = rolled(tmp_path, parts)
    jobs, findings = read(folder)
    assert [job.id for job in jobs] == [JOBS]
    assert jobs[0].stages[1].durations.levels[0].first_s == (1.0,)
    assert found(findings) == {}
    assert findings.files == 11
    # Whatever order the files are named in.
    assert spark.read(sorted(folder.iterdir(), reverse=True), Findings()) == jobs


def test_of_a_rolling_log_with_a_missing_file_the_rest_is_read(tmp_path):
    lines = WHOLE.splitlines(keepends=True)
    folder = rolled(tmp_path, {2: b"".join(lines[:6]), 5: b"".join(lines[6:])})
    jobs, findings = read(folder)
    assert len(jobs) == 1
    assert found(findings) == {("dropped", "file of a rolling log is missing"): 3}
    where = findings.found["dropped", "file of a rolling log is missing"].places
    assert [place.rpartition("/")[2] for place in where] == ["events_1", "events_3"]


def test_a_compacted_file_takes_the_place_of_those_before_it(tmp_path):
    folder = rolled(tmp_path, {1: b"{not read}\n", 2: b"{nor this}\n", 3: text([END])})
    compacted = folder / "events_2_app-1.compact"
    compacted.write_bytes(text(two_stages()[:-1]))
    jobs, findings = read(folder)
    assert [job.id for job in jobs] == [JOBS]
    assert found(findings) == {}
    assert findings.notes[0].startswith(f"{compacted}: compacted: ")
    assert findings.files == 2


def test_a_directory_of_logs_is_read_as_one_workload_in_order_of_time(tmp_path):
    write_log(tmp_path / "b", two_stages(app="early", at=1_000))
    write_log(tmp_path / "a", two_stages(app="late", at=61_000))
    (tmp_path / "empty").touch()
    rolled(tmp_path, {1: text(two_stages(app="rolled", at=31_000))})
    jobs, findings = read(tmp_path)
    assert [(job.id, job.arrival_s) for job in jobs] == [
        ("early/job0", 0.0),
        ("rolled/job0", 30.0),
        ("late/job0", 60.0),
    ]
    assert jobs[2].recorded.finish_s == 64.2
    assert findings.executors == 2  # no two of them ran at once
    assert found(findings) == {("dropped", "file is empty"): 1}


def test_among_logs_a_file_that_is_something_else_is_left_out_and_named(tmp_path):
    write_log(tmp_path / "log", two_stages())
    (tmp_path / "metrics.csv").write_bytes(b"a,b\n1,2\n")
    folder = rolled(tmp_path, {1: text(two_stages(app="rolled")), 2: b"noise\n" * 9})
    jobs, findings = read(tmp_path)
    assert [job.id for job in jobs] == ["rolled/job0", JOBS]
    finding = findings.found["dropped", "file that holds no Spark events"]
    assert finding.places == [str(folder / "events_2_app-1"), str(tmp_path / "metrics.csv")]
    with pytest.raises(WorkloadError, match=r"events_2_app-1:1: line is not an event"):
        read(tmp_path, strict=True)


def test_attempts_of_one_application_and_logs_of_one_id_are_told_apart(tmp_path):
    write_log(tmp_path / "x1", two_stages(attempt="1"))
    write_log(tmp_path / "x2", two_stages(attempt="2"))
    write_log(tmp_path / "y", two_stages())
    write_log(tmp_path / "z", two_stages())
    write_log(tmp_path / "z0" / "z", two_stages())
    jobs, _ = read(tmp_path)
    assert [job.id for job in jobs] == [
        "app-1_1/job0",
        "app-1_2/job0",
        "app-1/job0",
        "z:app-1/job0",
        "z:app-1:2/job0",
    ]


def test_two_logs_joined_in_one_file_are_two_applications(tmp_path):
    without_version = two_stages(app="third")[1:]
    path = write_log(
        tmp_path / "log", [*two_stages(app="one"), *two_stages(app="two"), *without_version]
    )
    assert [job.id for job in read(path)[0]] == ["one/job0", "two/job0", "third/job0"]


def test_a_last_line_that_is_cut_off_is_told_from_other_damage(tmp_path):
    path = tmp_path / "log"
    lines = WHOLE.splitlines(keepends=True)
    lines[4:4] = [b'{"Event":"SparkListenerTaskEnd","Stage ID":0,"Sta\n', b"\0\0\0\n", b"[1, 2]\n"]
    path.write_bytes(b"".join(lines)[:-9])
    jobs, findings = read(path)
    assert len(jobs) == 1
    assert found(findings) == {
        ("dropped", "line is not an event in JSON"): 3,
        ("dropped", "last line is cut off"): 1,
    }
    assert findings.found["dropped", "last line is cut off"].places == [f"{path}:14"]


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b'{"jobs": []}\n', b"\0" * 999])
def test_what_is_no_event_log_is_refused_by_name(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    assert not spark.recognise(head(path), path)
    with pytest.raises(WorkloadError, match="other: "):
        read(path)


def test_logs_are_recognised_by_what_they_hold(tmp_path):
    path = tmp_path / "any.txt"
    assert spark.recognise(
        b'{"Event":"DBCEventLoggingListenerMetadata","Rollout Number":0}\n', path
    )
    assert spark.recognise(b'\n {"a": 1, "Event" : "SparkListenerJobStart"}', path)
    assert spark.recognise(b"", tmp_path / "appstatus_app-1")
    assert not spark.recognise(b'{"format":"ganger.jobs","version":1}\n', path)
    assert not spark.recognise(b'{"name":"SparkListener"}\n', path)


@pytest.mark.parametrize("container", ["plain", "gzip", "zstd", "lz4", "snappy"])
def test_the_reader_passes_the_checks_of_readers(tmp_path, container):
    path = tmp_path / "log"
    path.write_bytes(CONTAINERS[container])
    check_reader(lambda path: spark.read([path], Findings()), path)


LONG = text(
    [
        *two_stages(app="one"),
        *two_stages(app="two"),
        *start(app="three"),
        job(0, stage(0, 2), stage(1, parents=[0]), sql=3),
        job(1, stage(0, 2), stage(2, parents=[0]), sql=3),
        submitted(stage(0, 2)),
        task(0, 0, 5, 9, partition=1),
        task(1, 0, 5, 9, reason="FetchFailed"),
        submitted(stage(0, 1, attempt=1)),
        task(2, 0, 8, 7, attempt=1, run_ms=3),
    ]
)


@st.composite
def damaged(draw):
    """The bytes of a log with some of them changed, left out, doubled or in another order."""
    data = bytearray(LONG)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        how = draw(st.sampled_from(["cut", "byte", "digits", "leave out", "shuffle", "double"]))
        match how:
            case "cut" if at > 200:
                del data[at:]
            case "byte":
                data[at] = draw(st.integers(0, 255))
            case "digits":
                digits = draw(
                    st.sampled_from([b"-1", b"999999999999999999999", b"null", b"1e9", b"{}"])
                )
                data[at : at + 1] = digits
            case "leave out":
                del data[at : at + draw(st.integers(1, 400))]
            case "shuffle":
                lines = data.splitlines(keepends=True)
                data = bytearray(b"".join(draw(st.permutations(lines))))
            case "double":
                data[at:at] = data[max(0, at - draw(st.integers(1, 2_000))) : at]
        if not data:
            data = bytearray(b"\n")
    return bytes(data)


@given(data=damaged(), unit=st.sampled_from(["job", "sql"]), packed=st.booleans())
def test_a_damaged_log_gives_sound_jobs_or_one_clear_error(tmp_path_factory, data, unit, packed):
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(zstd_frames(data) if packed else data)
    try:
        jobs = spark.read([path], Findings(), unit=unit)
    except WorkloadError as error:
        assert "damaged" in str(error)
    else:
        Workload(tuple(jobs))
        assert jobs == spark.read([path], Findings(), unit=unit)


@given(st.data())
def test_damaged_compressed_bytes_give_sound_jobs_or_one_clear_error(tmp_path_factory, data):
    container = data.draw(st.sampled_from(["gzip", "zstd", "lz4", "snappy"]))
    packed = bytearray(CONTAINERS[container])
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged_packed"
    path.write_bytes(packed)
    try:
        jobs = spark.read([path], Findings())
    except WorkloadError as error:
        assert "damaged_packed" in str(error)
    else:
        Workload(tuple(jobs))
