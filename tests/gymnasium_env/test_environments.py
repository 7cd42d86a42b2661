"""The Gymnasium environments: they keep to its interface, and their masks to the simulator."""

# ruff: noqa: E402  # without gymnasium, the other imports fail

import builtins
import sys

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium, of the extra gym, is absent")

import ganger.gym
from ganger.errors import ConfigError, GangerError, MissingExtraError, SimulationError
from ganger.gym import ENVIRONMENT_ID, ClusterEnv, ClusterVectorEnv
from ganger.policy.features import POLICY_GLOBALS
from ganger.schedulers import parse_scheduler
from ganger.simulator import engine
from ganger.workload import Job, Pool, Stage, Workload, write_workload

SMALL = {"executors": 5, "jobs": 4, "interarrival_s": 30.0, "max_stages": 40, "max_jobs": 4}


def random_action(info, rng):
    return rng.choice(np.flatnonzero(info["action_mask"]))


def steps(env, seed, limit=10**6):
    """(observation, reward, info) of an episode of random legal actions."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    seen, done = [(observation, 0.0, info)], False
    while not done and len(seen) < limit:
        observation, reward, done, truncated, info = env.step(random_action(info, rng))
        assert not truncated
        seen.append((observation, reward, info))
    return seen


def equal(a, b):
    return all(np.array_equal(a[name], b[name]) for name in a) and a.keys() == b.keys()


@pytest.mark.parametrize("setting", [{}, SMALL, SMALL | {"max_stages": 3, "max_jobs": 1}])
def test_gymnasium_finds_nothing_wrong(setting):
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(ENVIRONMENT_ID, render_mode="ansi", **setting)
    check_env(env.unwrapped)  # warnings are errors here
    assert ENVIRONMENT_ID.startswith("Ganger/Cluster-v")


def test_the_same_seed_gives_the_same_episodes_and_another_one_others():
    first, second = gymnasium.make(ENVIRONMENT_ID, **SMALL), ClusterEnv(**SMALL)
    a, b, other = steps(first, 3), steps(second, 3), steps(first, 4)
    assert len(a) == len(b)
    for (seen, reward, info), (seen_2, reward_2, info_2) in zip(a, b, strict=True):
        assert equal(seen, seen_2)
        assert reward == reward_2
        assert equal(info, info_2)
    assert a[-1][2]["mean_jct_s"] != other[-1][2]["mean_jct_s"]
    # The next episode of a seed is another one, and also the same every time.
    start, start_2 = first.reset(seed=3)[0], first.reset()[0]
    assert not equal(start, start_2)
    first.reset(seed=3)
    assert equal(first.reset()[0], start_2)


def test_the_return_is_minus_the_mean_job_completion_time():
    env = ClusterEnv(**SMALL)
    for seed in range(3):
        seen = steps(env, seed)
        total = sum(reward for _, reward, _ in seen)
        assert total == pytest.approx(-seen[-1][2]["mean_jct_s"])
        assert all(not part.any() for part in seen[-1][0].values())  # nothing is left to see


def test_another_scheduler_is_compared_on_the_same_jobs_with_the_same_luck():
    """An environment driven as fifo decides ends when fifo's own run of the episode does."""
    env = ClusterEnv(**(SMALL | {"jobs": 1, "max_jobs": 1}))
    _, info = env.reset(seed=0)
    expected = env.mean_jct_under(parse_scheduler("fifo"))
    done = False
    while not done:  # one job: the first stage, and all executors
        limits = len(env.limits)
        row = np.flatnonzero(info["action_mask"])[0] // limits
        legal = np.flatnonzero(info["action_mask"][row * limits : (row + 1) * limits])
        _, _, done, _, info = env.step(row * limits + legal[-1])
    assert env.mean_jct_under(parse_scheduler("fifo")) == expected
    assert info["mean_jct_s"] == pytest.approx(expected)


