import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Demand, Job, Pool, Recorded, Stage, Workload
from ganger.workload.readers import swf
from ganger.workload.readers.findings import Findings

HEADER = """\
; Version: 2.2
; MaxRecords: 2
; UnixStartTime: 1000
; TimeZone: 3600
; TimeZoneString: Europe/Stockholm
; MaxNodes: 8
; MaxProcs: 16
;
"""


def row(number=1, submit=0, wait=5, run=60, allocated=4, requested=4, limit=100, status=1, **more):
    memory, user = more.get("memory", -1), more.get("user", 7)
    return (
        f"{number} {submit} {wait} {run} {allocated} -1 -1 {requested} {limit} {memory} {status} "
        f"{user} 1 -1 -1 -1 -1 -1\n"
    )


@pytest.fixture
def read(tmp_path):
    def read(*texts, strict=False):
        paths = [tmp_path / f"log{i}.swf" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        findings = Findings(strict=strict)
        jobs = list(swf.read(paths, findings))
        Workload(tuple(jobs))
        return jobs, findings

    return read


def counts(findings):
    return {(action, reason): found.count for (action, reason), found in findings.found.items()}


def test_a_row_is_a_gang_with_a_limit_and_what_became_of_it(read):
    jobs, findings = read(HEADER + row() + row(2, submit=30, wait=0, run=120, status=0))
    stage = {"id": "0", "task_count": 4, "gang": True, "limit_s": 100.0, "estimated_task_s": 100.0}
    assert jobs == [
        Job(
            id="1",
            arrival_s=0.0,
            stages=(Stage(durations=Pool((60.0,)), **stage),),
            user="7",
            recorded=Recorded(start_s=5.0, finish_s=65.0, status="1"),
        ),
        Job(
            id="2",
            arrival_s=30.0,
            stages=(Stage(durations=Pool((120.0,)), **stage),),
            user="7",
            recorded=Recorded(start_s=30.0, finish_s=150.0, status="0"),
        ),
    ]
    assert counts(findings) == {("noted", "ran longer than it requested"): 1}
    assert findings.notes == []
    assert (findings.format, findings.version) == ("Standard Workload Format", "2.2")
    assert (findings.rows, findings.files, findings.executors) == (2, 1, 16)
    assert (findings.epoch_s, findings.timezone) == (1000.0, "Europe/Stockholm")


def test_what_never_ran_is_dropped_and_counted_by_reason_with_its_place(read, tmp_path):
    text = (
        row(1)
        + row(2, run=-1, allocated=-1, status=5)
        + row(3, run=0, allocated=0, status=5)
        + row(4, run=-1)
        + row(5, run=-60)
        + row(6, allocated=-1, requested=0)
        + row(7, submit=-1)
        + row(8, run=10, status=5)
        + row(9, run="1e99")
        + row(10, allocated=2**40, requested=2**40)
    )
    jobs, findings = read(text)
    assert [job.id for job in jobs] == ["1", "8"]
    assert counts(findings) == {
        ("dropped", "cancelled before it started (status 5)"): 2,
        ("dropped", "run time is unknown (-1)"): 1,
        ("dropped", "run time is negative or out of range"): 2,
        ("dropped", "processors are unknown: neither allocated nor requested"): 1,
        ("dropped", "submit time is unknown (-1) or out of range"): 1,
        ("dropped", "processors are more than 2147483647"): 1,
    }
    found = findings.found["dropped", "cancelled before it started (status 5)"]
    assert found.places == [f"{tmp_path}/log0.swf:2", f"{tmp_path}/log0.swf:3"]
    with pytest.raises(WorkloadError, match=r"log0\.swf:2: cancelled before it started"):
        read(text, strict=True)


def test_a_run_time_of_zero_is_legal_and_stays_zero(read):
    jobs, findings = read(row(run=0) + row(2, run=0, status=5))
    assert [job.stages[0].durations for job in jobs] == [Pool((0.0,))] * 2
    assert jobs[0].recorded == Recorded(start_s=5.0, finish_s=5.0, status="1")
    assert counts(findings) == {}


def test_what_is_unknown_is_guessed_and_counted(read):
    jobs, findings = read(
        row(1, limit=-1, user=-1, status=-1, wait=-1) + row(2, allocated=-1) + row(3, requested=-1)
    )
    assert jobs[0].stages[0].limit_s is None
    assert jobs[0].stages[0].estimated_task_s == 60.0
    assert (jobs[0].user, jobs[0].recorded) == (None, None)
    assert [job.stages[0].task_count for job in jobs] == [4, 4, 4]
    assert counts(findings) == {
        ("guessed", "no requested time: schedulers are told the run time"): 1,
        ("guessed", "allocated processors are unknown: as many as requested"): 1,
    }


def test_a_job_is_as_wide_as_it_was_allocated_even_if_no_cluster_could_hold_it(read):
    jobs, findings = read(
        HEADER + row(allocated=64, requested=4) + row(2, allocated=64, requested=64)
    )
    assert [job.stages[0].task_count for job in jobs] == [64, 64]
    assert findings.executors == 16
    assert [action for action, _ in findings.found] == ["noted"]


def test_memory_asked_for_is_demanded_of_each_executor_in_gibibytes(read):
    jobs, _ = read(row(memory=2097152))
    assert jobs[0].stages[0].demand == Demand(memory=2.0)


def test_floats_tabs_blank_lines_comments_and_a_nineteenth_column_are_read(read):
    text = (
        "\n   \n\t1\t0.5\t-0.0\t6.609\t2.0\t-1\t-1\t2\t67.0\t-1\t1\t7\t-1\t-1\t-1\t-1\t-1\t-1\r\n"
        + "; a comment between rows\n# another\n"
        + "   "
        + row(2, submit=1).replace("\n", " 1\n")
        + row(3, submit=2).rstrip("\n")
    )
    jobs, findings = read(text)
    assert [job.id for job in jobs] == ["1", "2", "3"]
    assert [job.arrival_s for job in jobs] == [0.0, 0.5, 1.5]
    assert jobs[0].stages[0].task_count == 2
    assert jobs[0].stages[0].durations == Pool((6.609,))
    assert jobs[0].recorded == Recorded(start_s=0.0, finish_s=6.609, status="1")
    assert counts(findings) == {("noted", "more than 18 columns: the rest is ignored"): 1}
    assert findings.notes == [
        "the first submission, at 0.5 s of the log, is 0 s of the jobs' clock"
    ]


def test_a_dirty_line_costs_one_row(read):
    text = row(1) + "1 2 3\n" + row(2, run="x") + row(3, allocated=2.5) + row(4, run="nan") + row(5)
    jobs, findings = read(text.encode() + b"\x00\xff\xfe\n" + row(6, submit="inf").encode())
    assert [job.id for job in jobs] == ["1", "5"]
    assert counts(findings) == {
        ("dropped", "fewer than 18 columns"): 2,
        ("dropped", "not a number, or not a whole one, where one is expected"): 2,
        ("dropped", "run time is negative or out of range"): 1,
        ("dropped", "submit time is unknown (-1) or out of range"): 1,
    }
    assert findings.rows == 8


def test_rows_in_any_order_become_jobs_by_arrival(read):
    jobs, findings = read(
        row(1, submit=50) + row(2, submit=20) + row(3, submit=50) + row(4, submit=20)
    )
    assert [(job.id, job.arrival_s) for job in jobs] == [("2", 0), ("4", 0), ("1", 30), ("3", 30)]
    assert "rows are not in order of submission: 2 go back in time" in findings.notes


def test_a_number_used_twice_is_made_unique(read):
    jobs, findings = read(row(1) + row(1) + row("1#2") + row(1))
    assert [job.id for job in jobs] == ["1", "1#2", "1#2#2", "1#3"]
    assert counts(findings) == {
        ("repaired", "job number is used by an earlier row: #2, #3, ... is put after it"): 3
    }


def test_parts_of_an_execution_are_dropped_where_the_whole_is_there(read):
    jobs, findings = read(
        row(1, run=100) + row(1, run=60, status=2) + row(1, run=40, status=3) + row(2, status=3)
    )
    assert [(job.id, job.stages[0].durations) for job in jobs] == [
        ("1", Pool((100.0,))),
        ("2", Pool((60.0,))),
    ]
    assert sum(counts(findings).values()) == 2


def test_an_impossible_wait_leaves_start_and_finish_unknown(read):
    jobs, findings = read(row(wait=-7) + row(2, wait="nan"))
    assert [job.recorded for job in jobs] == [Recorded(status="1")] * 2
    assert [found.count for found in findings.found.values()] == [2]


def test_jobs_alike_share_one_tuple_of_stages(read):
    jobs, _ = read("".join(row(i, submit=i, run=60 + i % 3) for i in range(30)))
    assert len({id(job.stages) for job in jobs}) == 3


def test_several_files_are_put_on_one_clock(read):
    later = HEADER.replace("1000", "1500")
    jobs, findings = read(later + row(1, submit=5), HEADER + row(1, submit=10))
    assert [(job.id, job.arrival_s) for job in jobs] == [("log1:1", 0.0), ("log0:1", 495.0)]
    assert jobs[1].recorded == Recorded(start_s=500.0, finish_s=560.0, status="1")
    assert (findings.epoch_s, findings.files, findings.executors) == (1010.0, 2, 16)
    jobs, findings = read(HEADER + row(1), HEADER.replace("MaxProcs: 16", "") + row(1, submit=3))
    assert [job.arrival_s for job in jobs] == [0.0, 3.0]
    assert findings.executors is None
    jobs, findings = read(row(1), HEADER + row(1, submit=3))
    assert [(job.id, job.arrival_s) for job in jobs] == [("log0:1", 0.0), ("log1:1", 3.0)]
    assert (findings.epoch_s, len(findings.notes)) == (None, 2)


def test_a_header_is_believed_where_it_can_be_and_contradicted_where_it_is_wrong(read):
    _, findings = read(
        "; MaxRecords: 9\n;MaxNodes:  8 (of which 2 spare)\n; MaxProcs: -1\n" + row()
    )
    assert findings.executors == 8
    assert len(findings.notes) == 2
    _, findings = read("; MaxProcs: many\n; UnixStartTime: 1e\n; TimeZoneString: Nowhere\n" + row())
    assert (findings.executors, findings.epoch_s, findings.timezone) == (None, None, None)


@pytest.mark.parametrize("text", ["", "\n\n", HEADER, "hello\n", row(run=-1)])
def test_a_file_without_a_job_is_refused(read, text):
    with pytest.raises(WorkloadError, match=r"log0\.swf: .*expected rows of 18 numbers"):
        read(text)


def test_gzip_is_read_and_where_it_ends_too_early_what_came_before(read):
    text = HEADER + "".join(row(i, submit=i, run=i * 7919 % 1000) for i in range(9000))
    packed = gzip.compress(text.encode())
    whole, _ = read(packed)
    part, findings = read(packed[: len(packed) // 2])
    assert len(whole) == 9000
    assert 3000 < len(part) < 6000
    assert part == whole[: len(part)]
    (found,) = [found for found in findings.found.values() if found.action == "dropped"]
    assert found.places[0].endswith(f"log0.swf:{len(part) + 8}")


def test_it_is_recognised_by_its_rows():
    path = Path("x")
    rows = "".join(row(i) for i in range(100)).encode()
    assert swf.recognise(HEADER.encode() + rows, path)
    assert swf.recognise(b"dirt\n" + rows, path)
    assert swf.recognise((b"; long comment\n" * 60) + rows[:-20], path)
    for other in (b"", HEADER.encode(), b"a,b,c\n1,2,3\n", b"{}\n", b"10 \n 0 0 0 \n 1 2 1 0\n"):
        assert not swf.recognise(other, path)


def test_it_is_a_conforming_reader(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(HEADER + "".join(row(i, submit=i * 3) for i in range(50)))
    check_reader(lambda path: swf.read([path], Findings()), path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    check_reader(lambda path: swf.read([path], Findings()), path)


_CLEAN = (HEADER + "".join(row(i, submit=i * 3, user=i % 3) for i in range(20))).encode()


@given(
    data=st.one_of(
        st.permutations(_CLEAN.splitlines(keepends=True)).map(b"".join),
        st.integers(0, len(_CLEAN)).map(lambda size: _CLEAN[:size]),
        st.lists(st.tuples(st.integers(0, len(_CLEAN) - 1), st.integers(0, 255)), max_size=40).map(
            lambda changes: bytes(dict(changes).get(i, byte) for i, byte in enumerate(_CLEAN))
        ),
        st.binary(max_size=300),
    )
)
def test_damaged_files_give_sound_jobs_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "log.swf"
    path.write_bytes(data)
    swf.recognise(data, path)
    findings = Findings()
    try:
        jobs = list(swf.read([path], findings))
    except WorkloadError as error:
        assert str(path) in str(error)
    else:
        Workload(tuple(jobs))
        assert len(jobs) + findings.count("dropped") == findings.rows


@pytest.mark.parametrize(
    ("name", "jobs", "found", "executors"),
    [
        ("KTH-SP2-1996.swf.gz", 28481, {"noted": 219}, 100),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18239, {"guessed": 18239}, 128),
        ("SDSC-SP2_5K_sample.swf", 4606, {"dropped": 355, "noted": 309}, 128),
        ("cqgym_train.swf", 3000, {"noted": 3000 + 620}, 4360),
        ("cqgym_test.swf", 9, {}, 100),
        ("evalys_easy_medium.swf", 800, {}, None),
        ("lublin_256.swf", 10000, {"guessed": 10000}, 256),
        ("opendc_CTC_excerpt.swf", 5, {"noted": 1}, None),
        ("tsafrir_example_tabs.swf", 4, {}, 2),
    ],
)
def test_real_logs_are_read_with_every_oddity_counted(shared_dir, name, jobs, found, executors):
    path = shared_dir / "data" / "swf" / name
    if not path.exists():
        pytest.skip(f"{path} is absent")
    findings = Findings()
    read = list(swf.read([path], findings))
    Workload(tuple(read))
    actions = Counter()
    for finding in findings.found.values():
        actions[finding.action] += finding.count
    assert (len(read), dict(actions), findings.executors) == (jobs, found, executors)
