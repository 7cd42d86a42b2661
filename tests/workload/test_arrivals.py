import numpy as np
import pytest

from ganger import streams
from ganger.workload import draw_job_list

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
