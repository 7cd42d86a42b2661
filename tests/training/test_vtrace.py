"""V-trace against its definition, and what follows from it."""

import pytest
import torch

from ganger.errors import ConfigError
from ganger.training.vtrace import ShapeError, vtrace


def random_trajectory(steps=9, batch=4, seed=0):
    """Everything vtrace takes, in float64, with some episodes ending on the way."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    ends = uniform(steps, batch) < 0.15
    return {
        "log_rho": 2 * uniform(steps, batch) - 1,
        "reward": 2 * uniform(steps, batch) - 1,
        "discount": uniform(steps, batch) * ~ends,
        "value": 4 * uniform(steps, batch) - 2,
        "bootstrap_value": 4 * uniform(batch) - 2,
        "lambda_": uniform(steps, batch),
    }


def by_definition(
    log_rho, reward, discount, value, bootstrap_value, *, lambda_, rho_bar=1.0, c_bar=1.0
):
    """The sum of the paper's equation (1), term by term: O(T^2)."""
    steps, batch = value.shape
    targets = torch.empty_like(value)
    for b in range(batch):
        values = [*value[:, b].tolist(), float(bootstrap_value[b])]
        weight = log_rho[:, b].exp().tolist()
        for s in range(steps):
            target = values[s]
            for t in range(s, steps):
                term = min(rho_bar, weight[t]) * (
                    float(reward[t, b]) + float(discount[t, b]) * values[t + 1] - values[t]
                )
                for i in range(s, t):
                    term *= float(discount[i, b]) * float(lambda_[i, b]) * min(c_bar, weight[i])
                target += term
            targets[s, b] = target
    return targets


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (1.5, 0.8), (0.7, 2.0), (9.0, 9.0)])
@pytest.mark.parametrize("seed", range(3))
def test_targets_are_those_of_the_definition(rho_bar, c_bar, seed):
    trajectory = random_trajectory(seed=seed)

    result = vtrace(**trajectory, rho_bar=rho_bar, c_bar=c_bar)

    expected = by_definition(**trajectory, rho_bar=rho_bar, c_bar=c_bar)
    torch.testing.assert_close(result.targets, expected, rtol=1e-12, atol=1e-12)


def test_lambda_left_out_is_1():
    trajectory = random_trajectory()
    lambda_ = torch.ones_like(trajectory.pop("lambda_"))

    for left_out, given in zip(
        vtrace(**trajectory), vtrace(**trajectory, lambda_=lambda_), strict=True
    ):
        torch.testing.assert_close(left_out, given, rtol=0, atol=0)


def test_a_step_checked_by_hand():
    # rho = min(1, 2) = 1: delta_1 = 1 + 0.5 * 4 - 2 = 1, so v_1 = 3.
    # rho = c = 0.5: delta_0 = 3 + 0.5 * 2 - 1 = 3,
    # so v_0 = 1 + 0.5 * 3 + 0.5 * 0.8 * 0.5 * (v_1 - V_1) = 2.7.
    result = vtrace(
        log_rho=torch.tensor([[0.5], [2.0]]).log(),
        reward=torch.tensor([[3.0], [1.0]]),
        discount=torch.tensor([[0.5], [0.5]]),
        value=torch.tensor([[1.0], [2.0]]),
        bootstrap_value=torch.tensor([4.0]),
        lambda_=torch.full((2, 1), 0.8),
    )

    torch.testing.assert_close(result.targets, torch.tensor([[2.7], [3.0]]))
    # 0.5 * (delta_0 + 0.5 * 0.8 * (v_1 - V_1)) and 0.5 * (delta_0 + 0.5 * (v_1 - V_1))
    torch.testing.assert_close(result.advantages, torch.tensor([[1.7], [1.0]]))
    torch.testing.assert_close(result.q_advantages, torch.tensor([[1.75], [1.0]]))


def test_on_policy_targets_are_n_step_returns():
    trajectory = random_trajectory()
    trajectory["log_rho"] = torch.zeros_like(trajectory["log_rho"])
    del trajectory["lambda_"]

    ahead = trajectory["bootstrap_value"]
    for t in reversed(range(len(trajectory["reward"]))):
        ahead = trajectory["reward"][t] + trajectory["discount"][t] * ahead
        torch.testing.assert_close(vtrace(**trajectory).targets[t], ahead)


