import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Pool, Recorded, Workload
from ganger.workload.readers import philly
from ganger.workload.readers.findings import Findings

TABLE = (
    "timestamp,duration,num_gpus,gpu_time,cluster\n"
    "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    "2017-10-09 06:13:03,2951.0,8,23608.0,6214e9\n"
)


def attempt(start, end, *gpus):
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(n)]} for i, n in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def record(id="application_1", **fields):
    return {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": id,
        "attempts": [attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 2, 2)],
        "submitted_time": "2017-10-07 01:11:30",
        "user": "ce2f4c",
    } | fields


@pytest.fixture
def read(tmp_path):
    def read(text, strict=False):
        path = tmp_path / "philly"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        findings = Findings(strict=strict)
        jobs = list(philly.read([path], findings))
        Workload(tuple(jobs))
        del findings.found[("guessed", "no requested run time: schedulers are told the real one")]
        return jobs, {key: found.count for key, found in findings.found.items()}, findings

    return read


def test_a_row_of_the_table_is_a_gang_of_its_gpus(read):
    jobs, found, findings = read(TABLE)
    assert [(job.id, job.arrival_s, job.user) for job in jobs] == [
        ("philly:3", 0.0, "6214e9"),
        ("philly:2", 2932.0, "11cb48"),
    ]
    (stage,) = jobs[0].stages
    assert (stage.task_count, stage.durations, stage.gang) == (8, Pool((2951.0,)), True)
    assert (found, findings.rows, findings.epoch_s) == ({}, 2, 1507529583.0)


def test_attempts_of_a_record_are_one_run_as_wide_as_the_widest(read):
    attempts = [
        attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 2, 2),
        attempt("2017-10-07 01:14:00", "2017-10-07 02:14:00", 8),
        attempt("2017-10-07 03:00:00", None, 8),
    ]
    (job,), found, _ = read([record(attempts=attempts)])
    assert (job.id, job.user, job.arrival_s) == ("application_1", "ce2f4c", 0.0)
    assert (job.stages[0].task_count, job.stages[0].durations) == (8, Pool((3660.0,)))
    assert job.recorded == Recorded(start_s=30.0, finish_s=3750.0, status="Pass")
    assert list(found.values()) == [1]


def test_what_is_missing_is_dropped_or_guessed_and_counted(read):
    jobs, found, _ = read(
        [
            record("1", attempts=[]),
            record("2", attempts=None),
            record("3", attempts=[attempt("None", "2017-10-07 01:13:00", 1)]),
            record("4", submitted_time=None, user=None),
            record("5", submitted_time="2017-10-07 01:12:30"),
            record("4"),
        ]
    )
    assert [job.id for job in jobs] == ["4#2", "4", "5"]
    assert [job.user for job in jobs] == ["ce2f4c", "ee9e8c", "ce2f4c"]
    assert jobs[2].recorded == Recorded(status="Pass")
    assert found == {
        ("dropped", "never ran: no attempt has a start and an end"): 3,
        ("dropped", "attempt without start, end or GPUs, or that ends before it starts"): 1,
        ("guessed", "submitted time is unknown: taken to arrive when it started"): 1,
        (
            "repaired",
            "starts before it was submitted: start and finish are taken for unknown",
        ): 1,
        ("repaired", "job id is used by an earlier record: #2, #3, ... is put after it"): 1,
    }
    jobs, found, _ = read(TABLE + "x,1,1,1,a\n2017-10-09 07:01:55,-1,1,1,a\n\n2017-10-09\n")
    assert len(jobs) == 2
    assert list(found.values()) == [3]


@pytest.mark.parametrize(
    "text", ["", "a,b\n", TABLE[:44], "[]", "[1]", "[", "[{}]", [record("1", attempts=[])]]
)
def test_a_file_without_a_job_is_refused(read, text):
    with pytest.raises(WorkloadError, match=r"philly.* expected cluster_job_log, or a CSV table"):
        read(text)


def test_it_is_recognised_and_conforms(tmp_path):
    for text in (TABLE, json.dumps([record()], indent=4)):
        assert philly.recognise(text.encode(), tmp_path)
        path = tmp_path / "philly"
        path.write_text(text)
        check_reader(lambda path: philly.read([path], Findings()), path)
    for other in (b"", b"[]", b"a,b\n", b'{"jobid": 1}'):
        assert not philly.recognise(other, tmp_path)


@given(
    st.sampled_from([TABLE.encode(), json.dumps([record(), record("2")]).encode()]),
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=20),
)
def test_damaged_files_give_sound_jobs_or_an_error(tmp_path_factory, clean, size, changes):
    data = bytearray(clean)
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("damaged") / "philly"
    path.write_bytes(data[: size % (2 * len(data))])
    try:
        Workload(tuple(philly.read([path], Findings())))
    except WorkloadError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize(
    ("name", "jobs"),
    [("philly_jobs_most_vcs.csv", 25000), ("cluster_job_log_one_real_entry.json", 1)],
)
def test_real_logs_are_read_whole(shared_dir, name, jobs):
    path = shared_dir / "data" / "philly" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    findings = Findings()
    read = list(philly.read([path], findings))
    Workload(tuple(read))
    assert (len(read), len(findings.found)) == (jobs, 1)
