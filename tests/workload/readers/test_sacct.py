import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Demand, Job, Pool, Recorded, Stage, Workload
from ganger.workload.readers import sacct
from ganger.workload.readers.findings import Findings

HEADER = (
    "JobID|User|Submit|Start|End|Elapsed|State|NNodes|NCPUS|ReqMem|Timelimit|NodeList|SubmitLine"
)


def row(id="17", **fields):
    fields = {
        "User": "ann",
        "Submit": "2024-05-01T10:00:00",
        "Start": "2024-05-01T10:01:00",
        "End": "2024-05-01T11:01:00",
        "Elapsed": "01:00:00",
        "State": "COMPLETED",
        "NNodes": "2",
        "NCPUS": "8",
        "ReqMem": "8G",
        "Timelimit": "1-00:00:00",
        "NodeList": "n[1-2]",
        "SubmitLine": "sbatch x",
    } | fields
    return "|".join([id, *fields.values()])


@pytest.fixture
def read(tmp_path):
    def read(*rows, header=HEADER, strict=False):
        path = tmp_path / "acct.log"
        path.write_text("\n".join([header, *rows] if header else rows) + "\n")
        findings = Findings(strict=strict)
        jobs = list(sacct.read([path], findings))
        Workload(tuple(jobs))
        return jobs, findings

    return read


def counts(findings):
    return {
        (action, reason.partition(":")[0].partition(" (")[0]): found.count
        for (action, reason), found in findings.found.items()
    }


def test_a_row_is_a_gang_of_its_cpus_with_a_limit_and_what_became_of_it(read):
    jobs, findings = read(row())
    assert jobs == [
        Job(
            id="17",
            arrival_s=0.0,
            stages=(
                Stage(
                    id="0",
                    task_count=8,
                    durations=Pool((3600.0,)),
                    estimated_task_s=86400.0,
                    gang=True,
                    limit_s=86400.0,
                    demand=Demand(memory=1.0),
                ),
            ),
            user="ann",
            recorded=Recorded(start_s=60.0, finish_s=3660.0, status="COMPLETED"),
        )
    ]
    assert counts(findings) == {}
    assert (findings.rows, findings.files, findings.epoch_s) == (1, 1, 1714557600.0)


def test_any_columns_in_any_order_will_do(read):
    jobs, findings = read("2024-05-01T10:00:00|90|5|3", header="Start|ElapsedRaw|JobIDRaw|NNodes")
    assert [(job.id, job.arrival_s, job.stages[0].task_count) for job in jobs] == [("5", 0.0, 3)]
    assert jobs[0].recorded == Recorded(start_s=0.0, finish_s=90.0)
    assert counts(findings) == {
        ("guessed", "no column Submit"): 1,
        ("guessed", "no column of CPUs"): 1,
        ("guessed", "no time limit"): 1,
    }


def test_without_a_header_the_26_columns_of_the_accounting_dump_are_expected(read):
    fields = dict.fromkeys(sacct.DUMP_COLUMNS, "")
    fields |= {
        "jobid": "4_2",
        "submit": "2024-05-01T10:00:00",
        "start": "2024-05-01T10:00:10",
        "end": "2024-05-01T10:00:40",
        "elapsed": "00:00:30",
        "state": "TIMEOUT",
        "nnodes": "1",
        "ncpus": "4",
        "reqmem": "2048Mc",
        "timelimit": "00:00:20",
        "jobname": "a|b",
    }
    jobs, findings = read("|".join(fields.values()), header=None)
    assert jobs[0].id == "4_2"
    assert jobs[0].stages[0].demand == Demand(memory=2.0)
    assert (jobs[0].stages[0].limit_s, jobs[0].stages[0].durations) == (20.0, Pool((30.0,)))
    assert counts(findings) == {
        ("repaired", "separator or line end inside a text"): 1,
        ("noted", "ran longer than its time limit"): 1,
    }


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:00:00", 0.0),
        ("23:33:25", 84805.0),
        ("3-00:00:00", 259200.0),
        ("1-06", 108000.0),
        ("1-06:30", 109800.0),
        ("12:30", 750.0),
        ("00:04.836", 4.836),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("", None),
        ("1:2:3:4", None),
        ("-5", None),
    ],
)
def test_spans_are_days_hours_minutes_and_seconds(text, seconds):
    assert sacct.span_s(text) == seconds


