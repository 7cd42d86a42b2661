"""Standard Task Graphs. The small files are written for these tests; real ones are in shared/."""

import csv
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import PerTask, Workload, topological_order
from ganger.workload.readers import stg
from ganger.workload.readers.findings import Findings

# Three tasks of 5, 2 and 4 between two dummies: 1 before 2, and 3 beside them. The longest chain is
# 5 + 2 = 7, the work 11, and 11 / 7 = 1.571429.
SMALL = """\
          3
          0          0          0
          1          5          1          0
          2          2          1          1
          3          4          1          0
          4          0          2          2          3
# A graph written for a test
#   Tasks             : 3 (+dummy tasks : 2)
#   Edges             : 1 / 3 (+dummy edges : 4)
# CP Length           : 7
# Parallelism         : 1.571429
"""

PROTOTYPE = """\
    3     2
    1     5     0
    2     2     1     1
    3     4     0
    4     0     2     2     3
"""

# The same with what sending takes after each parent, on lines of their own as the format's page
# describes it; no real file of this kind was at hand.
WITH_COSTS = """\
 3
 0 0 0
 1 5 1
     0 0
 2 2 1
     1 9
 3 4 1
     0 0
 4 0 2
     2 0
     3 7
"""


@pytest.fixture
def read(tmp_path):
    """Read one file of this text; gives its stages and the findings."""

    def read(text, name="graph.stg", strict=False):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        findings = Findings(strict=strict)
        (job,) = stg.read([path], findings)
        Workload((job,))
        return job.stages, findings

    return read


def shape(stages):
    return {stage.id: (stage.parents, stage.durations.values_s[0]) for stage in stages}


GRAPH = {
    "0": ((), 0.0),
    "1": (("0",), 5.0),
    "2": (("1",), 2.0),
    "3": (("0",), 4.0),
    "4": (("2", "3"), 0.0),
}


def test_a_graph_is_a_job_of_single_tasks_and_dummies_take_no_time(read):
    stages, findings = read(SMALL)
    assert shape(stages) == GRAPH
    assert all(stage.task_count == 1 for stage in stages)
    assert (findings.rows, findings.found) == (5, {})


def test_the_job_is_called_as_the_file(tmp_path):
    path = tmp_path / "rand.stg"
    path.write_text(SMALL)
    (job,) = stg.read([path], Findings())
    assert (job.id, job.arrival_s) == ("rand", 0.0)


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    paths = [tmp_path / folder / "graph.stg" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(SMALL)
    assert [job.id for job in stg.read(paths, Findings())] == ["a/graph", "b/graph"]
    assert [job.id for job in stg.read(paths[:1] * 2, Findings())] == ["graph", "graph#2"]


def test_a_prototype_starts_at_1_and_names_its_processors(read):
    stages, findings = read(PROTOTYPE)
    assert shape(stages) == {
        "1": ((), 5.0),
        "2": (("1",), 2.0),
        "3": ((), 4.0),
        "4": (("2", "3"), 0.0),
    }
    assert (findings.executors, findings.found) == (2, {})


def test_communication_is_dropped_and_counted(read):
    stages, findings = read(WITH_COSTS)
    assert shape(stages) == GRAPH
    (finding,) = findings.found.values()
    assert (finding.action, finding.count) == ("dropped", 5)
    with pytest.raises(WorkloadError, match="communication time"):
        read(WITH_COSTS, strict=True)


def test_a_long_list_of_parents_may_go_on_in_the_next_line(read):
    wrapped = SMALL.replace("4          0          2          2 ", "4  0  2  2\n")
    assert wrapped.count("\n") == SMALL.count("\n") + 1
    assert shape(read(wrapped)[0]) == GRAPH


def test_tasks_may_stand_in_any_order(read):
    first, *rest = SMALL.splitlines()[:6]
    assert shape(read("\n".join([first, *rest[::-1]]))[0]) == GRAPH


def test_parents_may_come_after_their_children(read):
    stages, _ = read("2\n0 0 0\n1 7 1 2\n2 8 1 0\n3 0 1 1\n")
    assert [stages[i].id for i in topological_order(stages)] == ["0", "2", "1", "3"]


def test_a_graph_without_dummies_is_read_and_noted(read):
    stages, findings = read("2\n0 3 0\n1 4.5 1 0\n")
    assert shape(stages) == {"0": ((), 3.0), "1": (("0",), 4.5)}
    assert list(findings.found) == [("noted", "graph without dummy tasks")]


@pytest.mark.parametrize(
    ("was", "becomes", "keys"),
    [
        (": 7", ": 8", {"CP Length"}),
        (": 1.571429", ": 1.6", {"Parallelism"}),
        ("Edges             : 1", "Edges             : 2", {"Edges"}),
        ("Tasks             : 3", "Tasks             : 5", {"Tasks"}),
        ("1          5 ", "1          6 ", {"CP Length", "Parallelism"}),
    ],
)
def test_a_footer_that_disagrees_is_noted(read, was, becomes, keys):
    assert was in SMALL
    _, findings = read(SMALL.replace(was, becomes, 1))
    assert set(findings.found) == {
        ("noted", f"footer that states another {key} than its tasks have") for key in keys
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "graph.stg: holds no numbers"),
        ("# nothing\n", "graph.stg: holds no numbers"),
        ("3\n", "graph.stg:1: the file ends after 0 tasks; expected 3"),
        ("x\n", "graph.stg:1: 'x' is not the number of tasks"),
        ("2\n0 0 0\n1 5 1 0\n", "graph.stg:3: the file ends after 2 tasks; expected 2 and 2 dumm"),
        ("1\n0 0 0\n1 5 1 0\n2 0 2 1\n", "graph.stg:4: the file ends here; expected 2 parents of"),
        ("1\n0 0 0\n1 5 1 7\n2 0 1 1\n", "graph.stg:3: task 1 has a parent 7, which is no task"),
        ("1\n0 0 0\n1 5 1 0\n1 0 1 0\n", "graph.stg:4: task 1 is in line 3, too"),
        ("1\n0 0 0\n1 5 2 0 0\n2 0 1 1\n", "stage '1': parents names a stage twice"),
        ("2\n0 0 0\n1 5 1 2\n2 5 1 1\n3 0 1 2\n", "stages wait for each other: '1' needs '2'"),
        ("1\n0 0 0\n1 -5 1 0\n2 0 1 1\n", "graph.stg:3: '-5' is not a task's time"),
        ("1\n0 0 0\n1 nan 1 0\n2 0 1 1\n", "graph.stg:3: 'nan' is not a task's time"),
        ("1\n0 0 0\n1 5 1 0 9\n2 0 1 1\n", "graph.stg:3: task 1 says that it has 1 parents"),
        ("1\n0 0 0\n1 5 99999 0\n2 0 1 1\n", "99999 parents of task 1"),
        ("9999999999\n", "graph.stg:1: '9999999999' is not the number of tasks"),
    ],
)
def test_a_damaged_graph_is_refused_with_its_place(read, text, message):
    with pytest.raises(WorkloadError) as refused:
        read(text)
    assert message in str(refused.value)


