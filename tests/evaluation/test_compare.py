import numpy as np
import pytest

from ganger import streams
from ganger.errors import GangerError, SimulationError
from ganger.evaluation import Contender, JobLists, evaluate
from ganger.evaluation.compare import row
from ganger.evaluation.episodes import ListedJobs, Outcomes
from ganger.schedulers import Fair, Fifo, parse_schedulers
from ganger.simulator.simulate import Cluster
from ganger.streams import Stream
from ganger.workload import (
    FileSource,
    Job,
    Pool,
    Stage,
    SyntheticSource,
    Workload,
    random_workload,
)

SOURCE = SyntheticSource()
SETTING = {"executors": 10, "jobs": 8, "interarrival_s": 20.0, "episodes": 6, "seed": 3}


def job_lists(source=SOURCE, **changes):
    given = {"cluster": Cluster(executors=10), "jobs": 8, "interarrival_s": 20.0, "seed": 3}
    return JobLists(source, **(given | changes))


def test_fair_compared_with_itself_is_one():
    (fair,) = evaluate(SOURCE, [Fair()], **SETTING)
    assert (fair.scheduler, fair.mode) == ("fair", "heuristic")
    assert (fair.ratio, fair.standard_error, fair.win_rate) == (1.0, 0.0, 0.0)
    assert fair.episodes == 6


def test_the_ratio_is_the_mean_of_ratios_list_by_list():
    rows = evaluate(SOURCE, parse_schedulers("fair,fifo,srpt"), **SETTING)
    lists = job_lists()
    state = lists.new_state()
    fair, fifo = (
        np.array([lists.jct_s(state, scheduler, i).mean() for i in range(6)])
        for scheduler in (Fair(), Fifo())
    )
    assert [one.scheduler for one in rows] == ["fair", "fifo", "srpt"]
    assert rows[1].mean_jct_s == pytest.approx(fifo.mean())
    assert rows[1].ratio == pytest.approx((fifo / fair).mean())
    assert rows[1].standard_error == pytest.approx((fifo / fair).std(ddof=1) / np.sqrt(6))
    assert rows[1].win_rate == (fifo < fair).mean()


def test_fair_is_run_though_nobody_asks():
    (alone,) = evaluate(SOURCE, [Fifo()], **SETTING)
    assert alone == evaluate(SOURCE, [Fair(), Fifo()], **SETTING)[1]


def test_the_same_seed_gives_the_same_rows_and_another_seed_does_not():
    assert evaluate(SOURCE, [Fifo()], **SETTING) == evaluate(SOURCE, [Fifo()], **SETTING)
    assert evaluate(SOURCE, [Fifo()], **SETTING) != evaluate(
        SOURCE, [Fifo()], **(SETTING | {"seed": 4})
    )


def test_more_episodes_begin_with_the_same_lists():
    few = job_lists().all_jct_s([Fifo()], range(3))
    many = job_lists().all_jct_s([Fifo()], range(5))
    np.testing.assert_array_equal(few, many[:, :3])


def test_evaluation_lists_are_those_of_random_workload():
    lists = job_lists()
    workload = random_workload(SOURCE, jobs=8, interarrival_s=20.0, seed=3, index=2)
    templates, arrivals_s = lists.draw(2)
    assert arrivals_s.tolist() == [job.arrival_s for job in workload.jobs]
    tasks = [sum(stage.task_count for stage in job.stages) for job in workload.jobs]
    assert lists.table.templates["tasks"][templates].tolist() == tasks


def test_no_two_streams_share_lists_or_luck():
    evaluation = job_lists().all_jct_s([Fifo()], range(2))
    tuning = job_lists(stream=Stream.TUNING).all_jct_s([Fifo()], range(2))
    assert not np.isin(evaluation, tuning).any()


