"""docs/simulator.md: its example runs, and it names every field of an observation."""

import re
from pathlib import Path

import msgspec
import pytest

from ganger.simulator.observation import (
    Decision,
    JobObservation,
    Observation,
    StageObservation,
)
from ganger.workload import Job, Pool, Stage, Workload

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def text():
    return (DOCS / "simulator.md").read_text(encoding="utf-8")


def test_the_example_runs(text):
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    stages = (Stage(id="x", task_count=100, durations=Pool((1.0, 2.0))),)
    jobs = tuple(Job(id=str(i), arrival_s=0.0, stages=stages) for i in range(3))
    names = {"workload": Workload(jobs)}
    exec(example, names)
    assert names["result"].finished == 3


@pytest.mark.parametrize("record", [Observation, JobObservation, StageObservation])
def test_every_field_of_an_observation_is_described(text, record):
    table = text.split(f"| `{record.__name__}` |")[1].split("\n\n")[0]
    described = set(re.findall(r"`(\w+)`", table))
    assert {field.name for field in msgspec.structs.fields(record)} <= described
    assert all(hasattr(record, name) for name in described)


def test_the_decision_is_described(text):
    fields = ", ".join(field.name for field in msgspec.structs.fields(Decision))
    assert f"`Decision({fields})`" in text


@pytest.mark.parametrize("page", ["simulator.md", "architecture.md"])
def test_links_and_files_that_a_page_names_exist(page):
    found = (DOCS / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\((?!http|#)([^)#]+)", found):
        assert (DOCS / link).is_file(), link
    for name in re.findall(r"`((?:tests|benchmarks|docs)/[\w/.]+\.\w+)`", found):
        assert (DOCS.parent / name).is_file(), name