def test_masks_are_exact_and_both_forms_agree():
    """Legal: a stage that can be chosen, with a limit that gives more than any smaller one."""
    env = ClusterEnv(**SMALL)
    group, limits = env._group, env.limits
    state = group._states[0]
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    done = False
    while not done:
        mask = env.action_masks()
        assert mask.dtype == bool
        assert np.array_equal(mask, info["action_mask"])
        assert np.array_equal(mask, observation["action_mask"])
        offered = 0
        for row in range(env._group.setting.max_stages):
            legal = mask[row * len(limits) : (row + 1) * len(limits)]
            if row >= observation["counts"][0]:
                assert not legal.any()
                continue
            s = int(group._clusters.stage_index[0, row])
            if not engine.is_schedulable(state, s):
                assert not legal.any()
                continue
            offered += 1
            given = [int(engine.amount(state, s, int(limit))) for limit in limits]
            distinct = sorted(set(given))
            assert [given[k] for k in np.flatnonzero(legal)] == distinct, (given, legal)
        assert offered == state.clock[0]["schedulable"] - _chosen_in_this_round(state)
        before = int(state.clock[0]["decisions"])
        observation, _, done, _, info = env.step(random_action(info, rng))
        assert not info["masked_action"]
        assert state.clock[0]["decisions"] == before + 1
    assert not env.action_masks().any()


def _chosen_in_this_round(state):
    clock = state.clock[0]
    chosen = state.stages["chosen"][: clock["stages"]] == clock["scheduling_round"]
    able = (state.stages["saturated"] == 0) & (state.stages["unsaturated_parents"] == 0)
    return int((chosen & able[: clock["stages"]]).sum())


def test_the_graph_is_that_of_the_jobs():
    env = ClusterEnv(**SMALL)
    for observation, _, info in steps(env, 1):
        stages, jobs, edges = observation["counts"]
        assert info["hidden_stages"] == info["hidden_jobs"] == info["not_offered"] == 0
        assert (observation["stage_job"][:stages] < max(jobs, 1)).all()
        assert (np.diff(observation["stage_job"][:stages]) >= 0).all()  # jobs by arrival
        parent, child = observation["edges"][:edges].T
        assert (parent < child).all()
        assert (child < max(stages, 1)).all()
        assert np.array_equal(observation["stage_job"][parent], observation["stage_job"][child])
        # What a stage says of its children, as a third of their number, agrees with the edges.
        counted = np.bincount(parent, minlength=stages)[:stages] if stages else np.zeros(0)
        np.testing.assert_allclose(observation["stages"][:stages, 5], counted / 3, atol=1e-6)
        for name in ("stages", "jobs", "edges", "stage_job"):
            count = {"stages": stages, "jobs": jobs, "edges": edges, "stage_job": stages}[name]
            assert not observation[name][count:].any()
        assert observation["globals"].shape == (POLICY_GLOBALS,)  # nothing of the future


def test_more_than_fits_is_counted_and_something_can_always_be_chosen():
    env = ClusterEnv(**(SMALL | {"interarrival_s": 0.0, "max_stages": 2, "max_jobs": 1}))
    seen = steps(env, 0)
    assert "mean_jct_s" in seen[-1][2]
    assert seen[0][2]["hidden_jobs"] == 3
    assert seen[0][2]["hidden_stages"] > 0
    assert seen[0][2]["not_offered"] > 0
    for observation, _, info in seen[:-1]:
        assert info["action_mask"].any()
        assert observation in env.observation_space


def test_a_masked_action_is_replaced_by_the_first_legal_one_and_said_so():
    one, other = ClusterEnv(**SMALL), ClusterEnv(**SMALL)
    _, info = one.reset(seed=0)
    other.reset(seed=0)
    masked = int(np.flatnonzero(info["action_mask"] == 0)[-1])
    first = int(np.flatnonzero(info["action_mask"])[0])
    a, b = one.step(masked), other.step(first)
    assert equal(a[0], b[0])
    assert a[4]["masked_action"]
    assert not b[4]["masked_action"]


def test_a_vector_environment_does_what_single_ones_do_step_by_step():
    count, rng = 3, np.random.default_rng(0)
    vector = gymnasium.make_vec(ENVIRONMENT_ID, num_envs=count, **SMALL)
    single = gymnasium.make_vec(ENVIRONMENT_ID, count, vectorization_mode="sync", **SMALL)
    assert isinstance(vector.unwrapped, ClusterVectorEnv)
    assert vector.metadata["autoreset_mode"] == single.metadata["autoreset_mode"]
    assert vector.observation_space == single.observation_space
    assert vector.action_space == single.action_space
    (seen, info), (seen_2, info_2) = vector.reset(seed=5), single.reset(seed=5)
    ended = 0
    for _ in range(250):
        assert equal(seen, seen_2)
        assert equal(info, info_2)
        assert np.array_equal(vector.unwrapped.action_masks(), info["action_mask"])
        mask = info["action_mask"]
        actions = (rng.random(mask.shape) * mask).argmax(1)
        seen, reward, done, truncated, info = vector.step(actions)
        seen_2, reward_2, done_2, truncated_2, info_2 = single.step(actions)
        assert np.array_equal(reward, reward_2)
        assert np.array_equal(done, done_2)
        assert np.array_equal(truncated, truncated_2)
        ended += done.sum()
    assert ended > 3  # episodes were begun again, too