def test_equal_templates_of_a_source_keep_their_share_of_the_draws():
    short, long = (
        (Stage(id="a", task_count=1, durations=Pool((seconds,))),) for seconds in (1.0, 9.0)
    )
    same = (Stage(id="a", task_count=1, durations=Pool((1.0,))),)
    jobs = [Job(id=str(i), arrival_s=0.0, stages=s) for i, s in enumerate([short, same, long] * 5)]
    source = FileSource("mine", Workload(tuple(jobs)))
    lists = JobLists(source, cluster=Cluster(executors=1), jobs=99, interarrival_s=1.0, seed=0)
    drawn, _ = lists.draw(0)
    assert set(drawn.tolist()) == {0, 1}


def test_a_row_by_hand():
    # Two lists of two jobs: means 2 and 21, the baseline's 4 and 14.
    mine = row(
        Contender(Fifo(), "mine", "argmax"),
        Outcomes(
            jct_s=np.array([[1.0, 3.0], [6.0, 36.0]]),
            wait_s=np.array([[0.0, 2.0], [3.0, 16.0]]),
            busy_s=np.array([10.0, 36.0]),
            killed=np.array([0, 2]),
        ),
        ListedJobs(
            arrival_s=np.array([[0.0, 2.0], [0.0, 9.0]]),
            path_s=np.array([[1.0, 1.0], [12.0, 4.0]]),
            weight=np.array([[3.0, 1.0], [1.0, 1.0]]),
        ),
        baseline=("theirs", np.array([4.0, 14.0])),
        executors=2,
        weighted=True,
    )
    assert (mine.scheduler, mine.mode, mine.episodes) == ("mine", "argmax", 2)
    assert mine.mean_jct_s == 11.5  # 2 and 21
    assert (mine.ratio, mine.baseline) == (1.0, "theirs")  # 0.5 and 1.5
    assert mine.standard_error == pytest.approx(0.5)  # sqrt(0.5) / sqrt(2)
    assert mine.win_rate == 0.5
    assert mine.p50_jct_s == 4.5
    assert mine.mean_slowdown == pytest.approx((3 + 36 / 10) / 4)
    assert mine.mean_makespan_s == 25.0  # 5 and 45
    assert mine.weighted_jct_s == 11.25  # 1.5 and 21
    assert mine.mean_wait_s == 5.25
    # 0, 2, 3, 16: at 0.95 x 3 of the steps between them
    assert mine.p95_wait_s == pytest.approx(3 + 0.85 * 13)
    assert mine.max_wait_s == 16.0
    assert mine.mean_bounded_slowdown == pytest.approx((3 + 36 / 20) / 4)
    assert mine.utilisation == pytest.approx((10 / 10 + 36 / 90) / 2)
    assert mine.killed == 2


def test_weights_are_those_of_the_users_and_without_them_there_is_no_weighted_mean():
    short, long = (
        (Stage(id="a", task_count=1, durations=Pool((seconds,))),) for seconds in (1.0, 9.0)
    )
    jobs = [
        Job(id=str(i), arrival_s=0.0, stages=stages, user=user)
        for i, (stages, user) in enumerate([(short, None), (long, "ann")] * 10)
    ]
    source = FileSource("mine", Workload(tuple(jobs)))
    alone = {"executors": 1, "jobs": 40, "interarrival_s": 1e5, "episodes": 1, "seed": 0}
    (row_,) = evaluate(source, [Fifo()], **alone, move_delay_s=0.0, weights={"ann": 1e9})
    assert row_.weighted_jct_s == pytest.approx(9.0)
    (row_,) = evaluate(source, [Fifo()], **alone, move_delay_s=0.0)
    assert row_.weighted_jct_s is None
    assert row_.mean_slowdown == 1.0


def test_one_list_has_no_standard_error():
    (fifo,) = evaluate(SOURCE, [Fifo()], **(SETTING | {"episodes": 1}))
    assert fifo.standard_error is None


def test_progress_counts_every_episode():
    counts = []
    evaluate(SOURCE, [Fifo()], **SETTING, progress=lambda done, total: counts.append((done, total)))
    assert counts == [(2 * (i + 1), 12) for i in range(6)]


