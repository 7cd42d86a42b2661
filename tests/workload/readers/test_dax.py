"""Pegasus DAX. The small workflows are written for these tests; real ones are in shared/."""

import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.testing import check_reader
from ganger.workload import PerTask, Pool, Workload
from ganger.workload.readers import dax
from ganger.workload.readers.findings import Findings

# Two roots, one of which takes no time, join; a last job on 4 cores follows.
SMALL = """\
<?xml version="1.0" encoding="UTF-8"?>
<!-- written for a test -->
<adag xmlns="http://pegasus.isi.edu/schema/DAX" version="2.1" jobCount="4" childCount="2">
  <job id="a" namespace="N" name="step" version="1.0" runtime="0">
    <uses file="in.txt" link="input" size="10"/>
  </job>
  <job id="b" namespace="N" name="step" version="1.0" runtime="12.5"/>
  <job id="join" namespace="N" name="step" version="1.0" runtime="40"/>
  <job id="last" namespace="N" name="step" version="1.0" runtime="7" cores="4"/>
  <child ref="join">
    <parent ref="a"/>
    <parent ref="b"/>
  </child>
  <child ref="last"><parent ref="join"/></child>
</adag>
"""
BARE = SMALL.replace(' xmlns="http://pegasus.isi.edu/schema/DAX" version="2.1"', "")
GRAPH = {"a": (), "b": (), "join": ("a", "b"), "last": ("join",)}


@pytest.fixture
def read(tmp_path):
    """Read one workflow; gives its stages and the findings."""

    def read(text, strict=False):
        path = tmp_path / "small.xml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        findings = Findings(strict=strict)
        (job,) = dax.read([path], findings)
        Workload((job,))
        assert job.id == "small"
        return job.stages, findings

    return read


def graph(stages):
    return {stage.id: stage.parents for stage in stages}


@pytest.mark.parametrize(
    "text",
    [
        SMALL,
        BARE,
        BARE.replace("<", "<p:")
        .replace("<p:/", "</p:")
        .replace("<p:?", "<?")
        .replace("<p:!", "<!")
        .replace("<p:adag", '<p:adag xmlns:p="http://pegasus.isi.edu/schema/DAX"'),
    ],
    ids=["namespace", "none", "prefix"],
)
def test_a_workflow_is_a_job_with_or_without_its_namespace(read, text):
    stages, findings = read(text, strict=True)
    assert graph(stages) == GRAPH
    assert [stage.durations.values_s[0] for stage in stages] == [0.0, 12.5, 40.0, 7.0]
    assert (findings.rows, findings.found) == (4, {})


def test_cores_make_a_gang(read):
    *single, last = read(SMALL)[0]
    assert (last.gang, last.task_count, last.durations) == (True, 4, Pool((7.0,)))
    assert all(
        (stage.gang, stage.task_count, type(stage.durations)) == (False, 1, PerTask)
        for stage in single
    )


def test_a_job_count_that_is_wrong_is_noted(read):
    stages, findings = read(SMALL.replace('jobCount="4"', 'jobCount="25"'), strict=True)
    assert len(stages) == 4
    (note,) = findings.found.values()
    assert (note.action, note.reason) == ("noted", "jobCount that disagrees with the elements")


def test_children_may_be_listed_in_parts(read):
    parts = '<parent ref="a"/>\n  </child>\n  <child ref="join">'
    stages, findings = read(SMALL.replace('<parent ref="a"/>', parts), strict=True)
    assert graph(stages) == GRAPH
    (note,) = findings.found.values()
    assert (note.action, note.reason) == ("noted", "childCount that disagrees with the elements")


