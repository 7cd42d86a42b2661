"""What a driver leaves behind can be read again, whatever the disk does."""

import msgspec
import pytest

from ganger.errors import ConfigError
from ganger.serving.asking import SMALL
from ganger.serving.guard import Answer
from ganger.serving.records import Records, Round, SeenJob, SeenStage
from ganger.workload import read_workload

ANSWER = Answer(0, (), (), "fair", 0.001)


def job(name, arrival_s):
    stages = (SeenStage("map", (), (1.0, 2.0)), SeenStage("sum", ("map",), (0.5,)))
    return SeenJob(name, arrival_s, arrival_s + 9, stages, "ann")


def test_jobs_become_a_workload_that_goes_on_after_a_restart(tmp_path):
    records = Records(tmp_path)
    records.job(job("b", records.began_s + 7.5))
    records.close()
    again = Records(tmp_path)
    assert again.began_s == records.began_s
    again.job(job("a", records.began_s + 2.5))
    again.close()
    first, second = read_workload(tmp_path / "jobs.jobs.jsonl").jobs
    assert (first.id, second.id) == ("a", "b")
    assert (first.arrival_s, second.arrival_s) == (pytest.approx(2.5), pytest.approx(7.5))
    assert first.stages[0].durations.values_s == (1.0, 2.0)
    assert first.stages[1].parents == ("map",) and first.user == "ann"


def test_the_log_of_decisions_is_rotated(tmp_path):
    records = Records(tmp_path, largest=3000, keep=2)
    for number in range(40):
        records.round(float(number), SMALL, ANSWER, "acted")
    records.close()
    names = sorted(path.name for path in tmp_path.glob("decisions*"))
    assert names == ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]
    for name in names[1:]:
        lines = (tmp_path / name).read_bytes().splitlines()
        assert all(msgspec.json.decode(line, type=Round).observation == SMALL for line in lines)


def test_nothing_is_kept_where_nothing_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = Records(None)
    records.round(0.0, SMALL, ANSWER, "acted")
    records.job(job("a", 0.0))
    records.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_counted_and_stops_nothing(tmp_path):
    records = Records(tmp_path)
    records._files["decisions.jsonl"].close()
    records.round(0.0, SMALL, ANSWER, "acted")
    assert records.lost == 1
    records.close()
    with pytest.raises(ConfigError, match="cannot record there"):
        Records(tmp_path / "jobs.jobs.jsonl" / "no")
    (tmp_path / "began.json").write_text("nonsense")
    with pytest.raises(ConfigError, match="is no time"):
        Records(tmp_path)