def test_trace_files_and_splits_are_drawn_from(tmp_path):
    path = tmp_path / "mine.jobs.jsonl"
    stages = [
        (Stage(id="x", task_count=tasks, durations=Pool((1.0,))),) for tasks in (1, 2, 3, 4, 50)
    ]
    jobs = [Job(id=str(i), arrival_s=float(i), stages=one) for i, one in enumerate(stages)]
    write_workload(path, Workload(tuple(jobs)))
    sizes = {}
    for split in ("train", "test"):
        env = ClusterEnv(workload=str(path), split=split, **SMALL)
        env.reset(seed=0)
        sizes[split] = set(env._group._states[0].stages["tasks"][:4].tolist())
    assert sizes["train"] <= {1, 2, 3, 4}
    assert sizes["test"] == {50}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"executors": 0}, "executors is 0; expected a whole number from 1"),
        ({"jobs": 2.5}, "jobs is 2.5"),
        ({"max_stages": 0}, "max_stages is 0"),
        ({"interarrival_s": -1.0}, "interarrival_s is -1.0"),
        ({"move_delay_s": -1.0}, "move_delay_s is -1.0"),
        ({"split": "some"}, "split is 'some'; expected one of train, test, all"),
        ({"workload": "nonsense"}, "workload 'nonsense' is unknown"),
        ({"speed": 3}, "setting 'speed' is unknown; there are workload, executors"),
        ({"render_mode": "human"}, "render_mode is 'human'"),
    ],
)
def test_a_wrong_setting_is_named(setting, message):
    for environment in (ClusterEnv, ClusterVectorEnv):
        with pytest.raises(GangerError, match=message):
            environment(**setting)


def test_wrong_calls_are_told_what_is_wrong():
    env, vector = ClusterEnv(**SMALL), ClusterVectorEnv(2, **SMALL)
    for one in (env, vector):
        with pytest.raises(gymnasium.error.ResetNeeded):
            one.step(0)
    env.reset(seed=0)
    for action in (-1, env.action_space.n, 0.5, [0, 1]):
        with pytest.raises(SimulationError, match="action"):
            env.step(action)
    vector.reset(seed=0)
    with pytest.raises(SimulationError, match="one whole number for each of 2 clusters"):
        vector.step(np.zeros(3, int))
    with pytest.raises(ConfigError, match="3 seeds for 2 clusters"):
        vector.reset(seed=[1, 2, 3])
    with pytest.raises(ConfigError, match="num_envs is 0"):
        ClusterVectorEnv(0)


def test_it_is_rendered_in_one_line():
    env = ClusterEnv(render_mode="ansi", **SMALL)
    env.reset(seed=0)
    line = "0.0 s: 1 jobs in the system, 0 of 4 finished, 5 of 5 executors on offer"
    assert env.render() == line


def test_without_gymnasium_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest):
        if name.split(".")[0] == "gymnasium":
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "ganger.gym")
    with pytest.raises(MissingExtraError, match=r"pip install 'ganger\[gym\]'"):
        __import__("ganger.gym")


def test_public_names_exist():
    for name in ganger.gym.__all__:
        assert getattr(ganger.gym, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = ganger.gym.nonsense


def test_maskable_ppo_takes_it():
    """A smoke test; that it learns is what benchmarks/gym_maskable_ppo.py shows."""
    pytest.importorskip("torch", reason="torch is absent")
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is absent")
    model = contrib.MaskablePPO(
        "MultiInputPolicy", ClusterEnv(**SMALL), n_steps=64, batch_size=32, n_epochs=1, seed=0
    )
    model.learn(64)
    env = ClusterEnv(**SMALL)
    observation, _ = env.reset(seed=0)
    action, _ = model.predict(observation, action_masks=env.action_masks())
    assert env.action_masks()[action]
