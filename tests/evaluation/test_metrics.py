import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.evaluation.metrics import (
    bounded_slowdown,
    dag_slowdown,
    jain_index,
    jct_s,
    level,
    makespan_s,
    queue_length,
    slowdown,
    standard_error,
    user_means,
    utilisation,
    wait_s,
)

# Three jobs: waits 5 s and runs 20 s; starts at once and runs 2 s; waits 18 s and runs 2 s.
SUBMIT, START, FINISH = [0.0, 10.0, 10.0], [5.0, 10.0, 28.0], [25.0, 12.0, 30.0]


def test_wait_and_turnaround_count_from_submission():
    assert wait_s(SUBMIT, START).tolist() == [5.0, 0.0, 18.0]
    assert jct_s(SUBMIT, FINISH).tolist() == [25.0, 2.0, 20.0]


def test_slowdown_is_turnaround_over_run_time():
    assert slowdown(SUBMIT, START, FINISH).tolist() == [1.25, 1.0, 10.0]


def test_a_job_of_no_length_has_slowdown_1_or_infinity():
    assert slowdown([0.0, 0.0], [0.0, 3.0], [0.0, 3.0]).tolist() == [1.0, math.inf]


def test_bounded_slowdown_takes_short_jobs_for_ten_seconds():
    # 25 / 20; 2 / 10 is below 1; 20 / 10.
    assert bounded_slowdown(SUBMIT, START, FINISH).tolist() == [1.25, 1.0, 2.0]
    # On 2 processors the first is 25 / (2 x 20), below 1.
    assert bounded_slowdown(SUBMIT, START, FINISH, processors=2).tolist() == [1.0, 1.0, 1.0]


def test_the_slowdown_of_a_dag_is_against_its_critical_path():
    # 30 / 20; 2 / 10 is below 1; 40 / 10, as paths shorter than 10 s count as 10 s.
    assert dag_slowdown([30.0, 2.0, 40.0], [20.0, 2.0, 4.0]).tolist() == [1.5, 1.0, 4.0]


def test_an_unfinished_job_is_not_lost_in_a_mean():
    assert np.isnan(jct_s([0.0, 1.0], [4.0, math.nan]).mean())


def test_makespan_and_utilisation_share_a_horizon():
    horizon_s = makespan_s(SUBMIT, FINISH)
    assert horizon_s == 30.0
    assert utilisation(24.0, 2, horizon_s) == pytest.approx(0.4)
    assert utilisation(0.0, 2, 0.0) == 0.0


def test_jain_index_is_1_for_equals_and_one_nth_for_a_winner():
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([0.0, 0.0, 0.0, 8.0]) == pytest.approx(0.25)
    assert jain_index([0.0, 0.0]) == 1.0
    assert jain_index([1e-159, 1e-159]) == jain_index([1e300, 1e300]) == 1.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_jain_index_lies_between_one_nth_and_1(values):
    assert 1 / len(values) - 1e-9 <= jain_index(values) <= 1 + 1e-9


def test_standard_error_needs_two_values():
    assert standard_error([1.0, 3.0]) == pytest.approx(1.0)  # deviation sqrt(2) / sqrt(2)
    assert math.isnan(standard_error([1.0]))


def test_the_queue_holds_what_was_submitted_and_has_not_started():
    # The first job waits from 0 to 5, the last from 10 to 28: 23 job-seconds in 30 s.
    queue = queue_length(SUBMIT, START)
    assert queue.times_s.tolist() == [0.0, 5.0, 10.0, 28.0]
    assert queue.values.tolist() == [1, 0, 1, 0]
    assert queue.mean(0.0, 30.0) == pytest.approx(23 / 30)
    assert queue.max() == 1


def test_the_queue_is_averaged_over_the_horizon_that_is_given():
    queue = queue_length(SUBMIT, START)
    assert queue.mean(4.0, 6.0) == pytest.approx(0.5)
    assert queue.mean(-10.0, 0.0) == 0.0
    assert queue.mean(28.0, 100.0) == 0.0
    assert queue.mean(12.0, 12.0) == 1.0


def test_jobs_that_start_at_once_are_never_in_the_queue():
    # Three arrive at 1; two of them start there and then.
    queue = queue_length([1.0, 1.0, 1.0], [1.0, 1.0, 4.0])
    assert (queue.max(), queue.mean(0.0, 4.0)) == (1, pytest.approx(0.75))


def test_a_job_that_never_starts_stays_in_the_queue():
    queue = queue_length([0.0, 2.0], [math.nan, 3.0])
    assert queue.values.tolist() == [1, 2, 1]
    assert queue.mean(0.0, 4.0) == pytest.approx(5 / 4)


def test_a_job_that_started_before_it_was_submitted_is_never_in_the_queue():
    queue = queue_length([5.0, 6.0], [4.0, 7.0])
    assert queue.values.min() == 0
    assert queue.mean(0.0, 10.0) == pytest.approx(0.1)


def test_a_level_counts_weights_and_what_never_begins_is_not_counted():
    busy = level([0.0, 1.0, math.nan], [2.0, 3.0, 9.0], [4, 2, 100])
    assert busy.times_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert busy.values.tolist() == [4, 6, 2, 0]
    assert busy.max() == 6


def test_of_nothing_there_is_nothing_at_any_time():
    empty = level([], [])
    assert (empty.max(), empty.at(3.0), empty.mean(0.0, 1.0)) == (0, 0, 0.0)


_spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=12)


@given(_spans)
def test_a_queue_is_what_a_count_at_every_second_gives(spans):
    submit = [float(begin) for begin, _ in spans]
    start = [float(begin + wait) for begin, wait in spans]
    queue = queue_length(submit, start)
    counted = [
        sum(a <= second < b for a, b in zip(submit, start, strict=True)) for second in range(41)
    ]
    assert [queue.at(second) for second in range(41)] == counted
    assert queue.mean(0.0, 41.0) == pytest.approx(sum(counted) / 41)
    assert queue.max() == max(counted)


def test_users_have_the_mean_of_their_jobs_and_nobody_is_no_user():
    assert user_means(["ann", None, "bob", "ann"], [1.0, 99.0, 4.0, 3.0]) == {
        "ann": 2.0,
        "bob": 4.0,
    }
    assert user_means([None], [1.0]) == {}
