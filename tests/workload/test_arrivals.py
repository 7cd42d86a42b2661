import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger import streams
from ganger.workload.arrivals import copy_window, draw_job_list, draw_window, window_starts

# Compiled and uncompiled alike, on every machine.
TEMPLATES = [132, 59, 94, 32, 68, 140]
ARRIVALS = [
    "0x0.0p+0",
    "0x1.148eca875f187p+3",
    "0x1.261009455f1d2p+5",
    "0x1.a6661ffc8309ap+5",
    "0x1.cab93e027ba56p+5",
    "0x1.09a75fa8fb254p+7",
]


def draw(key, jobs, mean_s=25.0, templates=154):
    template = np.full(jobs, -1, np.int32)
    arrival_s = np.full(jobs, -1.0)
    draw_job_list(key, jobs, mean_s, templates, template, arrival_s)
    return template, arrival_s


@pytest.fixture
def key():
    return streams.key(0, streams.Stream.JOB_LIST)


@pytest.mark.uncompiled
def test_a_list_is_what_it_always_was(key):
    template, arrival_s = draw(key, 6)
    assert template.tolist() == TEMPLATES
    assert [value.hex() for value in arrival_s.tolist()] == ARRIVALS


def test_arrivals_are_poisson_and_templates_uniform(key):
    template, arrival_s = draw(key, 50_000, templates=10)
    gaps = np.diff(arrival_s)
    assert arrival_s[0] == 0.0
    assert gaps.min() > 0.0
    assert gaps.mean() == pytest.approx(25.0, rel=0.02)
    assert gaps.std() == pytest.approx(25.0, rel=0.03)
    # An exponential gap exceeds its mean with probability 1 / e.
    assert (gaps > 25.0).mean() == pytest.approx(0.3679, abs=0.01)
    assert np.bincount(template, minlength=10) / 50_000 == pytest.approx(0.1, abs=0.01)
    assert abs(np.corrcoef(gaps, template[1:])[0, 1]) < 0.02


def test_a_longer_list_begins_like_a_shorter_one(key):
    short, long = draw(key, 10), draw(key, 100)
    assert np.array_equal(short[0], long[0][:10])
    assert np.array_equal(short[1], long[1][:10])


def test_a_mean_of_zero_lets_all_jobs_arrive_at_once(key):
    assert not draw(key, 10, mean_s=0.0)[1].any()


# --- windows of a log

LOG = (np.arange(20, dtype=np.int32)[::-1].copy(), np.arange(20.0) ** 2)


@pytest.mark.uncompiled
def test_a_window_is_so_many_jobs_in_a_row_with_the_times_between_them():
    template, arrival_s = np.full(3, -1, np.int32), np.full(3, -1.0)
    copy_window(4, 3, *LOG, template, arrival_s)
    assert template.tolist() == [15, 14, 13]
    assert arrival_s.tolist() == [0.0, 25.0 - 16.0, 36.0 - 16.0]


@pytest.mark.uncompiled
def test_drawn_windows_begin_anywhere_and_end_within_the_log():
    template, arrival_s = np.full(18, -1, np.int32), np.full(18, -1.0)
    firsts = set()
    for index in range(40):
        draw_window(streams.key(0, streams.Stream.ACTOR, index), 18, *LOG, template, arrival_s)
        assert np.array_equal(np.diff(template), [-1] * 17)
        assert arrival_s[0] == 0.0
        firsts.add(19 - int(template[0]))
    assert firsts == {0, 1, 2}


@given(count=st.integers(0, 300), jobs=st.integers(1, 40))
def test_fixed_windows_share_no_job_and_the_first_few_are_spread_evenly(count, jobs):
    starts = window_starts(count, jobs)
    assert len(starts) == count // jobs
    covered = [first + k for first in starts for k in range(jobs)]
    assert len(set(covered)) == len(covered)
    assert all(0 <= job < count for job in covered)
    if len(starts) >= 8:
        assert np.diff(sorted(starts[:4])).min() >= len(starts) // 4 * jobs
