"""Minibatches are what a naive gathering gives, from one trajectory or several."""

import numpy as np
import pytest
import toys

from ganger.policy.forward import write_level
from ganger.policy.layout import LEVEL_WIDTH, LEVELS, initial_vector
from ganger.policy.minibatch import Minibatch
from ganger.training.exchange import Parameters
from ganger.training.samples import Samples

both = pytest.mark.parametrize("messages", [False, True])


def trajectories(messages, count, steps=12):
    vector = initial_vector(np.random.default_rng(0), messages)
    return [
        toys.actor(
            messages=messages, seed=seed, environments=2 + seed, steps=steps, executors=30
        ).act(Parameters(vector, 0)).samples
        for seed in range(count)
    ]  # fmt: skip


def decision(parts, d):
    """Rows of decision d, straight from the trajectory that holds it."""
    for part in parts:
        count = len(part.rows.on_offer)
        if d < count:
            rows, made = part.rows, part.decisions
            s = slice(rows.stage_pointer[d], rows.stage_pointer[d + 1])
            j = slice(rows.job_pointer[d], rows.job_pointer[d + 1])
            e = slice(rows.edge_pointer[d], rows.edge_pointer[d + 1])
            levels = part.levels[d // (part.steps + 1)]
            return rows, s, j, e, int(made.chosen[d]), int(made.level[d]), levels, d
        d -= count
    raise IndexError


def naive(parts, index):
    found = {name: [] for name in Minibatch.FIELDS}
    stages = jobs = 0
    for b, d in enumerate(index):
        rows, s, j, e, chosen, level, levels, k = decision(parts, int(d))
        count = s.stop - s.start
        heights = [0] * count
        edges = rows.edges[e].tolist()
        for _ in range(count):
            for parent, child in edges:
                heights[parent] = max(heights[parent], heights[child] + 1)
        found["stages"] += rows.stages[s].tolist()
        found["stage_job"] += (rows.stage_job[s] + jobs).tolist()
        found["stage_decision"] += [b] * count
        found["stage_slot"] += range(count)
        found["stage_choice"] += (rows.stage_choice[s] != 0).tolist()
        found["stage_height"] += heights
        found["edges"] += [[parent + stages, child + stages] for parent, child in edges]
        found["jobs"] += rows.jobs[j].tolist()
        found["job_decision"] += [b] * (j.stop - j.start)
        found["globals"].append(rows.globals[k].tolist())
        found["chosen"].append(stages + chosen)
        found["level"].append(level)
        row = s.start + chosen
        own = rows.job_own[j.start + rows.stage_job[row]]
        for slot in range(LEVELS):
            x = np.zeros(LEVEL_WIDTH, np.float32)
            if write_level(
                levels,
                slot,
                own,
                rows.stage_demand[row],
                rows.on_offer[k],
                rows.executors[k],
                x,
            ):
                found["level_features"].append(x.tolist())
                found["level_decision"].append(b)
                found["level_slot"].append(slot)
        stages += count
        jobs += j.stop - j.start
    return found


@both
@pytest.mark.parametrize("count", [1, 3])
def test_gathering_equals_a_naive_gathering(messages, count):
    parts = trajectories(messages, count)
    samples = Samples(parts)
    total = sum(len(part.rows.on_offer) for part in parts)
    rng = np.random.default_rng(1)
    for index in (
        np.arange(total),
        samples.made,
        rng.permutation(samples.made)[:17],
        np.array([3, 3, 0]),
    ):
        batch = samples.gather(index)
        expected = naive(parts, index)
        for name, (dtype, dimensions) in Minibatch.FIELDS.items():
            wanted = np.array(expected[name], dtype)
            if dimensions == 2:
                wanted = wanted.reshape(-1, getattr(batch, name).shape[1])
            np.testing.assert_array_equal(getattr(batch, name), wanted, err_msg=name)


def test_the_decision_taken_is_among_the_legal_limits():
    samples = Samples(trajectories(False, 2))
    batch = samples.gather(samples.made)
    legal = set(zip(batch.level_decision.tolist(), batch.level_slot.tolist(), strict=True))
    assert all((b, level) in legal for b, level in enumerate(batch.level.tolist()))


def test_only_decisions_that_were_made_are_learned_from():
    samples = Samples(trajectories(False, 2, steps=5))
    assert samples.environments == 2 + 3
    assert len(samples.made) == 5 * 5
    assert not set(samples.made.tolist()) & set(range(5, 30, 6))
    assert samples.cost.shape == (5, 6)


def test_trajectories_of_different_lengths_are_refused():
    parts = trajectories(False, 1) + trajectories(False, 1, steps=3)
    with pytest.raises(ValueError, match="different lengths"):
        Samples(parts)