def test_a_scheduler_that_gives_up_is_named():
    class Idle:
        def run(self, state, table, key):
            pass

        def __str__(self):
            return "idle"

    with pytest.raises(SimulationError, match="idle left 8 of 8 jobs of list 0 unfinished"):
        evaluate(SOURCE, [Idle()], **SETTING)


@pytest.mark.parametrize("wrong", [{"episodes": 0}, {"jobs": 0}, {"interarrival_s": -1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(GangerError, match=next(iter(wrong))):
        evaluate(SOURCE, [Fifo()], **(SETTING | wrong))


def test_a_scheduler_that_draws_is_given_its_own_stream_for_each_list():
    keys = []

    class Recorder:
        def run(self, state, table, key):
            keys.append(int(key))
            Fifo().run(state, table, key)

    job_lists().all_jct_s([Recorder()], range(3))
    assert sorted(keys) == sorted(int(streams.key(3, Stream.SCHEDULER, i)) for i in range(3))


# --- windows of a log


def log(count, every_s=5.0):
    """Jobs of one task that get longer and longer, and rarer and rarer."""
    return FileSource(
        "log",
        Workload(
            tuple(
                Job(
                    id=str(i),
                    arrival_s=every_s * i * i,
                    stages=(Stage(id="a", task_count=1, durations=Pool((1.0 + i,))),),
                )
                for i in range(count)
            )
        ),
    )


def test_lists_of_a_log_are_windows_of_it_with_its_own_arrivals():
    lists = job_lists(source=log(40), jobs=4, interarrival_s=None)
    assert lists.first(200) == range(2)  # the last 20 % are eight jobs
    for index, first in enumerate((32, 36)):
        templates, arrivals_s = lists.draw(index)
        work_s = lists.table.templates["work_s"][templates]
        assert work_s.tolist() == [1.0 + first + k for k in range(4)]
        between = [5.0 * ((first + k) ** 2 - first**2) for k in range(4)]
        assert arrivals_s.tolist() == pytest.approx(between)


def test_windows_of_the_training_part_and_of_all_are_of_those_jobs():
    for split, jobs in (("train", range(32)), ("all", range(40))):
        lists = job_lists(source=log(40), jobs=4, interarrival_s=None, split=split)
        drawn = np.concatenate([lists.draw(i)[0] for i in lists.first(99)])
        work_s = lists.table.templates["work_s"][drawn]
        assert sorted(work_s.tolist()) == [1.0 + i for i in jobs]


def test_a_whole_log_is_one_list():
    lists = job_lists(source=log(40), jobs=None, interarrival_s=None, split="all")
    assert lists.first(200) == range(1)
    assert lists.draw(0)[1].tolist() == [5.0 * i * i for i in range(40)]


def test_an_interarrival_makes_lists_of_a_log_random():
    lists = job_lists(source=log(40), jobs=4, interarrival_s=3.0)
    assert lists.first(200) == range(200)
    assert np.diff([lists.draw(i)[1][-1] for i in range(5)]).all()


def test_jobs_without_arrivals_come_at_random_unless_told_otherwise():
    by_default = job_lists(interarrival_s=None).draw(1)
    np.testing.assert_array_equal(by_default[1], job_lists(interarrival_s=25.0).draw(1)[1])


def test_a_log_with_fewer_jobs_than_a_list_is_refused():
    with pytest.raises(SimulationError, match="log: there are 2 jobs, fewer than the 4 of a list"):
        job_lists(source=log(10), jobs=4, interarrival_s=None)


def test_as_many_windows_are_evaluated_as_there_are():
    given = SETTING | {"interarrival_s": None, "jobs": 4, "episodes": 200}
    (row,) = evaluate(log(40), [Fifo()], **given)
    assert row.episodes == 2
    (row,) = evaluate(log(40), [Fifo()], split="all", **given)
    assert row.episodes == 10
