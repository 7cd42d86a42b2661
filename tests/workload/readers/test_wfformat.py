"""WfFormat. The small workflows are written for these tests; real ones are in shared/.

There is no real file of 1.6 or before 1.4 at hand: those here follow the format's published
description (https://github.com/wfcommons/WfFormat, README of 1.6, and its migration tool for what
the versions before called things).
"""

import copy
import json

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.schedulers import Fifo
from ganger.simulator.simulate import Cluster, simulate
from ganger.testing import check_reader
from ganger.workload import Demand, Job, Recorded, Workload
from ganger.workload.readers import wfformat
from ganger.workload.readers.findings import Findings

# Two roots, one of which takes no time, join in a task on 4 cores; a last one follows.
GRAPH = {"a": (), "b": (), "join": ("a", "b"), "last": ("join",)}
RUN_S = {"a": 0, "b": 12.5, "join": 40, "last": 1e-3}


def nested(version="1.5"):
    """The workflow as 1.5 and 1.6 nest it."""
    children = {name: [c for c, parents in GRAPH.items() if name in parents] for name in GRAPH}
    return {
        "name": "small",
        "schemaVersion": version,
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": "step",
                        "id": name,
                        "parents": list(parents),
                        "children": children[name],
                        "inputFiles": ["in.txt"],
                    }
                    for name, parents in GRAPH.items()
                ],
                "files": [{"id": "in.txt", "sizeInBytes": 10}],
            },
            "execution": {
                "makespanInSeconds": 61.5,
                "executedAt": "2024-03-01T10:00:00+00:00",
                "tasks": [
                    {"id": "join", "runtimeInSeconds": 40, "coreCount": 4},
                    {"id": "a", "runtimeInSeconds": 0, "coreCount": 1},
                    {"id": "last", "runtimeInSeconds": 0.001, "memoryInBytes": 2**31},
                    {"id": "b", "runtimeInSeconds": 12.5, "machines": ["node"]},
                ],
                "machines": [{"nodeName": "node", "cpu": {"coreCount": 8}}],
            },
        },
    }


def with_metrics():
    """As 1.6 has it, with the summaries that are new there."""
    instance = nested("1.6")
    workflow = instance["workflow"]
    workflow["specification"]["metrics"] = {
        "numberOfTasks": 4,
        "numberOfFiles": 1,
        "sumOfFileSizesInBytes": 10,
        "numberOfLevels": 3,
        "minimumWidth": 1,
        "maximumWidth": 2,
    }
    workflow["execution"]["metrics"] = {"sumTaskRuntimesInSeconds": 52.501}
    workflow["execution"]["tasks"][0]["executedAt"] = "2024-03-01T10:00:12Z"
    return instance


def flat(version="1.4"):
    """As 1.4 has it: ids are numbers of sorts, parents are names, children may be missing."""
    tasks = [
        {
            "name": name,
            "id": f"ID{i:07}",
            "type": "compute",
            "parents": list(parents),
            "files": [{"link": "input", "name": "in.txt", "sizeInBytes": 10}],
            "runtimeInSeconds": RUN_S[name],
        }
        for i, (name, parents) in enumerate(GRAPH.items())
    ]
    tasks[2]["cores"] = 4
    tasks[3]["memoryInBytes"] = 2**31
    return {
        "name": "small",
        "schemaVersion": version,
        "workflow": {
            "makespanInSeconds": 61.5,
            "executedAt": "20240301T100000+0000",
            "tasks": tasks,
        },
    }


def oldest(version="1.2"):
    """As 1.2 has it: jobs, and names without units; memory counts thousands of bytes."""
    instance = flat(version)
    workflow = instance["workflow"]
    workflow["jobs"] = workflow.pop("tasks")
    workflow["makespan"] = workflow.pop("makespanInSeconds")
    for job in workflow["jobs"]:
        job["runtime"] = job.pop("runtimeInSeconds")
        if "memoryInBytes" in job:
            job["memory"] = job.pop("memoryInBytes") / 1000
    return instance


VERSIONS = {
    "1.2": oldest(),
    "1.3": flat("1.3"),
    "1.4": flat(),
    "1.5": nested(),
    "1.6": with_metrics(),
}


@pytest.fixture
def read(tmp_path):
    """Read one workflow, a dict or text; gives the job and the findings."""

    def read(instance, strict=False):
        path = tmp_path / "small.json"
        if isinstance(instance, dict):
            instance = json.dumps(instance, indent=1)
        path.write_bytes(instance if isinstance(instance, bytes) else instance.encode())
        findings = Findings(strict=strict)
        (job,) = wfformat.read([path], findings)
        Workload((job,))
        return job, findings

    return read


