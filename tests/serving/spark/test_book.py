"""What is known of jobs before, while and after Spark runs them."""

import pytest

from ganger.errors import ConfigError
from ganger.serving.checking import check_observation
from ganger.serving.estimates import Estimates
from ganger.serving.spark.book import Book, Shapes, SparkJob, SparkStage
from ganger.serving.spark.pools import LAST, Pool


def book_of(*jobs, shapes=None, executors=4):
    book = Book(Estimates(1.0), shapes or Shapes())
    book.executors = executors
    book.jobs = {job.name: job for job in jobs}
    return book


def opened(name, *stages, active_s=10.0):
    job = SparkJob(name, name, 0.0, "tag", pool=Pool(LAST, 0), active_s=active_s)
    job.stages = {stage.id: stage for stage in stages}
    return job


def stages_of(observation, place=0):
    return [(s.tasks, s.launched, s.schedulable) for s in observation.jobs[place].stages]


def test_of_a_kind_never_seen_a_stage_as_wide_as_the_cluster_is_expected():
    assert stages_of(book_of(SparkJob("a", "a", 0.0, "tag")).observation(1.0)) == [(4, 0, True)]


def test_what_the_user_says_goes_before_what_the_last_job_had():
    shapes = Shapes()
    shapes.learn("a", (40, 8))
    job = SparkJob("a", "a", 0.0, "tag")
    assert stages_of(book_of(job, shapes=shapes).observation(1.0)) == [
        (40, 0, True), (8, 0, False),
    ]  # fmt: skip
    job.hint = (3,)
    assert stages_of(book_of(job, shapes=shapes).observation(1.0)) == [(3, 0, True)]


def test_all_executors_are_on_offer_but_those_that_run_unmarked_tasks():
    job = opened("a", SparkStage(7, 10, active=4, finished=2, begun=True))
    book = book_of(job)
    book.others = 1
    observation = book.observation(10.0)
    check_observation(observation)
    assert (observation.executors, observation.on_offer) == (4, 3)
    assert stages_of(observation) == [(10, 6, True)]


def test_a_stage_whose_parent_runs_is_offered_only_ahead():
    job = opened("a", SparkStage(7, 4, active=4, begun=True), SparkStage(8, 2))
    book = book_of(job)
    assert stages_of(book.observation(10.0)) == [(4, 4, False), (2, 0, False)]
    ahead = book.observation(10.0, ahead=True)
    check_observation(ahead)
    assert stages_of(ahead) == [(4, 4, False), (2, 0, True)]


def test_a_job_that_computes_by_itself_keeps_nobody_waiting():
    shapes = Shapes()
    shapes.learn("a", (2, 4))
    job = opened("a", SparkStage(7, 2, finished=2, begun=True))
    book = book_of(job, shapes=shapes)
    assert stages_of(book.observation(10.1)) == [(2, 2, False), (4, 0, True)]
    assert stages_of(book.observation(11.0)) == [(2, 2, False), (4, 0, False)]


def test_stages_side_by_side_do_not_wait_for_each_other():
    first = SparkStage(1, 4, active=2, begun=True)
    book = book_of(opened("a", first, SparkStage(2, 4, active=2, begun=True)))
    observation = book.observation(10.0)
    check_observation(observation)
    assert [stage.parents for stage in observation.jobs[0].stages] == [(), ()]


def test_what_has_ended_is_not_shown():
    assert book_of(opened("a", SparkStage(7, 4, finished=4, begun=True))).observation(1).jobs == ()


def test_durations_of_stages_that_ran_and_the_shape_are_learned_and_kept(tmp_path):
    estimates, shapes = Estimates(1.0), Shapes(tmp_path / "shapes.json")
    first = SparkStage(1, 4, finished=4, busy_s=2.0, begun=True)
    second = SparkStage(2, 2, finished=2, busy_s=0.4, begun=True, after=first)
    job = opened("a", first, second)
    book = Book(estimates, shapes)
    book.learn(job)
    shapes.save()
    assert estimates.estimate("a/0").task_s == pytest.approx(0.5)
    assert estimates.estimate("a/1").task_s == pytest.approx(0.2)
    assert Shapes(tmp_path / "shapes.json").of("a") == (4, 2)
    seen = book.seen(job, 3.0)
    assert [stage.parents for stage in seen.stages] == [(), ("0",)]
    assert seen.stages[0].durations_s == pytest.approx((0.5,) * 4)
    (tmp_path / "shapes.json").write_text("[1]")
    with pytest.raises(ConfigError, match="holds no shapes"):
        Shapes(tmp_path / "shapes.json")


def test_a_task_that_runs_counts_as_half_done():
    stage = SparkStage(1, 8, active=4, finished=4, busy_s=6.0, begun=True)
    assert stage.finished_s == pytest.approx(4.0)  # 1 s each, and 0.5 s of each of the others
