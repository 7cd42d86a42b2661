"""Durations that can be known, and what they rest on."""

import pytest

from ganger.errors import ConfigError
from ganger.serving.estimates import Estimates


def test_nothing_is_known_at_first():
    assert Estimates(prior_s=3.0).estimate("map") == Estimates(3.0).estimate("sum")
    assert Estimates(prior_s=3.0).estimate("map").task_s == 3.0
    assert Estimates(prior_s=3.0).estimate("map").source == "prior"


def test_finished_tasks_of_the_stage_count_alone_where_nothing_else_is_known():
    found = Estimates().estimate("map", finished=4, total_s=8.0)
    assert (found.task_s, found.source) == (2.0, "tasks")


def test_earlier_stages_of_the_name_are_remembered_and_weigh_as_two_tasks():
    estimates = Estimates()
    estimates.learn("map", 10, 50.0)
    assert estimates.estimate("map").task_s == 5.0
    assert estimates.estimate("map").source == "history"
    # 2 x 5 s remembered, and 2 tasks of 1 s.
    assert estimates.estimate("map", finished=2, total_s=2.0).task_s == pytest.approx(3.0)


def test_a_new_name_is_thought_to_be_like_the_others():
    estimates = Estimates()
    estimates.learn("map", 1, 1.0)
    estimates.learn("sum", 1, 100.0)
    assert estimates.estimate("new").task_s == pytest.approx(10.0)  # their geometric mean
    assert estimates.estimate("new").source == "prior"


def test_how_wrong_they_were_is_reported_by_source():
    estimates = Estimates(prior_s=1.0)
    estimates.learn("map", 1, 2.0)  # prior 1
    estimates.learn("map", 1, 1.0)  # history 2
    estimates.learn("map", 1, 3.0)  # history 1.5
    error = estimates.error()
    assert error["prior"] == {"stages": 1, "factor": pytest.approx(2), "bias": pytest.approx(2)}
    assert error["history"]["factor"] == pytest.approx(2)
    assert error["history"]["bias"] == pytest.approx(1)


def test_stages_that_took_no_time_or_had_no_tasks_teach_nothing_wrong():
    estimates = Estimates()
    estimates.learn("none", 0, 0.0)
    estimates.learn("odd", 3, float("nan"))
    estimates.learn("instant", 5, 0.0)
    assert estimates.estimate("instant").task_s == 0.0
    assert estimates.estimate("new").task_s == 1.0
    assert estimates.error() == {}


def test_they_are_kept_in_a_file(tmp_path):
    path = tmp_path / "estimates.json"
    before = Estimates(path=path)
    before.learn("map", 10, 50.0)
    before.save()
    after = Estimates(path=path)
    assert after.estimate("map") == before.estimate("map")
    assert after.error() == before.error()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format":"other"}', b"\xff", b"{}x"])
def test_a_file_that_holds_none_is_refused(tmp_path, content):
    path = tmp_path / "estimates.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"estimates\.json"):
        Estimates(path=path)
    with pytest.raises(ConfigError, match="prior"):
        Estimates(prior_s=0)