def names_of(instance):
    """Stage id -> the task's name in GRAPH."""
    workflow = instance["workflow"]
    listed = workflow.get("tasks") or workflow.get("jobs") or workflow["specification"]["tasks"]
    return {
        task["id"]: task["id"] if "specification" in workflow else task["name"] for task in listed
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_holds_the_same_workflow(read, version):
    job, findings = read(VERSIONS[version], strict=True)
    names = names_of(VERSIONS[version])
    assert {
        names[stage.id]: tuple(names[parent] for parent in stage.parents) for stage in job.stages
    } == GRAPH
    assert {names[stage.id]: stage.durations.values_s[0] for stage in job.stages} == RUN_S
    demands = {names[stage.id]: stage.demand for stage in job.stages}
    assert demands == {
        "a": None,
        "b": None,
        "join": Demand(cores=4.0),
        "last": Demand(memory=2.0),
    }
    assert (job.id, job.arrival_s) == ("small", 0.0)
    assert job.recorded == Recorded(start_s=0.0, finish_s=61.5)
    assert (findings.version, findings.rows, findings.found) == (version, 4, {})


def test_files_of_several_versions_are_several_jobs(tmp_path):
    paths = [tmp_path / f"{version}.json" for version in ("1.4", "1.5")]
    for path, instance in zip(paths, (flat(), nested()), strict=True):
        path.write_text(json.dumps(instance))
    findings = Findings(strict=True)
    assert [job.id for job in wfformat.read(paths, findings)] == ["1.4", "1.5"]
    assert (findings.version, findings.files) == ("1.4, 1.5", 2)


def edited(instance, *, execution=False, index=0, **fields):
    """A copy with fields of one task, in the specification or the execution, set or (None) gone."""
    instance = copy.deepcopy(instance)
    section = "execution" if execution else "specification"
    target = instance["workflow"][section]["tasks"][index]
    for name, value in fields.items():
        target.pop(name, None)
        if value is not None:
            target[name] = value
    return instance


def only_finding(findings):
    (finding,) = findings.found.values()
    return finding.action, finding.reason, finding.count, finding.places


def test_a_parent_may_be_called_by_its_name_and_that_is_said(read):
    instance = edited(nested(), index=0, name="first")
    instance = edited(instance, index=2, parents=["first", "b"])
    job, findings = read(instance)
    assert job.stages[2].parents == ("a", "b")
    action, reason, count, places = only_finding(findings)
    assert (action, reason, count) == ("repaired", "dependency by name instead of id", 1)
    assert places[0].endswith("small.json: workflow.specification.tasks[2]")


def test_an_id_goes_before_a_name(read):
    # "b" is the name of task a as well.
    job, findings = read(edited(nested(), index=0, name="b"))
    assert job.stages[2].parents == ("a", "b")
    assert findings.found == {}


def test_a_name_that_several_tasks_have_means_all_of_them(read):
    job, findings = read(edited(nested(), index=3, parents=["step"], name="end"))
    assert job.stages[3].parents == ("a", "b", "join")
    assert only_finding(findings)[0] == "guessed"


def test_a_dependency_may_be_stated_by_the_parent_only(read):
    instance = edited(nested(), index=3, parents=[])
    job, findings = read(instance)
    assert job.stages[3].parents == ("join",)
    assert only_finding(findings)[:3] == ("repaired", "child that does not list its parent", 1)


def test_up_to_1_4_a_dependency_stated_once_is_nothing_to_repair(read):
    instance = flat()
    tasks = instance["workflow"]["tasks"]
    tasks[3]["parents"] = []
    tasks[2]["children"] = ["last"]
    job, _ = read(instance, strict=True)
    assert job.stages[3].parents == ("ID0000002",)


def test_children_may_be_missing(read):
    job, findings = read(edited(nested(), index=0, children=None))
    assert job.stages[2].parents == ("a", "b")
    assert findings.found == {}


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"parents": ["a", "nobody"]}, ("dropped", "dependency on a task that does not exist")),
        ({"parents": ["a", "b", "a"]}, ("dropped", "dependency that is listed twice")),
        ({"children": ["last", "nobody"]}, ("dropped", "child that does not exist")),
    ],
)
def test_what_no_graph_can_hold_is_dropped_and_counted(read, change, finding):
    instance = edited(nested(), index=2, **change)
    if "parents" in change:  # else the other parent's list of children would restore it
        instance = edited(
            instance, index=1, children=[c for c in ["join"] if "b" in change["parents"]]
        )
    job, findings = read(instance)
    assert only_finding(findings)[:2] == finding
    assert len(job.stages) == 4
    with pytest.raises(WorkloadError, match=finding[1]):
        read(instance, strict=True)