@pytest.mark.parametrize(
    ("was", "becomes", "finding"),
    [
        (
            '<parent ref="a"/>',
            '<parent ref="nobody"/>',
            ("dropped", 11, "task that does not exist"),
        ),
        ('<parent ref="a"/>', '<parent ref="b"/>', ("dropped", 12, "listed twice")),
        ('child ref="last"', 'child ref="nobody"', ("dropped", 14, "of a job that does not exist")),
        ('job id="last"', 'job id="b"', ("dropped", 9, "the id of an earlier job")),
        ('runtime="40"', "", ("guessed", 8, "run time is missing: 0 s")),
        ('runtime="40"', 'runtime="-40"', ("guessed", 8, "run time is below 0: 0 s")),
        ('runtime="40"', 'runtime="long"', ("dropped", 8, "run time that is no number")),
        ('runtime="40"', 'runtime="nan"', ("dropped", 8, "run time that is no number")),
        ('cores="4"', 'cores="0"', ("dropped", 9, "cores that are no whole number from 1: 1")),
        ('cores="4"', 'cores="2.5"', ("dropped", 9, "cores that are no whole number from 1: 1")),
        ("<child ref=", '<dax id="x" file="y"/><child ref=', ("dropped", 10, "a workflow within")),
    ],
)
def test_what_is_dropped_or_guessed_is_counted_with_its_line(read, was, becomes, finding):
    action, line, reason = finding
    text = SMALL.replace(was, becomes, 1)
    assert text != SMALL
    _, findings = read(text)
    (found,) = [one for one in findings.found.values() if reason in one.reason]
    assert found.action == action
    assert found.places[0].endswith(f"small.xml:{line}")
    with pytest.raises(WorkloadError):
        read(text, strict=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "small.xml:1: no element found"),
        ("<adag>", "small.xml:1: no element found"),
        ("<adag/>", "small.xml: has no jobs"),
        ("<html/>", "small.xml:1: the root element is 'html'"),
        ("<adag>\n<job id='a'/></adag>", "small.xml: no job has a runtime"),
        ("<adag>\n<job runtime='1'/></adag>", "small.xml:2: a job without id"),
        ("<adag>\n<child><parent ref='a'/></child></adag>", "small.xml:2: a child without ref"),
        ("<adag>\n<child ref='a'><parent/></child></adag>", "small.xml:2: a parent without ref"),
        ("<adag>\n<parent ref='a'/></adag>", "small.xml:2: a parent outside of a child"),
        ("<adag>\n<job id='a' runtime='1'></adag>", "small.xml:2: mismatched tag"),
        ("<adag>\n<job id='a' runtime='1e300'/></adag>", "is 1e+300; expected a number of seconds"),
        ("<adag>" + "<x>" * 200, "small.xml:1: nested too deeply"),
        ("<?xml version='1.0' encoding='nonsense'?><adag/>", "small.xml: unknown encoding: nons"),
        ("<?xml version='1.0' encoding='gbk'?><adag/>", "small.xml: multi-byte encodings are not"),
        (
            SMALL.replace('<parent ref="a"/>', '<parent ref="last"/>'),
            "small.xml: parents: stages wait for each other: 'join' needs 'last' needs 'join'",
        ),
    ],
)
def test_what_is_no_workflow_is_refused_with_its_line(read, text, message):
    with pytest.raises(WorkloadError) as refused:
        read(text)
    assert message in str(refused.value)


BILLION_LAUGHS = (
    '<!DOCTYPE adag [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + ']><adag><job id="&i;" runtime="1"/></adag>'
)


@pytest.mark.parametrize(
    "text",
    [
        BILLION_LAUGHS,
        '<!DOCTYPE adag [<!ENTITY x SYSTEM "file:///etc/passwd">]><adag><job id="&x;"/></adag>',
        '<!DOCTYPE adag [<!ENTITY % x SYSTEM "http://127.0.0.1/x"> %x;]><adag/>',
        f'<!DOCTYPE adag [<!ENTITY x "{"y" * 1000}">]><adag>{"&x;" * 1000}</adag>',
    ],
    ids=["billion laughs", "external", "parameter", "quadratic"],
)
def test_entities_are_refused_before_any_is_expanded(read, text):
    with pytest.raises(WorkloadError, match=r"small\.xml:1: defines an entity"):
        read(text)


def test_a_document_type_without_entities_is_not_fetched(read):
    declared = SMALL.replace("<adag", '<!DOCTYPE adag SYSTEM "http://127.0.0.1:1/dax.dtd">\n<adag')
    assert graph(read(declared)[0]) == GRAPH


