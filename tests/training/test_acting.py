"""Acting: every decision is recorded, costs add up, and nothing depends on the size of buffers."""

import numpy as np
import pytest
import toys

from ganger.policy.features import Rows
from ganger.policy.layout import initial_vector, limit_levels
from ganger.training.acting import Decisions, new_decisions
from ganger.training.exchange import Parameters

both = pytest.mark.parametrize("messages", [False, True])


def parameters(messages=False, seed=0):
    return Parameters(initial_vector(np.random.default_rng(seed), messages), 0)


def arrays_of(trajectory):
    """All that was recorded, without the spare room."""
    rows, decisions = trajectory.rows, trajectory.decisions
    ends = {
        "stage": rows.stage_pointer[-1], "job": rows.job_pointer[-1], "edge": rows.edge_pointer[-1]
    }  # fmt: skip
    found = {name: getattr(decisions, name) for name in Decisions.FIELDS if name != "episodes"}
    found["episodes"] = decisions.episodes[: decisions.cursor[2]]
    for name in Rows.FIELDS:
        end = None if name.endswith("pointer") else ends.get(name.split("_")[0].rstrip("s"))
        found[name] = getattr(rows, name)[:end]
    return found


def assert_same(first, second):
    first, second = arrays_of(first), arrays_of(second)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@both
def test_the_same_seed_acts_the_same_and_another_differs(messages):
    settings = {"messages": messages, "executors": 3, "environments": 4, "steps": 20}
    acted = [toys.actor(seed=seed, **settings) for seed in (1, 1, 2)]
    for _ in range(3):  # trajectories go on where the last one ended
        first, second, third = (a.act(parameters(messages)).samples for a in acted)
        assert_same(first, second)
        assert not np.array_equal(first.decisions.cost, third.decisions.cost)


@both
def test_the_first_guess_of_the_room_makes_no_difference(messages):
    settings = {"messages": messages, "executors": 3, "environments": 16, "steps": 200}
    ample, tight = toys.actor(**settings), toys.actor(**settings)
    ample._room = (100_000, 100_000, 100_000)
    tight._room = (1, 1, 1)
    assert_same(ample.act(parameters(messages)).samples, tight.act(parameters(messages)).samples)


def test_costs_of_an_episode_sum_to_its_job_seconds():
    acting = toys.actor(environments=4, steps=25, executors=2, seed=5)
    cost, episodes, elapsed = [[0.0] for _ in range(4)], 0, [0.0] * 4
    for _ in range(12):
        samples = acting.act(parameters()).samples
        d = samples.decisions
        finished = list(d.episodes[: d.cursor[2]])
        grid = (4, samples.steps + 1)
        costs, done = d.cost.reshape(grid), d.done.reshape(grid)
        by_environment = [[e for e in finished if e["environment"] == i] for i in range(4)]
        assert int(done.sum()) == len(finished)
        for i in range(4):
            for t in range(samples.steps):
                cost[i][-1] += float(costs[i, t])
                elapsed[i] += float(d.elapsed_s.reshape(grid)[i, t])
                if done[i, t]:
                    ended = by_environment[i].pop(0)
                    assert cost[i][-1] == pytest.approx(ended["job_seconds"], rel=1e-5)
                    assert elapsed[i] * ended["jobs"] >= ended["job_seconds"] * (1 - 1e-5)
                    cost[i].append(0.0)
                    elapsed[i] = 0.0
                    episodes += 1
            assert not by_environment[i]
            assert done[i, -1] == 0, "the observation after the last decision ends nothing"
    assert episodes > 20


def test_first_episodes_differ_in_length_and_later_ones_have_all_jobs():
    acting = toys.actor(environments=8, steps=150)
    samples = acting.act(parameters()).samples
    finished = samples.decisions.episodes[: samples.decisions.cursor[2]]
    first = [next(int(e["jobs"]) for e in finished if e["environment"] == i) for i in range(8)]
    assert first == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {int(e["jobs"]) for e in finished if e["environment"] == 0} == {1, 8}


def test_every_decision_recorded_was_legal():
    acting = toys.actor(environments=4, steps=60, executors=40)
    samples = acting.act(parameters()).samples
    rows, d = samples.rows, samples.decisions
    levels = limit_levels(40)
    for k in range(4 * 61):
        if k % 61 == 60:
            continue
        row = rows.stage_pointer[k] + d.chosen[k]
        assert rows.stage_pointer[k] <= row < rows.stage_pointer[k + 1]
        assert rows.stage_choice[row] == 1
        assert levels[d.level[k]] > 0
        assert d.log_probability[k] <= 0
        assert rows.stage_demand[row] >= 1
        assert rows.on_offer[k] >= 1


def test_the_future_is_recorded_for_the_critic():
    acting = toys.actor(environments=8, steps=30)
    rows = acting.act(parameters()).samples.rows
    assert (rows.globals[:, 10] >= 0).all()
    assert rows.globals[:, 10].max() > 0


def test_room_for_decisions_is_exact():
    decisions = new_decisions(3, 7)
    assert len(decisions.chosen) == 3 * 8
    assert len(decisions.episodes) >= 3 * 7