@pytest.mark.parametrize(
    ("memory", "gib"),
    [
        ("8192Mn", 2.0),  # 8 GiB on each of 2 nodes, for 8 CPUs
        ("2048Mc", 2.0),
        ("16G", 2.0),
        ("1T", 128.0),
        (f"{2**31 + 3072}Mn", 3.0),
        ("0n", None),
        ("", None),
        ("?", None),
    ],
)
def test_memory_is_shared_out_among_the_cpus(read, memory, gib):
    jobs, _ = read(row(ReqMem=memory))
    assert jobs[0].stages[0].demand == (None if gib is None else Demand(memory=gib))


def test_what_did_not_run_or_has_not_ended_is_dropped(read):
    jobs, findings = read(
        row("1", State="CANCELLED by 1000", Elapsed="00:00:00", NodeList="None assigned"),
        row("2", State="CANCELLED by 1000"),
        row("3", State="PENDING", Start="Unknown", End="Unknown", Elapsed="00:00:00"),
        row("4", State="RUNNING", End="Unknown"),
        row("5", State="FAILED", Start="None", End="2024-05-01T10:01:00", Elapsed="00:00:00"),
        row("6", NCPUS="0"),
        row("7", Submit="Unknown"),
        row("8", State="FAILED", Elapsed="00:00:00", End="2024-05-01T10:01:00"),
    )
    assert [(job.id, job.recorded.status) for job in jobs] == [("2", "CANCELLED"), ("8", "FAILED")]
    assert counts(findings) == {
        ("dropped", "never started"): 2,
        ("dropped", "has not ended"): 2,
        ("dropped", "CPUs are unknown"): 1,
        ("dropped", "submit time is unknown"): 1,
    }
    with pytest.raises(WorkloadError, match=r"acct\.log:2: never started"):
        read(row("1", Start="Unknown"), strict=True)


def test_steps_are_parts_of_jobs_and_arrays_are_jobs(read):
    jobs, findings = read(row("9"), row("9.batch"), row("9.0"), row("9_3"), row("9+1"))
    assert [job.id for job in jobs] == ["9", "9_3", "9+1"]
    assert counts(findings) == {("noted", "job step"): 2}


def test_separators_and_line_ends_inside_a_text_are_put_together_again(read):
    jobs, findings = read(
        row("1", SubmitLine="sbatch --wrap 'a | b | c'"),
        row("2", SubmitLine="sbatch --wrap 'one"),
        row("3"),
    )
    assert [job.id for job in jobs] == ["1", "2", "3"]
    assert counts(findings) == {("repaired", "separator or line end inside a text"): 1}
    header = HEADER.replace("|SubmitLine", "").replace("JobID", "JobID|SubmitLine|JobName")
    text = row("{}").removesuffix("|sbatch x").replace("{}", "{}|{}|name")
    jobs, findings = read(
        text.format("1", "sbatch 'for i in 1 2\ndo echo $i | wc\ndone'"),
        text.format("2", "sbatch y"),
        "do echo $i | wc",
        text.format("3", "srun a||b|").replace("name", "na|me"),
        header=header,
    )
    assert [job.id for job in jobs] == ["1", "2", "3"]
    assert {job.stages[0].task_count for job in jobs} == {8}
    assert counts(findings) == {
        ("repaired", "separator or line end inside a text"): 2,
        ("dropped", "piece of a row"): 1,
    }


def test_a_row_twice_counts_once_and_a_requeued_job_twice(read):
    jobs, findings = read(row("1", State="NODE_FAIL"), row("1", State="NODE_FAIL"), row("1"))
    assert [job.id for job in jobs] == ["1", "1#2"]
    assert counts(findings) == {
        ("dropped", "the same row again"): 1,
        ("repaired", "job id is used by an earlier row, as after a requeue"): 1,
    }


def test_clocks_that_disagree_are_told(read):
    jobs, findings = read(
        row("1", Start="2024-05-01T09:00:00"),
        row("2", End="2024-05-01T12:01:00"),
        row("3", Elapsed="", End="2024-05-01T09:00:00"),
    )
    assert [job.recorded for job in jobs] == [
        Recorded(status="COMPLETED"),
        Recorded(start_s=60.0, finish_s=7260.0, status="COMPLETED"),
    ]
    assert {job.stages[0].durations for job in jobs} == {Pool((3600.0,))}
    assert counts(findings) == {
        ("repaired", "starts before it was submitted"): 1,
        ("noted", "Elapsed is not End less Start, as after a suspension"): 1,
        ("dropped", "run time is unknown"): 1,
    }


def test_times_may_have_a_zone_or_be_numbers(read):
    jobs, findings = read(
        row("1", Submit="2024-05-01T10:00:00+02:00"),
        row("2", Submit="1714550400"),
        row("3", Submit="2024-05-01 08:00:00"),
    )
    assert [job.arrival_s for job in jobs] == [0.0, 0.0, 0.0]
    assert findings.epoch_s == 1714550400.0


