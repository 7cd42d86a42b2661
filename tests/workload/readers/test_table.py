from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Pool, Recorded, Workload, load_source
from ganger.workload.readers import table
from ganger.workload.readers.findings import Findings

CSV = (
    "Name,Queued at,Began,Seconds,CPUs,Limit,Who\n"
    "a,2024-05-01T10:00:30,2024-05-01T10:01:00,60.5,4,1:00:00,ann\n"
    '"b, or c",2024-05-01 10:00:00,,0,1,,bob\n'
)
COLUMNS = {
    "submit": "queued at",
    "start": "Began",
    "run": "Seconds",
    "processors": "CPUs",
    "limit": "Limit",
    "user": "Who",
    "id": "Name",
}


@pytest.fixture
def read(tmp_path):
    def read(text, strict=False, **columns):
        path = tmp_path / "jobs.csv"
        path.write_text(text)
        findings = Findings(strict=strict)
        jobs = list(table.read([path], findings, **columns))
        Workload(tuple(jobs))
        return jobs, {key: found.count for key, found in findings.found.items()}, findings

    return read


def test_columns_are_what_the_user_says_they_are(read):
    (first, second), found, findings = read(CSV, **COLUMNS)
    assert (first.id, first.arrival_s, first.user, first.recorded) == ("b, or c", 0.0, "bob", None)
    assert first.stages[0].durations == Pool((0.0,))
    (stage,) = second.stages
    assert (stage.task_count, stage.durations, stage.limit_s, stage.gang) == (
        4,
        Pool((60.5,)),
        3600.0,
        True,
    )
    assert second.recorded == Recorded(start_s=60.0, finish_s=120.5)
    assert found == {("guessed", "no requested run time: schedulers are told the real one"): 1}
    assert (findings.rows, findings.epoch_s) == (2, 1714557600.0)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_numbers_name_columns_with_or_without_a_header_and_units_are_converted(read, separator):
    rows = "1000,4000,2\n2000,7000,x\n".replace(",", separator)
    for header in ("", "a,b,c\n".replace(",", separator)):
        (job,), found, findings = read(
            header + rows, submit="1", end="2", start="1", processors="3", limit="2", unit="ms"
        )
        assert job.id == ("jobs:2" if header else "jobs:1")
        assert job.stages[0].durations == Pool((3.0,))
        assert job.recorded == Recorded(start_s=0.0, finish_s=3.0)
        assert list(found) == [
            ("dropped", "processors are missing or no whole number from 1 to 2147483647")
        ]
        assert findings.epoch_s is None


def test_a_row_that_is_unusable_is_dropped_and_counted(read):
    text = "t,r,p,s\n0,5,1,0\nx,5,1,0\n0,-5,1,0\n0,,1,0\n0,5,1.5,0\n0,5\n\n9,5,2.0,3\n0,nan,1,0\n"
    jobs, found, findings = read(text, submit="t", run="r", processors="p", start="s", limit="r")
    assert [(job.arrival_s, job.stages[0].task_count) for job in jobs] == [(0.0, 1), (9.0, 2)]
    assert jobs[1].recorded is None
    assert sum(found.values()) == 7
    assert findings.rows == 8
    with pytest.raises(WorkloadError, match=r"jobs\.csv:3: time of submission"):
        read(text, strict=True, submit="t", run="r", limit="r")


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (CSV, {"submit": "nothing", "run": "3"}, "no column 'nothing' for submit; there are Name,"),
        (CSV, {"submit": "99", "run": "3"}, "no column '99'"),
        (CSV, {"submit": "Queued at"}, "needs columns for run, or for start and end"),
        ("", {"submit": "1", "run": "2"}, "no usable row; expected a table with submit in '1'"),
        ("x,y\n", {"submit": "x", "run": "y"}, "no usable row"),
        ('x,y\n"' + "z" * 200_000, {"submit": "x", "run": "y"}, "quotation mark not closed"),
    ],
)
def test_what_is_no_such_table_is_refused(read, text, columns, message):
    with pytest.raises(WorkloadError, match=message):
        read(text, **columns)


def test_the_command_line_names_columns_before_the_path(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    source = load_source(f"table,submit=Queued at,run=seconds,processors=5:{path}")
    assert [job.stages[0].task_count for job in source.workload().jobs] == [1, 4]
    for options, message in [
        ("run=2", "format table needs option submit"),
        ("submit=1,run=2,unit=y", "option unit is 'y'"),
        ("submit=1,speed=2", "no option 'speed'; it has submit, run, start"),
    ]:
        with pytest.raises(WorkloadError, match=message):
            load_source(f"table,{options}:{path}")
    with pytest.raises(WorkloadError, match=r"not recognised; .*table,submit=COLUMN,run=COLUMN"):
        load_source(str(path))


def test_it_conforms(tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    check_reader(lambda path: table.read([path], Findings(), **COLUMNS), path)


@given(
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=20),
)
def test_damaged_tables_give_sound_jobs_or_an_error(tmp_path_factory, size, changes):
    data = bytearray(CSV.encode())
    for at, byte in changes:
        data[at % len(data)] = byte
    path = tmp_path_factory.mktemp("damaged") / "jobs.csv"
    path.write_bytes(data[:size])
    try:
        Workload(tuple(table.read([path], Findings(), submit="2", run="4", processors="5")))
    except WorkloadError as error:
        assert str(path) in str(error)


# --- Parquet


@pytest.fixture
def parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "jobs.parquet"
    begin = datetime(2024, 5, 1, 10, tzinfo=UTC)
    columns = {
        "when": [begin + timedelta(minutes=i) for i in (2, 0, 1)],
        "took": [timedelta(seconds=90), timedelta(0), None],
        "cpus": [2, 4, 8],
        "who": ["ann", None, "bob"],
    }
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_is_read_by_its_own_types(parquet):
    findings = Findings()
    jobs = list(
        table.read([parquet], findings, submit="when", run="took", processors="cpus", user="who")
    )
    assert [(job.id, job.arrival_s, job.user) for job in jobs] == [
        ("jobs:2", 0.0, None),
        ("jobs:1", 120.0, "ann"),
    ]
    assert [job.stages[0].durations for job in jobs] == [Pool((0.0,)), Pool((90.0,))]
    assert (findings.format, findings.rows, findings.epoch_s) == ("Parquet table", 3, 1714557600.0)


def test_damaged_parquet_is_refused(parquet):
    data = parquet.read_bytes()
    for damaged in (data[: len(data) // 2], data[:4] + bytes(400), data[:-20] + bytes(20)):
        parquet.write_bytes(damaged)
        with pytest.raises(WorkloadError, match=r"jobs\.parquet: no readable Parquet"):
            list(table.read([parquet], Findings(), submit="when", run="took"))
