import dataclasses
import re
from pathlib import Path

import pytest

from ganger.workload import PerTask, Pool, SyntheticConfig, Waves, read_workload

DOCS = Path(__file__).resolve().parents[2] / "docs" / "workloads.md"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)


def test_the_documented_file_is_read(tmp_path):
    (example,) = blocks("jsonl")
    path = tmp_path / "example.jobs.jsonl"
    path.write_text(example)
    jobs = read_workload(path).jobs
    assert [(job.id, job.arrival_s) for job in jobs] == [
        ("report", 0.0),
        ("query 1", 12.5),
        ("query 2", 12.5),
    ]
    kinds = {type(stage.durations) for job in jobs for stage in job.stages}
    assert kinds == {PerTask, Pool, Waves}
    assert jobs[1].stages is jobs[2].stages


def test_the_documented_python_runs(tmp_path, monkeypatch: pytest.MonkeyPatch):
    (example,) = blocks("python")
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(DOCS), "exec"), {})


def test_every_synthetic_setting_is_documented():
    documented = re.findall(r"`(\w+)`", DOCS.read_text())
    assert {field.name for field in dataclasses.fields(SyntheticConfig)} <= set(documented)
