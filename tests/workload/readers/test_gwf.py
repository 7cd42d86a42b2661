import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import Pool, Workload
from ganger.workload.readers import gwf
from ganger.workload.readers.findings import Findings

HEADER = "WorkflowID, JobID     , SubmitTime, RunTime   , NProcs, ReqNProcs , Dependencies\n"
ROWS = (
    "0         , 1         , 16        , 11        , 1     , 1         ,           \n"
    "0         , 2         , 40        , 0         , 4     , 4         , 1         \n"
    "1         , 3         , 13        , 7         , 1     , 1         ,           \n"
    "0         , 4         , 40        , 11        , -1    , 2         , 2 1       \n"
)


@pytest.fixture
def read(tmp_path):
    def read(text, strict=False):
        path = tmp_path / "log.gwf"
        path.write_text(text)
        findings = Findings(strict=strict)
        jobs = list(gwf.read([path], findings))
        Workload(tuple(jobs))
        return jobs, {key: found.count for key, found in findings.found.items()}

    return read


def test_a_workflow_is_a_job_and_its_tasks_are_stages(read):
    (first, second), found = read(HEADER + ROWS)
    assert (first.id, first.arrival_s, second.id, second.arrival_s) == ("1", 0.0, "0", 3.0)
    assert [(s.id, s.parents, s.task_count, s.durations, s.gang) for s in second.stages] == [
        ("1", (), 1, Pool((11.0,)), False),
        ("2", ("1",), 4, Pool((0.0,)), True),
        ("4", ("2", "1"), 2, Pool((11.0,)), True),
    ]
    assert found == {}


def test_what_is_wrong_with_a_graph_is_counted(read):
    text = HEADER + (
        "0,1,0,5,1,1,9 1x\n"  # dependencies that do not exist
        "0,1,0,5,1,1,\n"  # the same id
        "0,2,0,5,1,1\n"  # no dependencies, nor their comma
        "0,3,0\n"
        "1,1,0,-1,1,1,\n"  # no run time: the whole workflow
        "1,2,0,5,1,1,1\n"
        "2,1,0,5,1,1,2\n"  # a cycle
        "2,2,0,5,1,1,1\n"
        "3,1,0,5,1,1,1\n"  # waits for itself
        "\n"
    )
    (job,), found = read(text)
    assert [(stage.id, stage.parents) for stage in job.stages] == [("1", ()), ("2", ())]
    assert found == {
        ("dropped", "another number of columns"): 1,
        ("dropped", "task id is used by an earlier row"): 1,
        ("dropped", "dependency on a task that does not exist"): 2,
        (
            "dropped",
            "workflow with a task whose time or processors are unknown or no number",
        ): 1,
        ("dropped", "workflow whose tasks wait for each other"): 2,
    }
    with pytest.raises(WorkloadError, match=r"log\.gwf:5: another number of columns"):
        read(text, strict=True)


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", HEADER, HEADER + "0,1,0,x,1,1,\n"])
def test_a_file_without_a_workflow_is_refused(read, text):
    with pytest.raises(WorkloadError, match=r"log\.gwf.*expected a header WorkflowID"):
        read(text)


def test_it_is_recognised_and_conforms(tmp_path):
    assert gwf.recognise((HEADER + ROWS).encode(), tmp_path)
    assert not gwf.recognise(ROWS.encode(), tmp_path)
    path = tmp_path / "log.gwf"
    path.write_text(HEADER + ROWS * 1 + ROWS.replace("0         ,", "5         ,"))
    check_reader(lambda path: gwf.read([path], Findings()), path)


_CLEAN = (HEADER + ROWS).encode()


@given(
    st.one_of(
        st.integers(0, len(_CLEAN)).map(lambda size: _CLEAN[:size]),
        st.permutations(_CLEAN.splitlines(keepends=True)).map(b"".join),
        st.lists(
            st.tuples(st.integers(len(HEADER), len(_CLEAN) - 1), st.integers(0, 255)), max_size=20
        ).map(lambda changes: bytes(dict(changes).get(i, byte) for i, byte in enumerate(_CLEAN))),
    )
)
def test_damaged_files_give_sound_jobs_or_an_error_that_names_the_file(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "log.gwf"
    path.write_bytes(data)
    try:
        Workload(tuple(gwf.read([path], Findings())))
    except WorkloadError as error:
        assert str(path) in str(error)


def test_a_real_trace_is_read_whole(shared_dir):
    path = shared_dir / "data" / "gwf" / "opendc_trace.gwf"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    findings = Findings()
    jobs = list(gwf.read([path], findings))
    assert (len(jobs), sum(len(job.stages) for job in jobs), findings.found) == (10, 70, {})