def test_a_second_task_of_an_id_is_dropped(read):
    instance = nested()
    again = {"name": "x", "id": "b", "parents": [], "children": []}
    instance["workflow"]["specification"]["tasks"].append(again)
    job, findings = read(instance)
    assert [stage.id for stage in job.stages] == list(GRAPH)
    assert only_finding(findings)[:3] == ("dropped", "task with the id of an earlier task", 1)


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"runtimeInSeconds": None}, ("guessed", "run time is missing: 0 s")),
        ({"runtimeInSeconds": -40.0}, ("guessed", "run time is below 0: 0 s")),
        ({"coreCount": 0}, ("dropped", "core count below 1")),
        ({"memoryInBytes": -1}, ("dropped", "memory below 0")),
    ],
)
def test_values_that_cannot_be_are_counted(read, fields, finding):
    job, findings = read(edited(nested(), execution=True, index=0, **fields))
    assert only_finding(findings)[:2] == finding
    join = job.stages[2]
    assert join.durations.values_s == ((0.0,) if "runtimeInSeconds" in fields else (40.0,))
    assert join.demand == (None if "coreCount" in fields else Demand(cores=4.0))


def test_executions_must_match_the_specification(read):
    instance = nested()
    instance["workflow"]["execution"]["tasks"] += [
        {"id": "ghost", "runtimeInSeconds": 1},
        {"id": "a", "runtimeInSeconds": 99},
    ]
    job, findings = read(instance)
    assert job.stages[0].durations.values_s == (0.0,)
    assert {finding.reason for finding in findings.found.values()} == {
        "execution of a task that is not specified",
        "second execution of a task",
    }


def test_a_makespan_below_0_is_dropped(read):
    instance = nested()
    instance["workflow"]["execution"]["makespanInSeconds"] = -1
    job, findings = read(instance)
    assert job.recorded is None
    assert only_finding(findings)[:2] == ("dropped", "makespan that is no time")


def test_start_times_say_nothing_of_order(read):
    # The child is said to start together with its parents.
    instance = with_metrics()
    for task in instance["workflow"]["execution"]["tasks"]:
        task["executedAt"] = "2024-03-01T10:00:00Z"
    assert {stage.id: stage.parents for stage in read(instance)[0].stages} == GRAPH


def test_a_task_of_no_time_happens_in_order_and_takes_none(read):
    # "a" takes none: 12.5 + 40 + 0.001 are left of the longest chain. Without "b", whatever waits
    # for "a" starts at once.
    job, _ = read(nested())
    assert makespan_s(job) == pytest.approx(52.501)
    instance = edited(nested(), execution=True, index=3, runtimeInSeconds=0)
    job, _ = read(instance)
    assert makespan_s(job) == pytest.approx(40.001)


def makespan_s(job):
    """On two executors that will do for any task."""
    stages = tuple(msgspec.structs.replace(stage, demand=None) for stage in job.stages)
    workload = Workload((Job(id=job.id, arrival_s=0.0, stages=stages),))
    return simulate(Cluster(executors=2, move_delay_s=0.0), workload, Fifo()).makespan_s


def without_execution():
    instance = nested()
    del instance["workflow"]["execution"]
    return instance


@pytest.mark.parametrize(
    ("instance", "message"),
    [
        ("", "small.json: "),
        ("[]", "small.json: Expected `object`, got `array`"),
        ('{\n"workflow": {"tasks": [\n', "small.json: Input data was truncated"),
        ('{\n"workflow": {"tasks": [\n{"id" "x"}]}}', "small.json:3: JSON is malformed"),
        ("{}", "small.json: Object missing required field `workflow`"),
        ('{"workflow": {}}', "small.json: workflow.tasks has no tasks"),
        ('{"workflow": {"tasks": []}}', "small.json: workflow.tasks has no tasks"),
        ('{"workflow": {"tasks": [{"runtime": 1}]}}', "small.json: workflow.tasks[0]: has neither"),
        (without_execution(), "small.json: no task has a run time"),
        (
            edited(nested(), index=0, parents=["last"]),
            "small.json: parents: stages wait for each other: 'a' needs 'last' needs 'join' needs",
        ),
        (
            edited(nested(), execution=True, runtimeInSeconds="long"),
            "Expected `float | null`, got `str` - at `$.workflow.execution.tasks[0].runtimeIn",
        ),
        (
            edited(nested(), execution=True, runtimeInSeconds=1e300),
            "durations.values_s[0] is 1e+300",
        ),
        ("[" * 100_000, "small.json: "),
        ('{"workflow": {"x": ' + "[" * 100_000, "small.json: "),
    ],
)
def test_what_is_no_workflow_is_refused_with_its_place(read, instance, message):
    with pytest.raises(WorkloadError) as refused:
        read(instance)
    assert message in str(refused.value)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_reader_conforms(tmp_path, version):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(VERSIONS[version]))
    check_reader(lambda path: list(wfformat.read([path], Findings())), path)