@pytest.mark.parametrize("rows", [[], ["dirt"], [row(State="PENDING")], [row(), "x"][1:]])
def test_a_file_without_a_job_that_ran_is_refused(read, rows):
    with pytest.raises(WorkloadError, match=r"acct\.log: .*; expected rows of sacct"):
        read(*rows)


def test_it_is_recognised_by_its_header_or_its_rows(tmp_path):
    assert sacct.recognise(HEADER.encode() + b"\n", tmp_path)
    assert sacct.recognise(b"\njobidraw|start\n", tmp_path)
    for other in (b"", b"a|b|c\n", b"; Version: 2.2\n", b"|" * 40, b"{}"):
        assert not sacct.recognise(other, tmp_path)


def test_it_is_a_conforming_reader(tmp_path):
    path = tmp_path / "acct.log"
    path.write_text("\n".join([HEADER, *(row(str(i)) for i in range(30))]))
    check_reader(lambda path: sacct.read([path], Findings()), path)


_CLEAN = "\n".join(
    [HEADER, *(row(str(i), SubmitLine="a | b" if i % 3 else "x") for i in range(12))]
).encode()


@given(
    data=st.one_of(
        st.permutations(_CLEAN.splitlines(keepends=True)).map(b"".join),
        st.integers(0, len(_CLEAN)).map(lambda size: _CLEAN[:size]),
        st.lists(st.tuples(st.integers(0, len(_CLEAN) - 1), st.integers(0, 255)), max_size=40).map(
            lambda changes: bytes(dict(changes).get(i, byte) for i, byte in enumerate(_CLEAN))
        ),
        st.text("|\n0123456789-:T jobdsubmt", max_size=200).map(str.encode),
    )
)
def test_damaged_files_give_sound_jobs_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "acct.log"
    path.write_bytes(data)
    sacct.recognise(data, path)
    try:
        jobs = list(sacct.read([path], Findings()))
    except WorkloadError as error:
        assert str(path) in str(error)
    else:
        Workload(tuple(jobs))


def test_many_separators_in_one_row_take_no_time(read):
    with pytest.raises(WorkloadError):
        read(row(SubmitLine="|" * 100_000, JobName="|" * 100_000, Submit="x"))


# --- real dumps


@pytest.fixture
def real(shared_dir):
    folder = shared_dir / "data" / "slurm_sacct"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")

    def real(name):
        findings = Findings()
        return list(sacct.read([folder / name], findings)), findings, folder

    return real


def test_real_times_cpus_and_limits_are_what_another_tool_reads(real):
    jobs, findings, folder = real("accounting-logs.log")
    expected = {
        row["job_id"]: row
        for row in json.loads((folder / "expected_accounting-logs.json").read_text())
    }
    assert counts(findings) == {("dropped", "CPUs are unknown"): 1}
    assert len(jobs) == len(expected) - 1
    for job in jobs:
        row, stage = expected[job.id], job.stages[0]
        assert findings.epoch_s + job.arrival_s == row["submit_time"]
        assert findings.epoch_s + job.recorded.start_s == row["start_time"]
        assert findings.epoch_s + job.recorded.finish_s == row["end_time"]
        assert stage.durations == Pool((float(row["elapsed"]),))
        assert (stage.task_count, stage.limit_s) == (int(row["ncpus"]), row["timelimit"])
        assert (job.user, job.recorded.status) == (row["user_name"], row["state"].split()[0])


@pytest.mark.parametrize(
    ("name", "jobs", "found"),
    [
        (
            "phillips.log",
            4046,
            {
                ("repaired", "ReqMem holds Slurm's mark for memory per CPU, 2^31"): 3999,
                ("noted", "ran longer than its time limit"): 1,
                ("dropped", "never started"): 239,
            },
        ),
        (
            "sacct_dump2101.log",
            6,
            {
                ("noted", "job step"): 2,
                ("noted", "ran longer than its time limit"): 5,
                ("dropped", "never started"): 6,
                ("dropped", "piece of a row"): 1,
                ("repaired", "separator or line end inside a text"): 4,
            },
        ),
        ("sacct_simple.log", 4, {("repaired", "separator or line end inside a text"): 3}),
    ],
)
def test_real_dumps_are_read_with_every_oddity_counted(real, name, jobs, found):
    read, findings, _ = real(name)
    Workload(tuple(read))
    assert (len(read), counts(findings)) == (jobs, found)