def test_the_reader_conforms(tmp_path):
    path = tmp_path / "graph.stg"
    path.write_text(SMALL)
    check_reader(lambda path: list(stg.read([path], Findings())), path)


@given(data=st.data())
def test_damaged_bytes_give_a_graph_or_an_error(tmp_path_factory, data):
    text = data.draw(st.sampled_from([SMALL, PROTOTYPE, WITH_COSTS])).encode()
    how = data.draw(st.sampled_from(["cut", "mutate", "shuffle lines", "shuffle words"]))
    if how == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    elif how == "mutate":
        changed = bytearray(text)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        text = bytes(changed)
    else:
        mark = b"\n" if how == "shuffle lines" else b" "
        text = mark.join(data.draw(st.permutations(text.split(mark))))
    path = tmp_path_factory.mktemp("damaged") / "graph.stg"
    path.write_bytes(text)
    stg.recognise(text, path)
    try:
        Workload(tuple(stg.read([path], Findings())))
    except WorkloadError as error:
        assert "graph.stg" in str(error)


@pytest.mark.parametrize("text", [SMALL, PROTOTYPE, WITH_COSTS, "# first\n\n" + SMALL])
def test_graphs_are_recognised(text, tmp_path):
    assert stg.recognise(text.encode(), tmp_path / "anything")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3\n",
        "<adag/>",
        '{"workflow": {}}',
        "; MaxProcs: 4\n1 0 1 2 3 4",
        "1 2 3\n4 5 6\n",
        "a,b",
    ],
)
def test_other_files_are_not(text, tmp_path):
    assert not stg.recognise(text.encode(), tmp_path / "anything.stg")


@pytest.fixture(scope="module")
def real(shared_dir):
    directory = shared_dir / "data" / "stg"
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    return directory


def test_all_real_graphs_agree_with_their_footers(real):
    paths = sorted(real.glob("*/*.stg"))
    findings = Findings()
    jobs = list(stg.read(paths, findings))
    Workload(tuple(jobs))
    assert len(jobs) == len(paths) > 200
    assert findings.found == {}
    # Not because there was nothing to compare.
    footers = [stg._read(path).footer for path in paths if path.parent.name != "proto"]
    assert all(len(footer) == 4 for footer in footers)


def test_real_graphs_have_the_published_critical_path_and_work(real):
    with open(real / "optimal_verified.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (real / row["instance"]).is_file()]
    assert len(rows) > 200
    for row in rows:
        (job,) = stg.read([real / row["instance"]], Findings())
        values = [stage.durations.values_s[0] for stage in job.stages]
        assert all(isinstance(stage.durations, PerTask) for stage in job.stages)
        assert math.fsum(values) == float(row["total_work"])
        end_s = {}
        for i in topological_order(job.stages):
            stage = job.stages[i]
            end_s[stage.id] = values[i] + max((end_s[p] for p in stage.parents), default=0.0)
        assert max(end_s.values()) == float(row["critical_path"])
