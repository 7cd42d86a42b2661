import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from ganger.errors import WorkloadError
from ganger.workload import Job, Pool, Recorded, Stage, Workload, work_s
from ganger.workload.convert import anonymise, moment_s, sample, scale_load, split, window

STAGES = (Stage(id="0", task_count=1, durations=Pool((1.0,))),)


def daily(days=11):
    """A job a day, from the first day on, each an hour in the queue."""
    return Workload(
        tuple(
            Job(
                id=f"job {day}",
                arrival_s=86400.0 * day,
                stages=STAGES,
                user=f"user {day % 2}",
                recorded=Recorded(
                    start_s=86400.0 * day + 3600, finish_s=86400.0 * day + 7200, status="OK"
                ),
            )
            for day in range(days)
        )
    )


def ids(workload):
    return [int(job.id.split()[-1]) for job in workload.jobs]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("1.5h", 5400.0),
        (" 2d ", 172800.0),
        ("1w", 604800.0),
        ("50%", 432000.0),
        ("0%", 0.0),
        ("100%", float("inf")),
    ],
)
def test_a_moment_is_a_time_or_a_percentage_of_the_span(text, seconds):
    assert moment_s(text, daily()) == seconds


@pytest.mark.parametrize("text", ["", "-1", "x", "1y", "1e5", "50 %"])
def test_anything_else_is_no_moment(text):
    with pytest.raises(WorkloadError, match="is no moment; expected seconds"):
        moment_s(text, daily())


def test_a_window_takes_its_begin_and_leaves_its_end_and_starts_at_zero():
    part = window(daily(), "2d:5d")
    assert ids(part) == [2, 3, 4]
    assert [job.arrival_s for job in part.jobs] == [0.0, 86400.0, 172800.0]
    assert part.jobs[1].recorded == Recorded(start_s=90000.0, finish_s=93600.0, status="OK")
    assert ids(window(daily(), ":3d")) == [0, 1, 2]
    assert ids(window(daily(), "80%:")) == [8, 9, 10]
    assert ids(window(daily(), "0:100%")) == list(range(11))
    for wrong in ("3d", "5d:5d", "99w:"):
        with pytest.raises(WorkloadError, match=f"window '{wrong}'"):
            window(daily(), wrong)


def test_a_split_by_time_puts_each_job_on_one_side():
    train, test = split(daily(), "80%")
    assert ids(train) == list(range(8))
    assert ids(test) == [8, 9, 10]
    assert test.jobs[0].arrival_s == 0.0
    with pytest.raises(WorkloadError, match="arrives before 0%"):
        split(daily(), "0%")
    with pytest.raises(WorkloadError, match="at or after 100%"):
        split(daily(), "100%")


def test_a_sample_is_drawn_without_replacement_and_repeats_with_its_seed():
    assert ids(sample(daily(), 11)) == list(range(11))
    drawn = sample(daily(100), 0.3, seed=1)
    assert len(set(ids(drawn))) == 30
    assert ids(drawn) == sorted(ids(drawn))
    assert drawn == sample(daily(100), 30, seed=1)
    assert drawn != sample(daily(100), 30, seed=2)
    for wrong in (0, -1, 12, 1.5, 0.001, float("nan"), float("inf")):
        with pytest.raises(WorkloadError, match="is impossible"):
            sample(daily(), wrong)


def test_twice_the_load_is_half_the_time_between_arrivals():
    scaled = scale_load(daily(), 2)
    assert [job.arrival_s for job in scaled.jobs] == [43200.0 * day for day in range(11)]
    assert scaled.jobs[3].recorded == Recorded(status="OK")
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(WorkloadError, match="cannot be scaled"):
            scale_load(daily(), wrong)


def test_anonymous_jobs_have_no_names_left():
    secret = (
        Stage(id="pay raise", parents=("spy",), task_count=1, durations=Pool((1.0,))),
        Stage(id="spy", task_count=2, durations=Pool((1.0,))),
    )
    jobs = tuple(
        Job(id=f"secret {i}", arrival_s=float(i), stages=secret, user=f"secret {i % 2}")
        for i in range(3)
    )
    given = anonymise(Workload(jobs))
    assert [job.id for job in given.jobs] == ["1", "2", "3"]
    assert [job.user for job in given.jobs] == ["u1", "u2", "u1"]
    assert [(s.id, s.parents, s.task_count) for s in given.jobs[0].stages] == [
        ("0", (), 2),
        ("1", ("0",), 1),
    ]
    assert given.jobs[0].stages is given.jobs[2].stages


@given(strategies.workloads(), st.floats(0.01, 100))
def test_work_and_order_survive_whatever_is_done(workload, factor):
    for changed in (anonymise(workload), scale_load(workload, factor), window(workload, ":")):
        assert len(changed.jobs) == len(workload.jobs)
        assert changed.jobs[0].arrival_s == 0.0
        assert [work_s(job.stages) for job in changed.jobs] == pytest.approx(
            [work_s(job.stages) for job in workload.jobs]
        )
