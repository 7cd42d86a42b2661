"""V-trace targets for off-policy actor-critic learning.

Source: Espeholt et al. 2018, arXiv:1802.01561, section 4.1, with the discount and lambda of every
step given as arrays: in continuous time both depend on how long the step took, exp(-dt / tau).
T is the trajectory length, B the batch size.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from ganger.errors import ConfigError


class ShapeError(TypeError):
    """Arrays that belong together disagree in shape."""


class VTrace(NamedTuple):
    """What the learner trains towards; each [T, B] and detached from the graph.

    Both advantages carry the importance weight of their own decision, rho_t, so a policy loss needs
    no other correction for what the actors did; it takes its ratio against the parameters that
    computed `log_rho`, not against the actors'. They differ in what follows the decision:

    `advantages` is the lambda-return's, rho_t (delta_t + discount_t lambda_t (v_{t+1} - V_{t+1})).
    On-policy it is GAE(lambda). It is the one for a clipped step with lambda below 1: the critic's
    own estimate of the next state stands in for the sampled future in the share 1 - lambda, which
    takes most of the noise of later arrivals and task times out of the gradient, and a clipped step
    that is taken for several epochs follows noise as readily as signal. The price is bias where
    the critic is wrong. With rho_bar = c_bar it is targets - value.

    `q_advantages` is the paper's, rho_t (r_t + discount_t v_{t+1} - V_t): all of the corrected
    future counts, whatever lambda. Less biased, noisier. At lambda = 1 the two are the same.
    """

    targets: Tensor
    """v_t, for the critic."""

    advantages: Tensor
    """rho_t times the lambda-return's advantage."""

    q_advantages: Tensor
    """rho_t times the one-step advantage over v_{t+1}."""


@torch.no_grad()
def vtrace(
    log_rho: Tensor,
    reward: Tensor,
    discount: Tensor,
    value: Tensor,
    bootstrap_value: Tensor,
    *,
    lambda_: Tensor | None = None,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> VTrace:
    """Compute V-trace targets and policy-gradient advantages.

    With rho_t = min(rho_bar, exp(log_rho_t)), c_t = min(c_bar, exp(log_rho_t)) and
    delta_t = r_t + discount_t V_{t+1} - V_t, the targets are

        v_t = V_t + rho_t delta_t + discount_t lambda_t c_t (v_{t+1} - V_{t+1}).

    A trajectory may hold several episodes. Where one terminates, discount is 0. Where one is
    truncated, the next row is another episode's, so the caller bootstraps in the reward:
    reward_t + exp(-dt / tau) V(the state it stopped in), and discount 0.

    Args:
        log_rho: log(target / behaviour probability), [T, B].
        reward: reward after each decision, [T, B].
        discount: per-step discount; 0 where an episode ends, [T, B].
        value: the learner's value estimates, [T, B].
        bootstrap_value: value after the last decision, [B].
        lambda_: how much of the trace each step passes on, [T, B]; None for 1.
        rho_bar: largest importance weight in the target; lower is more biased, steadier.
        c_bar: largest weight with which a step passes on what came later; lower forgets sooner.

    Returns:
        Targets and advantages, each [T, B], detached from the graph.

    Raises:
        ShapeError: if the leading dimensions disagree.
        ConfigError: if rho_bar or c_bar is negative or not a number.
    """
    if value.ndim != 2 or not len(value):
        raise ShapeError(f"value is {list(value.shape)}; expected [T, B] with T of 1 or more")
    for name, tensor in (
        ("log_rho", log_rho),
        ("reward", reward),
        ("discount", discount),
        ("lambda_", value if lambda_ is None else lambda_),
    ):
        if tensor.shape != value.shape:
            raise ShapeError(f"{name} is {list(tensor.shape)}; value is {list(value.shape)}")
    if bootstrap_value.shape != value.shape[1:]:
        raise ShapeError(
            f"bootstrap_value is {list(bootstrap_value.shape)}; expected {list(value.shape[1:])}"
        )
    for name, bar in (("rho_bar", rho_bar), ("c_bar", c_bar)):
        if not bar >= 0:
            raise ConfigError(f"{name} is {bar}; expected 0 or more")

    weight = log_rho.exp()
    rho = weight.clamp(max=rho_bar)
    delta = reward + discount * torch.cat([value[1:], bootstrap_value[None]]) - value
    passed_on = discount if lambda_ is None else discount * lambda_

    # correction_t = v_t - V_t, from the last step to the first; 0 after the trajectory's end.
    correction = torch.zeros_like(value[0])
    corrections = [correction]
    steps = zip((rho * delta).unbind(), (passed_on * weight.clamp(max=c_bar)).unbind(), strict=True)
    for own, decay in reversed(list(steps)):
        correction = torch.addcmul(own, decay, correction)
        corrections.append(correction)
    corrections.reverse()
    later = torch.stack(corrections[1:])

    return VTrace(
        targets=value + torch.stack(corrections[:-1]),
        advantages=rho * (delta + passed_on * later),
        q_advantages=rho * (delta + discount * later),
    )
