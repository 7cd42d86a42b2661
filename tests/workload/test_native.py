import gzip
import math
import struct

import msgspec
import pytest
import strategies
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.workload import (
    Job,
    PerTask,
    Pool,
    Stage,
    Wave,
    Waves,
    Workload,
    read_jobs,
    read_workload,
    write_jobs,
    write_workload,
)

HEADER = b'{"format":"ganger.jobs","version":1}\n'
STAGES = b'[{"id":"a","task_count":1,"durations":{"kind":"pool","values_s":[1.5]}}]'
JOB = b'{"id":"x","arrival_s":0.5,"stages":' + STAGES + b"}\n"
TEMPLATE = b'{"template":"t","stages":' + STAGES + b"}\n"

in_tmp_path = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def job(id="x", values=(1.5,), arrival_s=0.5):
    durations = PerTask(tuple(values))
    stage = Stage(id="a", task_count=len(values), durations=durations)
    return Job(id=id, arrival_s=arrival_s, stages=(stage,))


def read(tmp_path, content):
    path = tmp_path / "w.jobs.jsonl"
    path.write_bytes(content)
    return read_workload(path)


@pytest.mark.parametrize("name", ["w.jobs.jsonl", "w.jobs.jsonl.zst"])
@in_tmp_path
@given(workload=strategies.workloads())
def test_a_written_workload_is_read_back_the_same(tmp_path, name, workload):
    path = tmp_path / name
    write_workload(path, workload)
    assert read_workload(path) == workload
    write_jobs(path, workload.jobs)
    assert tuple(read_jobs(path)) == workload.jobs


@in_tmp_path
@given(values=st.lists(st.floats(0.0, 1e15), min_size=1, max_size=20))
def test_floats_survive_to_the_bit(tmp_path, values):
    write_jobs(tmp_path / "w", [job(values=values, arrival_s=values[0])])
    (read_back,) = read_jobs(tmp_path / "w")
    read_values = read_back.stages[0].durations.values_s
    assert struct.pack(f"{len(values)}d", *read_values) == struct.pack(f"{len(values)}d", *values)
    assert read_back.arrival_s == values[0]


def test_shared_stages_are_written_once_and_shared_again_when_read(tmp_path):
    shared = job(values=[0.1] * 1000).stages
    jobs = tuple(Job(id=str(i), arrival_s=float(i), stages=shared) for i in range(100))
    path = tmp_path / "w.jobs.jsonl"
    write_workload(path, Workload((*jobs, job("other"))))
    lines = path.read_bytes().splitlines()
    assert len(lines) == 1 + 1 + 100 + 1  # header, template, its jobs, the other job
    assert path.stat().st_size < 15_000
    read_back = read_workload(path)
    assert len({id(job.stages) for job in read_back.jobs}) == 2


def test_equal_stages_of_any_jobs_become_one_tuple(tmp_path):
    write_jobs(tmp_path / "w", [job("a"), job("b", (2.0,)), job("c")])
    a, b, c = read_jobs(tmp_path / "w")
    assert a.stages is c.stages
    assert a.stages is not b.stages


def test_jobs_are_read_as_they_are_asked_for(tmp_path):
    path = tmp_path / "w"
    path.write_bytes(HEADER + JOB + b"not a job\n")
    jobs = read_jobs(path)
    assert next(jobs).id == "x"
    with pytest.raises(WorkloadError, match=r":3: "):
        next(jobs)


def test_jobs_are_written_as_they_are_given(tmp_path):
    path = tmp_path / "w"
    write_jobs(path, (job(str(i)) for i in range(1000)))
    assert sum(1 for _ in read_jobs(path)) == 1000


def test_a_file_without_its_last_line_end_and_with_windows_ends_is_read(tmp_path):
    assert len(read(tmp_path, HEADER + JOB.rstrip()).jobs) == 1
    assert len(read(tmp_path, (HEADER + JOB).replace(b"\n", b"\r\n")).jobs) == 1