@given(data=st.data())
def test_damaged_bytes_give_a_workflow_or_an_error(tmp_path_factory, data):
    text = json.dumps(data.draw(st.sampled_from(list(VERSIONS.values())))).encode()
    how = data.draw(st.sampled_from(["cut", "mutate", "shuffle"]))
    if how == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    elif how == "mutate":
        changed = bytearray(text)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        text = bytes(changed)
    else:
        text = b",".join(data.draw(st.permutations(text.split(b","))))
    check_damaged(text, tmp_path_factory)


_names = st.sampled_from([*GRAPH, "step", "", "é", "\ud800", 3, None, -1.5, [], {}])


@given(data=st.data())
def test_damaged_values_give_a_workflow_or_an_error(tmp_path_factory, data):
    """Well-formed JSON with anything anywhere: what the schema is there to refuse."""
    instance = copy.deepcopy(data.draw(st.sampled_from(list(VERSIONS.values()))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = instance
        while isinstance(at, dict | list) and at:
            key = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
            if data.draw(st.booleans()) or not isinstance(at[key], dict | list):
                at[key] = data.draw(_names)
                break
            at = at[key]
    check_damaged(json.dumps(instance).encode(), tmp_path_factory)


def check_damaged(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "small.json"
    path.write_bytes(text)
    wfformat.recognise(text, path)
    try:
        Workload(tuple(wfformat.read([path], Findings())))
    except WorkloadError as error:
        assert "small.json" in str(error)


@pytest.mark.parametrize("version", VERSIONS)
def test_workflows_are_recognised(tmp_path, version):
    text = json.dumps(VERSIONS[version])
    for written in (text, "\ufeff" + text, "\n " + text):
        assert wfformat.recognise(written.encode(), tmp_path / "anything")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"Event": "SparkListenerLogStart"}',
        '[{"workflow": {}}]',
        '{"$schema": "http://json-schema.org/schema#", "properties": {"workflow": {}}}',
    ],
)
def test_other_files_are_not(tmp_path, text):
    assert not wfformat.recognise(text.encode(), tmp_path / "anything.json")


@pytest.fixture(scope="module")
def schema(shared_dir):
    """The schema of WfFormat 1.5, as a validator; it names no draft that there is."""
    path = shared_dir / "data" / "wfcommons" / "SCHEMA_wfcommons-schema.json"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def test_the_schema_accepts_what_is_tested_here(schema):
    schema.validate(nested())
    # By the description of 1.6, its files are files of 1.5 but for the version.
    schema.validate({**with_metrics(), "schemaVersion": "1.5"})


def test_real_files_conform_to_the_schema_and_are_read_without_a_finding(schema, shared_dir):
    paths = sorted((shared_dir / "data" / "wfcommons").glob("[!S]*.json"))
    assert len(paths) >= 20
    for path in paths:
        instance = json.loads(path.read_text())
        schema.validate(instance)
        findings = Findings(strict=True)
        (job,) = wfformat.read([path], findings)
        Workload((job,))
        tasks = {task["id"]: task for task in instance["workflow"]["specification"]["tasks"]}
        assert {stage.id: set(stage.parents) for stage in job.stages} == {
            name: set(task["parents"]) for name, task in tasks.items()
        }
        executed = instance["workflow"]["execution"]["tasks"]
        assert {stage.id: stage.durations.values_s[0] for stage in job.stages} == {
            task["id"]: task["runtimeInSeconds"] for task in executed
        }
        assert job.recorded.finish_s == instance["workflow"]["execution"]["makespanInSeconds"]


def test_real_old_files_hold_the_same_workflows_as_the_new_ones(shared_dir):
    directory = shared_dir / "data"
    pairs = [
        (old, directory / "wfcommons" / old.name.removeprefix("v1old_"))
        for old in sorted((directory / "wfcommons_old").glob("v1old_*.json"))
    ]
    pairs = [(old, new) for old, new in pairs if new.is_file()]
    if not pairs:
        pytest.skip(f"{directory / 'wfcommons_old'} is absent")
    for old, new in pairs:
        # In 1.5 the ids are what the names were in 1.4.
        of_old = {
            task["id"]: task["name"] for task in json.loads(old.read_text())["workflow"]["tasks"]
        }
        (before,), (after,) = (wfformat.read([path], Findings(strict=True)) for path in (old, new))
        assert {
            of_old[s.id]: ({of_old[p] for p in s.parents}, s.durations, s.demand)
            for s in before.stages
        } == {s.id: (set(s.parents), s.durations, s.demand) for s in after.stages}
        assert before.recorded == after.recorded
