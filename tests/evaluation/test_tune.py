import pytest

from ganger.errors import SimulationError
from ganger.evaluation import families, tune
from ganger.schedulers import parse_scheduler
from ganger.workload import SyntheticSource


@pytest.fixture(scope="module")
def report():
    return tune(SyntheticSource(), executors=8, jobs=6, interarrival_s=20.0, episodes=5, seed=0)


@pytest.mark.parametrize("executors", [1, 2, 50, 1000])
def test_candidates_fit_the_cluster_and_are_distinct(executors):
    spelled = [str(one) for family in families(executors).values() for one in family]
    assert len(set(spelled)) == len(spelled)
    assert [str(parse_scheduler(text)) for text in spelled] == spelled


def test_every_family_is_reported_once_best_first(report):
    assert {tuned.family for tuned in report.families} == set(families(8))
    ratios = [tuned.training_ratio for tuned in report.families]
    assert ratios == sorted(ratios)
    assert report.best == report.families[0].scheduler


def test_what_is_reported_can_be_spelled_and_belongs_to_its_family(report):
    for tuned in report.families:
        assert parse_scheduler(tuned.scheduler) in families(8)[tuned.family]
        assert tuned.held_out.scheduler == tuned.scheduler
        assert tuned.held_out.episodes == 5


def test_the_best_beats_fair_where_jobs_queue(report):
    assert report.families[0].held_out.ratio < 1.0


def test_the_search_is_the_same_every_time(report):
    again = tune(SyntheticSource(), executors=8, jobs=6, interarrival_s=20.0, episodes=5, seed=0)
    assert again == report


def test_too_few_lists_are_refused():
    with pytest.raises(SimulationError, match="episodes is 3; expected 4 or more"):
        tune(SyntheticSource(), executors=8, jobs=6, interarrival_s=20.0, episodes=3, seed=0)