def test_on_policy_advantages_are_gae():
    trajectory = random_trajectory()
    trajectory["log_rho"] = torch.zeros_like(trajectory["log_rho"])
    values = torch.cat([trajectory["value"], trajectory["bootstrap_value"][None]])

    result = vtrace(**trajectory)

    gae = torch.zeros_like(values[0])
    for t in reversed(range(len(values) - 1)):
        delta = trajectory["reward"][t] + trajectory["discount"][t] * values[t + 1] - values[t]
        gae = delta + trajectory["discount"][t] * trajectory["lambda_"][t] * gae
        torch.testing.assert_close(result.advantages[t], gae)


def test_with_equal_bars_the_advantage_is_the_targets_distance_from_the_value():
    trajectory = random_trajectory()

    result = vtrace(**trajectory, rho_bar=0.9, c_bar=0.9)

    torch.testing.assert_close(result.advantages, result.targets - trajectory["value"])


def test_at_lambda_1_both_advantages_are_the_papers():
    trajectory = random_trajectory()
    del trajectory["lambda_"]

    result = vtrace(**trajectory, rho_bar=2.0, c_bar=1.0)

    following = torch.cat([result.targets[1:], trajectory["bootstrap_value"][None]])
    rho = trajectory["log_rho"].exp().clamp(max=2.0)
    paper = rho * (trajectory["reward"] + trajectory["discount"] * following - trajectory["value"])
    torch.testing.assert_close(result.q_advantages, paper)
    torch.testing.assert_close(result.advantages, paper)


def test_a_termination_cuts_what_comes_after():
    trajectory = random_trajectory()
    trajectory["discount"][4] = 0
    before = vtrace(**trajectory)
    for name in ("log_rho", "reward", "value", "discount"):
        trajectory[name][5:] = -trajectory[name][5:] + 3

    after = vtrace(**trajectory)

    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one[:5], other[:5], rtol=0, atol=0)
    assert not torch.equal(before.targets[5:], after.targets[5:])


def test_the_end_of_a_trajectory_bootstraps_and_the_end_of_an_episode_does_not():
    step = {"log_rho": torch.zeros(1, 1), "reward": torch.ones(1, 1), "value": torch.zeros(1, 1)}

    truncated = vtrace(
        **step, discount=torch.full((1, 1), 0.5), bootstrap_value=torch.tensor([10.0])
    )
    terminated = vtrace(**step, discount=torch.zeros(1, 1), bootstrap_value=torch.tensor([10.0]))

    assert truncated.targets.item() == 1 + 0.5 * 10
    assert terminated.targets.item() == 1


def test_a_truncation_inside_a_trajectory_bootstraps_through_the_reward():
    first, second = random_trajectory(steps=5, seed=1), random_trajectory(steps=4, seed=2)
    alone = vtrace(**first)

    joined = concatenated(first, second)
    joined["reward"][4] += joined["discount"][4] * first["bootstrap_value"]
    joined["discount"][4] = 0

    for one, other in zip(alone, vtrace(**joined), strict=True):
        torch.testing.assert_close(other[:5], one)


def test_two_episodes_in_one_trajectory_equal_two_trajectories():
    first, second = random_trajectory(steps=5, seed=3), random_trajectory(steps=6, seed=4)
    first["discount"][4] = 0

    together = vtrace(**concatenated(first, second), rho_bar=1.2, c_bar=0.9)
    apart = [vtrace(**part, rho_bar=1.2, c_bar=0.9) for part in (first, second)]

    for joined, one, two in zip(together, *apart, strict=True):
        torch.testing.assert_close(joined, torch.cat([one, two]))


def test_on_policy_a_trajectory_split_at_its_own_target_gives_the_same_targets():
    whole = random_trajectory(steps=8)
    whole["log_rho"] = torch.zeros_like(whole["log_rho"])
    del whole["lambda_"]
    targets = vtrace(**whole).targets

    head = {name: whole[name][:3] for name in ("log_rho", "reward", "discount", "value")}

    torch.testing.assert_close(vtrace(**head, bootstrap_value=targets[3]).targets, targets[:3])