def test_several_zstd_frames_are_read_through(tmp_path):
    compress = zstandard.ZstdCompressor().compress
    content = HEADER + JOB + JOB.replace(b'"x"', b'"y"')
    frames = b"".join(compress(content[i : i + 50]) for i in range(0, len(content), 50))
    assert [job.id for job in read(tmp_path, frames).jobs] == ["x", "y"]


def line(**fields):
    return msgspec.json.encode(fields) + b"\n"


RAW = msgspec.Raw(STAGES)
ZST = zstandard.ZstdCompressor().compress(HEADER + JOB * 100)

DAMAGED = {
    "empty": (b"", r": the file is empty; expected a first line"),
    "binary junk": (bytes(range(256)) * 10, r":1: not a Ganger workload"),
    "zeros": (bytes(1 << 20), r":1: the line is too long; expected a first line"),
    "another JSON file": (b'{"jobs":[]}\n', r":1: not a Ganger workload"),
    "a list": (b"[]\n", r":1: not a Ganger workload"),
    "gzip": (gzip.compress(HEADER + JOB), r":1: not a Ganger workload"),
    "no header": (JOB, r":1: not a Ganger workload; expected a first line"),
    "nested": (b"[" * 60_000, r":1: not a Ganger workload"),
    "next version": (
        b'{"format":"ganger.jobs","version":2,"new":1}\n',
        r":1: version is 2; this Ganger reads 1",
    ),
    "no version": (b'{"format":"ganger.jobs"}\n', r":1: version is None"),
    "odd version": (b'{"format":"ganger.jobs","version":true}\n', r":1: version is True"),
    "header key": (
        b'{"format":"ganger.jobs","version":1,"jobs":3}\n',
        r":1: unknown key 'jobs'",
    ),
    "byte order mark": (b"\xef\xbb\xbf" + HEADER, r":1: byte order mark"),
    "blank line": (HEADER + JOB + b"\n" + JOB, r":3: blank line; expected one job per line"),
    "cut line": (HEADER + JOB[:-20], r":2: .*; expected a job with id, arrival_s"),
    "not UTF-8": (HEADER + JOB.replace(b"x", b"\xff"), r":2: "),
    "nested job": (HEADER + b'{"id":' + b"[" * 100_000, r":2: "),
    "unknown key": (HEADER + line(id="x", arrival_s=1, stages=RAW, owner="me"), r":2: .*`owner`"),
    "unknown stage key": (
        HEADER + JOB.replace(b'"task_count"', b'"colour":1,"task_count"'),
        r":2: job 'x': .*`colour`.*stages\[",
    ),
    "unknown kind": (HEADER + JOB.replace(b"pool", b"loop"), r":2: job 'x': .*loop"),
    "no task count": (HEADER + JOB.replace(b'"task_count":1,', b""), r":2: job 'x': .*task_count"),
    "text for a number": (HEADER + JOB.replace(b"[1.5]", b'["1.5"]'), r":2: job 'x': .*stages\["),
    "NaN": (HEADER + JOB.replace(b"[1.5]", b"[NaN]"), r":2: "),
    "too large a number": (HEADER + JOB.replace(b"[1.5]", b"[1e999]"), r":2: job 'x'"),
    "negative value": (
        HEADER + JOB.replace(b"[1.5]", b"[-1.5]"),
        r":2: job 'x': stage 'a': durations.values_s\[0\] is -1.5",
    ),
    "no task": (HEADER + JOB.replace(b'count":1', b'count":0'), r":2: job 'x': stage 'a': task_c"),
    "negative arrival": (HEADER + JOB.replace(b"0.5", b"-1"), r":2: job 'x': arrival_s is -1"),
    "no arrival": (HEADER + line(id="x", stages=RAW), r":2: job 'x': arrival_s is missing"),
    "no stages": (HEADER + line(id="x", arrival_s=1), r":2: job 'x': expected either stages or"),
    "stages and template": (
        HEADER + TEMPLATE + line(id="x", arrival_s=1, stages=RAW, template="t"),
        r":3: job 'x': expected either stages or template",
    ),
    "unknown template": (
        HEADER + TEMPLATE + line(id="x", arrival_s=1, template="u"),
        r":3: job 'x': template 'u' is unknown",
    ),
    "template twice": (HEADER + TEMPLATE * 2, r":3: template 't' is defined twice"),
    "template that arrives": (
        HEADER + line(template="t", arrival_s=1, stages=RAW),
        r":2: neither a job .* nor a template",
    ),
    "invalid template": (
        HEADER + TEMPLATE.replace(b'count":1', b'count":0'),
        r":2: template 't': stage 'a': task_count is 0",
    ),
    "template with a user": (
        HEADER + line(template="t", stages=RAW, user="me"),
        r":2: neither a job .* nor a template",
    ),
    "user that is no text": (HEADER + line(id="x", arrival_s=1, stages=RAW, user=7), r":2: .*user"),
    "template with a record": (
        HEADER + line(template="t", stages=RAW, recorded={}),
        r":2: neither a job .* nor a template",
    ),
    "finish before start": (
        HEADER + line(id="x", arrival_s=1, stages=RAW, recorded={"start_s": 5, "finish_s": 4}),
        r":2: job 'x': recorded.finish_s is 4.*, before recorded.start_s",
    ),
    "no fields": (HEADER + b"{}\n", r":2: neither a job"),
    "duplicate id": (HEADER + JOB * 2, r":3: job 'x': id is used by an earlier job"),
    "cut zstd": (ZST[:-9], r"ends in the middle of its zstd data|zstd"),
    "zstd and junk": (ZST.replace(JOB, b"") + b"junk", r"zstd|:3: "),
    "damaged zstd": (ZST[:6] + b"\xff" * 2000, r"damaged zstd data"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_gives_one_clear_line(tmp_path, content, message):
    with pytest.raises(WorkloadError, match=message) as caught:
        read(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "w.jobs.jsonl"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_zstd_cut_anywhere_is_noticed(tmp_path):
    jobs = [job(str(i), (i / 7.0, float(i))) for i in range(50)]
    path = tmp_path / "w.jobs.jsonl.zst"
    write_jobs(path, jobs)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(WorkloadError):
            read_workload(path)


@in_tmp_path
@given(data=st.data())
def test_any_damage_gives_a_workload_or_one_error(tmp_path, data):
    content = bytearray(HEADER + TEMPLATE + JOB + line(id="y", arrival_s=2, template="t"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        read(tmp_path, bytes(content))
    except WorkloadError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("wrong", [{"values": (math.nan,)}, {"arrival_s": -1.0}, {"id": "first"}])
def test_an_invalid_job_is_not_written_and_the_old_file_stays(tmp_path, wrong):
    path = tmp_path / "w.jobs.jsonl"
    write_jobs(path, [job("old")])
    with pytest.raises(WorkloadError, match="job '"):
        write_jobs(path, [job("first"), job(**wrong)])
    assert [job.id for job in read_jobs(path)] == ["old"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.jobs.jsonl"]


def test_missing_places_are_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"absent\.jobs\.jsonl: cannot be read: No such file"):
        read_workload(tmp_path / "absent.jobs.jsonl")
    with pytest.raises(WorkloadError, match=r"cannot be read: Is a directory"):
        read_workload(tmp_path)
    with pytest.raises(WorkloadError, match=r"cannot be written: No such file"):
        write_jobs(tmp_path / "absent" / "w.jobs.jsonl", [job()])
    with pytest.raises(WorkloadError, match=r"not valid Unicode"):
        write_jobs(tmp_path / "w.jobs.jsonl", [job("\ud800")])


def test_all_kinds_of_durations_are_told_apart(tmp_path):
    waves = Waves(
        levels=(Wave(executors=5, first_s=(1.0,)), Wave(executors=10, rest_s=(0.1, 0.2))),
        warmup_s=1.0,
        interpolation="inverted",
    )
    stages = tuple(
        Stage(id=str(i), task_count=1, durations=durations)
        for i, durations in enumerate([PerTask((1.0,)), Pool((1.0,)), waves])
    )
    workload = Workload((Job(id="x", arrival_s=0.0, stages=stages),))
    write_workload(tmp_path / "w", workload)
    assert read_workload(tmp_path / "w") == workload