@pytest.mark.parametrize("start", ["<!-- ", "<adag name='", "<adag><job id='"])
def test_an_endless_tag_costs_neither_memory_nor_time(tmp_path, start):
    path = tmp_path / "small.xml"
    with open(path, "wb") as file:
        file.write(start.encode())
        for _ in range(64):
            file.write(b"x" * 2**20)
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(WorkloadError, match=r"small\.xml:1: a tag is too long"):
        list(dax.read([path], Findings()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
    assert time.process_time() - began < 5


def test_the_reader_conforms(tmp_path):
    path = tmp_path / "small.xml"
    path.write_text(SMALL)
    check_reader(lambda path: list(dax.read([path], Findings())), path)


@given(data=st.data())
def test_damaged_bytes_give_a_workflow_or_an_error(tmp_path_factory, data):
    text = data.draw(st.sampled_from([SMALL, BARE, BILLION_LAUGHS])).encode()
    how = data.draw(st.sampled_from(["cut", "mutate", "shuffle lines", "shuffle attributes"]))
    if how == "cut":
        text = text[: data.draw(st.integers(0, len(text)))]
    elif how == "mutate":
        changed = bytearray(text)
        for _ in range(data.draw(st.integers(1, 4))):
            changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        text = bytes(changed)
    else:
        mark = b"\n" if how == "shuffle lines" else b'"'
        text = mark.join(data.draw(st.permutations(text.split(mark))))
    path = tmp_path_factory.mktemp("damaged") / "small.xml"
    path.write_bytes(text)
    dax.recognise(text, path)
    try:
        Workload(tuple(dax.read([path], Findings())))
    except WorkloadError as error:
        assert "small.xml" in str(error)


@pytest.mark.parametrize(
    "text", [SMALL, BARE, "<adag>", "<p:adag x='1'>", "\ufeff<adag>", "\n<!-- dag --><adag\n>"]
)
def test_workflows_are_recognised(text, tmp_path):
    assert dax.recognise(text.encode(), tmp_path / "anything")
    if not text.startswith("\ufeff"):
        assert dax.recognise(text.encode("utf-16"), tmp_path / "anything")


@pytest.mark.parametrize(
    "text", ["", "<html>", "<badag>", "<adagio>", '{"workflow": "<adag>"}', "adag", "1 <adag "]
)
def test_other_files_are_not(text, tmp_path):
    assert not dax.recognise(text.encode(), tmp_path / "anything.xml")


@pytest.fixture(scope="module")
def real(shared_dir):
    directory = shared_dir / "data" / "dax"
    if not directory.is_dir():
        pytest.skip(f"{directory} is absent")
    return directory


def test_real_workflows_are_read_whole(real):
    paths = sorted(real.glob("*.xml"))
    assert len(paths) >= 9
    for path in paths:
        findings = Findings(strict=True)
        (job,) = dax.read([path], findings)
        Workload((job,))
        text = path.read_text()
        assert len(job.stages) == text.count("<job ")
        assert sum(len(stage.parents) for stage in job.stages) == text.count("<parent ")


def test_the_example_of_the_heft_paper_has_the_published_graph(real):
    expected = json.loads((real / "HEFT_paper_expected.json").read_text())
    findings = Findings()
    (job,) = dax.read([real / "HEFT_paper.xml"], findings)
    number = {stage.id: int(stage.id.removeprefix("ID")) for stage in job.stages}
    edges = {(number[p], number[stage.id]) for stage in job.stages for p in stage.parents}
    assert edges == {(a, b) for a, b, _ in expected["edge_communication_cost"]}
    # The file holds what the first of the paper's processors needs.
    assert {str(number[s.id]): s.durations.values_s[0] for s in job.stages} == {
        task: costs[0] for task, costs in expected["computation_cost"].items()
    }
    assert ("noted", "jobCount that disagrees with the elements") in findings.found


def test_the_real_workflow_of_parallel_jobs_is_one_of_gangs(real):
    (job,) = dax.read([real / "floodplain.xml"], Findings(strict=True))
    assert all(stage.gang for stage in job.stages)
    assert {stage.task_count for stage in job.stages} == {8, 10, 160, 192, 256}