def test_columns_of_a_batch_do_not_meet():
    trajectory = random_trajectory(batch=3)
    alone = {name: tensor[..., 1:2] for name, tensor in trajectory.items()}

    for batch, column in zip(vtrace(**trajectory), vtrace(**alone), strict=True):
        torch.testing.assert_close(batch[:, 1:2], column, rtol=0, atol=0)


def test_rho_bar_0_leaves_the_values_and_no_gradient():
    trajectory = random_trajectory()

    result = vtrace(**trajectory, rho_bar=0.0)

    torch.testing.assert_close(result.targets, trajectory["value"], rtol=0, atol=0)
    assert not result.advantages.any()
    assert not result.q_advantages.any()


def test_c_bar_0_is_one_step_td():
    trajectory = random_trajectory()
    trajectory["log_rho"] = torch.zeros_like(trajectory["log_rho"])

    result = vtrace(**trajectory, c_bar=0.0)

    following = torch.cat([trajectory["value"][1:], trajectory["bootstrap_value"][None]])
    expected = trajectory["reward"] + trajectory["discount"] * following
    torch.testing.assert_close(result.targets, expected)


def test_infinite_bars_are_plain_importance_sampling():
    trajectory = random_trajectory()

    result = vtrace(**trajectory, rho_bar=float("inf"), c_bar=float("inf"))

    expected = by_definition(**trajectory, rho_bar=float("inf"), c_bar=float("inf"))
    torch.testing.assert_close(result.targets, expected)


def test_weights_beyond_the_bars_change_nothing():
    trajectory = random_trajectory()
    trajectory["log_rho"] = torch.full_like(trajectory["log_rho"], 0.1)
    near = vtrace(**trajectory)
    trajectory["log_rho"] = torch.full_like(trajectory["log_rho"], 1e9)  # exp overflows

    for one, other in zip(near, vtrace(**trajectory), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_an_action_the_policy_would_never_take_teaches_nothing():
    trajectory = random_trajectory()
    trajectory["log_rho"][3] = -float("inf")

    result = vtrace(**trajectory)

    torch.testing.assert_close(result.targets[3], trajectory["value"][3], rtol=0, atol=0)
    assert not result.advantages[3].any()


def test_nothing_is_attached_to_the_graph():
    trajectory = random_trajectory()
    trajectory["value"].requires_grad_()
    trajectory["log_rho"].requires_grad_()

    assert not any(tensor.requires_grad for tensor in vtrace(**trajectory))


@pytest.mark.parametrize("name", ["log_rho", "reward", "discount", "lambda_"])
def test_a_misshapen_array_is_refused_by_name(name):
    trajectory = random_trajectory()
    trajectory[name] = trajectory[name][:-1]

    with pytest.raises(ShapeError, match=rf"{name} is \[8, 4\]; value is \[9, 4\]"):
        vtrace(**trajectory)


def test_a_misshapen_bootstrap_or_value_is_refused():
    trajectory = random_trajectory()
    with pytest.raises(ShapeError, match=r"bootstrap_value is \[1\]; expected \[4\]"):
        vtrace(**trajectory | {"bootstrap_value": torch.zeros(1)})
    with pytest.raises(ShapeError, match="expected \\[T, B\\]"):
        vtrace(**trajectory | {"value": torch.zeros(9)})
    with pytest.raises(ShapeError, match="T of 1 or more"):
        vtrace(**trajectory | {"value": torch.zeros(0, 4)})


@pytest.mark.parametrize("bar", [-1.0, float("nan")])
def test_a_bar_that_is_no_bar_is_refused(bar):
    with pytest.raises(ConfigError, match=r"rho_bar is .*; expected 0 or more"):
        vtrace(**random_trajectory(), rho_bar=bar)
    with pytest.raises(ConfigError, match=r"c_bar is .*; expected 0 or more"):
        vtrace(**random_trajectory(), c_bar=bar)


def concatenated(first, second):
    joined = {
        name: torch.cat([first[name], second[name]])
        for name in ("log_rho", "reward", "discount", "value", "lambda_")
    }
    return joined | {"bootstrap_value": second["bootstrap_value"]}
