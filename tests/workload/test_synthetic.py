import subprocess
import sys

import numpy as np
import pytest

from ganger.errors import WorkloadError
from ganger.workload import (
    Job,
    SyntheticConfig,
    Workload,
    synthetic_stages,
    task_estimate_s,
    topological_order,
    work_s,
)

COUNT = 2000


@pytest.fixture(scope="module")
def jobs():
    return [synthetic_stages(0, index) for index in range(COUNT)]


def depth(stages):
    levels = {}
    for stage in stages:
        levels[stage.id] = 1 + max((levels[parent] for parent in stage.parents), default=0)
    return max(levels.values())


def test_jobs_are_valid_and_list_parents_first(jobs):
    Workload(tuple(Job(id=str(i), arrival_s=0.0, stages=stages) for i, stages in enumerate(jobs)))
    assert all(topological_order(stages) == tuple(range(len(stages))) for stages in jobs)


def test_the_shape_resembles_tpch_on_spark(jobs):
    counts = [len(stages) for stages in jobs]
    assert (min(counts), max(counts)) == (2, 18)
    assert np.mean(counts) == pytest.approx(9, abs=0.4)
    depths = [depth(stages) for stages in jobs]
    assert (min(depths), max(depths)) == (2, 9)
    tasks = [stage.task_count for stages in jobs for stage in stages]
    assert min(tasks) == 1
    assert np.median(tasks) == 200
    assert max(tasks) > 200
    assert sum(tasks) / COUNT == pytest.approx(1155, rel=0.05)
    # A query plan ends in one stage.
    for stages in jobs:
        parents = {parent for stage in stages for parent in stage.parents}
        assert [stage.id for stage in stages if stage.id not in parents] == [stages[-1].id]


def test_work_is_as_heavy_tailed_as_tpch_on_spark(jobs):
    work = np.sort([work_s(stages) for stages in jobs])[::-1]
    assert np.median(work) == pytest.approx(546, rel=0.08)
    assert np.mean(work) == pytest.approx(935, rel=0.08)
    assert 6500 < work[0] < 7601
    assert 0.6 < work[: int(0.23 * COUNT)].sum() / work.sum() < 0.8


def test_first_tasks_are_slower_fresh_ones_slower_still_and_more_executors_slow_all(jobs):
    for stages in jobs[:300]:
        for stage in stages:
            means = np.array(
                [
                    [np.mean(wave.fresh_s), np.mean(wave.first_s), np.mean(wave.rest_s)]
                    for wave in stage.durations.levels
                ]
            )
            assert (means[:, 0] > means[:, 1]).all()
            assert (means[:, 1] > means[:, 2]).all()
            assert (np.diff(means, axis=0) > 0).all()


def test_the_estimate_is_the_mean_task_over_the_levels(jobs):
    for stage in jobs[0]:
        means = []
        for wave in stage.durations.levels:
            first = min(wave.executors, stage.task_count)
            rest = stage.task_count - first
            total = first * np.mean(wave.first_s) + rest * np.mean(wave.rest_s)
            means.append(total / stage.task_count)
        assert task_estimate_s(stage) == pytest.approx(np.mean(means), abs=1e-5)


def test_a_job_depends_on_seed_and_index_only(jobs):
    assert synthetic_stages(0, 1234) == jobs[1234]
    assert synthetic_stages(0, 1) != synthetic_stages(1, 1) != synthetic_stages(1, 0)
    assert len({str(stages) for stages in jobs[:200]}) == 200


def test_a_job_is_the_same_in_another_process():
    script = "from ganger.workload import synthetic_stages as s; print(s(3, 7))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "NUMBA_DISABLE_JIT": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert printed == [str(synthetic_stages(3, 7))] * 2


def test_a_setting_changes_the_jobs():
    config = SyntheticConfig(stages_min=3, stages_max=3, shuffle_tasks=7, tasks_max=8)
    for index in range(50):
        stages = synthetic_stages(0, index, config)
        assert len(stages) == 3
        assert max(stage.task_count for stage in stages) <= 20


def test_negative_seeds_and_indices_are_refused():
    with pytest.raises(WorkloadError, match="seed -1"):
        synthetic_stages(-1, 0)
