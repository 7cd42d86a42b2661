"""A drift score is quiet at home and rings when the load or the jobs change."""

import msgspec
import numpy as np
import pytest

from ganger.policy.layout import initial_vector
from ganger.simulator.table import build_table
from ganger.training.config import TrainConfig
from ganger.training.drift import calibrated, windows_seen
from ganger.workload import Pool, synthetic_stages

CONFIG = TrainConfig(executors=10, jobs=50, interarrival_s=180.0)


def stages(scale):
    def longer(stage):
        values = tuple(value * scale for value in durations_of(stage))
        return msgspec.structs.replace(stage, durations=Pool(values), estimated_task_s=None)

    return [tuple(longer(stage) for stage in synthetic_stages(0, i)) for i in range(40)]


def durations_of(stage):
    durations = stage.durations
    if hasattr(durations, "values_s"):
        return durations.values_s
    return tuple(v for level in durations.levels for v in (*level.first_s, *level.rest_s))


@pytest.fixture(scope="module")
def home():
    vector = initial_vector(np.random.default_rng(0), False)
    table = build_table(stages(1.0))
    return vector, table, calibrated(CONFIG, table, vector)


def test_it_is_quiet_on_its_own_workload(home):
    vector, table, drift = home
    scores = np.concatenate(
        [drift.scores(windows_seen(CONFIG, table, vector, stream=s)) for s in (7, 8, 9)]
    )
    assert len(scores) > 250
    assert (scores > 1).mean() <= 0.01


def test_it_rings_when_arrivals_double(home):
    vector, table, drift = home
    busier = msgspec.structs.replace(CONFIG, interarrival_s=CONFIG.interarrival_s / 2)
    scores = drift.scores(windows_seen(busier, table, vector, stream=10))
    assert (scores > 1).mean() > 0.3


def test_it_rings_when_jobs_grow_tenfold(home):
    vector, _, drift = home
    scores = drift.scores(windows_seen(CONFIG, build_table(stages(10.0)), vector, stream=9))
    assert (scores > 1).mean() > 0.9


def test_a_score_survives_being_written_and_read(home):
    drift = home[2]
    assert msgspec.json.decode(msgspec.json.encode(drift), type=type(drift)) == drift
