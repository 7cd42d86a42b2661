"""Validation: on fixed lists that training does not draw, against fair and the best heuristic."""

import numpy as np
import pytest
import toys

from ganger.evaluation.episodes import JobLists, ListedJobs
from ganger.policy.layout import initial_vector
from ganger.simulator.simulate import Cluster
from ganger.streams import Stream
from ganger.training import validation
from ganger.training.validation import HEURISTICS, Validator, own_figures
from ganger.workload import load_source


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("toy") / "toy.jobs.jsonl"
    return load_source(toys.write_toy_workload(path))


def vector(seed=0):
    return initial_vector(np.random.default_rng(seed), False)


def test_a_policy_is_compared_with_fair_and_with_the_best_heuristic(source):
    validator = Validator(toys.config(), source)
    result = validator.validate(vector())
    assert result.ratio == min(result.argmax, result.sampled)
    # Fair lets short jobs wait behind long ones here; several heuristics do not.
    assert result.to_heuristic > result.ratio
    (best,) = validator.heuristics
    assert best in HEURISTICS


def test_validation_repeats_whatever_the_seed_of_training(source):
    first, second = (
        Validator(toys.config(seed=seed), source).validate(vector()) for seed in (1, 2)
    )
    assert first[:3] == second[:3]
    assert first[:3] != Validator(toys.config(), source).validate(vector(seed=5))[:3]


def test_several_cells_count_alike(source):
    alone = [Validator(toys.config(executors=n), source).validate(vector()).argmax for n in (1, 3)]
    validator = Validator(toys.config(executors=(1, 3)), source)
    assert validator.validate(vector()).argmax == pytest.approx(np.mean(alone))
    assert len(validator.heuristics) == 2


def test_its_lists_are_those_of_no_other_purpose(source, monkeypatch):
    made = []
    original = JobLists.__init__

    def remember(self, *args, **settings):
        made.append((settings["stream"], settings["split"]))
        original(self, *args, **settings)

    monkeypatch.setattr(validation.JobLists, "__init__", remember)
    Validator(toys.config(), source)
    assert made == [(Stream.VALIDATION, "train")]
    first = JobLists(
        source, cluster=Cluster(executors=1), jobs=8, interarrival_s=6.0, seed=0,
        stream=Stream.VALIDATION, split="train",
    ).draw(0)[1]  # fmt: skip
    for stream in (Stream.EVALUATION, Stream.TUNING):
        other = JobLists(
            source, cluster=Cluster(executors=1), jobs=8, interarrival_s=6.0, seed=0,
            stream=stream, split="train",
        ).draw(0)[1]  # fmt: skip
        assert not np.array_equal(first, other)


def test_it_can_be_given_up_at_any_time(source):
    validator = Validator(toys.config(), source)
    asked = []

    def after_three():
        asked.append(True)
        return len(asked) > 3

    assert validator.validate(vector(), after_three) is None
    assert len(asked) == 4
    assert Validator(toys.config(), source, lambda: True).validate(vector()) is None
    asked.clear()
    assert Validator(toys.config(), source, after_three).validate(vector()) is None
    assert len(asked) == 4, "also while heuristics are chosen"


def test_figures_are_the_objectives():
    jct_s = np.array([[[3.0, 4.0]], [[1.0, 20.0]]])  # [schedulers, lists, jobs]
    jobs = ListedJobs(
        arrival_s=np.array([[0.0, 5.0]]),
        path_s=np.array([[1.0, 10.0]]),
        weight=np.array([[3.0, 1.0]]),
    )
    even = jobs._replace(weight=np.ones((1, 2)))
    assert own_figures("mean", jct_s, even).tolist() == [[3.5], [10.5]]
    assert own_figures("weighted", jct_s, jobs).tolist() == [[3.25], [5.75]]
    assert own_figures("tail", jct_s, even) == pytest.approx(np.sqrt([[12.5], [200.5]]))
    assert own_figures("slowdown", jct_s, even).tolist() == [[1.0], [1.5]]
    assert own_figures("makespan", jct_s, even).tolist() == [[9.0], [25.0]]
