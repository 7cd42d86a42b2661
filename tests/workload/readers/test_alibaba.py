import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Demand, Pool, Recorded, Workload
from ganger.workload.readers import alibaba
from ganger.workload.readers.findings import Findings

# By the published description; no rows of the real trace of 2018 were at hand.
ROWS_2018 = (
    "M1,3,j_1,1,Terminated,100,110,100,0.5\n"
    "R2_1,1.0,j_1,1,Terminated,110,130,50,0.3\n"
    "J3_1_2_Stg4,2,j_1,1,Terminated,130,130,,\n"
    "task_LTg0MTUwNTA,1,j_1,1,Terminated,100,105,101,0.1\n"
    "MergeTask,1,j_2,1,Terminated,90,95,200,0.1\n"
)
HEADER_2017 = "create, end, job_id, task_id, instances, status, cpus, memory\n"
ROWS_2017 = (
    "6459,6524,3,4,15740,Terminated,50,0.007\n"
    "6457,6533,3,5,1,Terminated,100,0.004\n"
    "6036,6046,4,7,393,Waiting,,\n"
    "6400,6390,3,6,2,Terminated,50,0.1\n"
    "51997,0,376,1955,1,Running,100,0.002\n"
)


@pytest.fixture
def read(tmp_path):
    def read(text, strict=False):
        path = tmp_path / "batch_task.csv"
        path.write_text(text)
        findings = Findings(strict=strict)
        jobs = list(alibaba.read([path], findings))
        Workload(tuple(jobs))
        return jobs, {key: found.count for key, found in findings.found.items()}, findings

    return read


def test_in_2018_the_dag_is_in_the_names_of_the_tasks(read):
    (first, second), found, findings = read(ROWS_2018)
    assert (first.id, first.arrival_s, second.id, second.arrival_s) == ("j_2", 0.0, "j_1", 10.0)
    assert [(s.id, s.parents, s.task_count, s.durations) for s in second.stages] == [
        ("M1", (), 3, Pool((10.0,))),
        ("R2_1", ("M1",), 1, Pool((20.0,))),
        ("J3_1_2_Stg4", ("M1", "R2_1"), 2, Pool((0.0,))),
        ("task_LTg0MTUwNTA", (), 1, Pool((5.0,))),
    ]
    assert [stage.demand for stage in second.stages] == [
        Demand(cores=1.0),
        Demand(cores=0.5),
        None,
        None,
    ]
    assert second.recorded == Recorded(start_s=10.0, finish_s=40.0, status="Terminated")
    assert found == {("guessed", "CPUs are unknown: none are demanded"): 2}
    assert findings.version == "2018"
    assert len(findings.notes) == 2


def test_in_2017_tasks_are_independent_and_unusable_ones_are_left_out_alone(read):
    for text in (ROWS_2017, HEADER_2017 + ROWS_2017):
        (job,), found, findings = read(text)
        assert (job.id, job.arrival_s) == ("3", 0.0)
        assert [(s.id, s.parents, s.task_count, s.durations) for s in job.stages] == [
            ("4", (), 15740, Pool((65.0,))),
            ("5", (), 1, Pool((76.0,))),
        ]
        assert found == {
            ("dropped", "independent task whose status is Waiting"): 1,
            ("dropped", "independent task whose status is Running"): 1,
            ("dropped", "independent task whose end is 0, before the start, or no number"): 1,
        }
        assert (findings.version, findings.rows) == ("2017", 5)


def test_a_dag_with_an_unusable_part_is_left_out(read):
    text = (
        "M1,1,good,1,Terminated,1,2,100,1\n"
        "M1,1,failed,1,Failed,1,2,100,1\nR2_1,1,failed,1,Terminated,2,3,100,1\n"
        "M1,x,odd,1,Terminated,1,2,100,1\n"
        "M1_2,1,cycle,1,Terminated,1,2,100,1\nM2_1,1,cycle,1,Terminated,1,2,100,1\n"
        "M1_1,1,itself,1,Terminated,1,2,100,1\n"
        "M1_9_2_2,1,absent,1,Terminated,1,2,100,1\nM2,1,absent,1,Terminated,1,2,100,1\n"
        "M1,1,good,1,Terminated,1,9,100,1\n"
        "dirt\n"
    )
    jobs, found, _ = read(text)
    assert {job.id: [(s.id, s.parents) for s in job.stages] for job in jobs} == {
        "good": [("M1", ())],
        "absent": [("M1_9_2_2", ("M2",)), ("M2", ())],
    }
    assert found == {
        ("dropped", "no row of batch_task"): 1,
        ("dropped", "job with a task whose status is Failed"): 1,
        ("dropped", "job with a task whose number of instances is no whole number above 0"): 1,
        ("dropped", "job whose tasks wait for each other"): 2,
        ("dropped", "dependency on a task that does not exist"): 1,
        ("dropped", "dependency that is listed twice"): 1,
        ("dropped", "task is listed by an earlier row of its job"): 1,
    }
    with pytest.raises(WorkloadError, match=r"batch_task\.csv:11: no row of batch_task"):
        read(text, strict=True)


@pytest.mark.parametrize("text", ["", "a,b\n", HEADER_2017, "M1,1,j,1,Waiting,0,0,,\n"])
def test_a_table_without_a_job_that_ran_is_refused(read, text):
    with pytest.raises(WorkloadError, match=r"batch_task\.csv: there is no job that ran; expected"):
        read(text)


def test_it_is_recognised_and_conforms(tmp_path):
    for text in (ROWS_2018, ROWS_2017, HEADER_2017 + ROWS_2017):
        assert alibaba.recognise(text.encode(), tmp_path)
        path = tmp_path / "batch_task.csv"
        path.write_text(text)
        check_reader(lambda path: alibaba.read([path], Findings()), path)
    for other in (b"", b"a,b,c\n1,2,3\n", b"; Version\n", b"1,2,3,4,5,6,7,8\n"):
        assert not alibaba.recognise(other, tmp_path)


_CLEAN = ROWS_2018.encode()


@given(
    st.one_of(
        st.integers(0, len(_CLEAN)).map(lambda size: _CLEAN[:size]),
        st.permutations((ROWS_2018 + ROWS_2017).encode().splitlines(keepends=True)).map(b"".join),
        st.lists(st.tuples(st.integers(0, len(_CLEAN) - 1), st.integers(0, 255)), max_size=20).map(
            lambda changes: bytes(dict(changes).get(i, byte) for i, byte in enumerate(_CLEAN))
        ),
    )
)
def test_damaged_files_give_sound_jobs_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "batch_task.csv"
    path.write_bytes(data)
    alibaba.recognise(data, path)
    try:
        Workload(tuple(alibaba.read([path], Findings())))
    except WorkloadError as error:
        assert str(path) in str(error)


def test_a_real_table_of_2017_is_read_with_every_oddity_counted(shared_dir):
    path = shared_dir / "data" / "alibaba_v2017" / "batch_task_first20k.csv"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    findings = Findings()
    jobs = list(alibaba.read([path], findings))
    Workload(tuple(jobs))
    stages = sum(len(job.stages) for job in jobs)
    assert stages + findings.count("dropped") == findings.rows == 20001
    whose = "independent task whose "
    assert {
        reason.removeprefix(whose): found.count
        for (_, reason), found in findings.found.items()
        if reason.startswith(whose)
    } == {
        "status is Waiting": 2198,
        "status is Running": 979,
        "status is Failed": 287,
        "end is 0, before the start, or no number": 19,
    }
