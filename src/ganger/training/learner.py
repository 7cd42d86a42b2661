"""The learner: a copy of the policy that only learns, from whatever decisions arrive.

V-trace targets inside a trust region. The decisions were made by older parameters (the behaviour
policy). The learner recomputes their log-probabilities and values with its own parameters, cuts the
importance weights in a time-aware lambda-return (Espeholt et al. 2018, arXiv:1802.01561), and clips
the policy's step against the parameters it started from (decoupled PPO: Hilton et al. 2022,
arXiv:2110.00641). Discount and lambda run in continuous time, exp(-dt / tau).
"""

import contextlib
import ctypes
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ganger import streams
from ganger.errors import ConfigError, TrainingError
from ganger.policy.layout import initial_vector
from ganger.policy.network import Critic, PolicyNetwork, TorchBatch
from ganger.training.config import LearningConfig, TrainConfig
from ganger.training.samples import ActorTrajectory, Samples
from ganger.training.vtrace import vtrace

_RECOMPUTE = 2048  # decisions in one forward pass without gradients
_NORMALISER_DECAY = 0.9
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from malloc.h


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed memory instead of returning it to the system at once.

    A gradient step allocates the same megabytes again and again; without this a sixth of the
    learner's time goes to the system zeroing fresh pages. Other systems' allocators are left alone.
    """
    with contextlib.suppress(OSError, AttributeError):
        c_library = ctypes.CDLL("libc.so.6")
        c_library.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        c_library.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


class NonFiniteError(TrainingError):
    """A loss is not finite. `tensors` is the batch that made it so."""

    def __init__(self, message: str, tensors: dict[str, NDArray[Any]]) -> None:
        super().__init__(message)
        self.tensors = tensors


class Learner:
    """Policy, critic and optimiser."""

    def __init__(self, config: TrainConfig, vector: NDArray[np.float32] | None = None) -> None:
        self.config: LearningConfig = config.learning
        discount_time_s, lambda_time_s = self.config.discount_time_s, self.config.lambda_time_s
        if discount_time_s is None or lambda_time_s is None:
            raise ConfigError(
                "the learner needs discount_time_s and lambda_time_s: see with_horizon"
            )
        self._discount_time_s, self._lambda_time_s = discount_time_s, lambda_time_s
        if vector is None:
            rng = streams.rng(config.seed, streams.Stream.LEARNER)
            vector = initial_vector(rng, config.messages)
        self._rng = streams.rng(config.seed, streams.Stream.LEARNER, 1)
        self.policy = PolicyNetwork(vector, messages=config.messages)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(streams.key(config.seed, streams.Stream.LEARNER, 2) >> 1))
            self.critic = Critic()
        self._parameters = [*self.policy.parameters(), *self.critic.parameters()]
        self.optimiser = torch.optim.Adam(
            self._parameters, lr=self.config.learning_rate, fused=True
        )
        self._value_mean, self._value_square, self._updates = 0.0, 0.0, 0

    def update(self, trajectories: list[ActorTrajectory], progress: float) -> dict[str, float]:
        """Learn from these trajectories; `progress` in [0, 1] places the schedules.

        Returns:
            What happened, by name.

        Raises:
            NonFiniteError: if a loss is not finite; the parameters are then unusable.
        """
        begin = time.perf_counter()
        config = self.config
        learning_rate = _geometric(config.learning_rate, config.final_learning_rate, progress)
        entropy_weight = _geometric(config.entropy_weight, config.final_entropy_weight, progress)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate

        samples = Samples(trajectories)
        log_p, value = self._recompute(samples)
        elapsed_s = torch.from_numpy(samples.elapsed_s[:, :-1].T)
        log_rho = (log_p[:, :-1] - torch.from_numpy(samples.log_probability[:, :-1])).T
        targets = vtrace(
            log_rho,
            reward=torch.from_numpy(-samples.cost[:, :-1].T),
            discount=(-elapsed_s / self._discount_time_s).exp()
            * (1 - torch.from_numpy(samples.done[:, :-1].T).float()),
            value=value[:, :-1].T,
            bootstrap_value=value[:, -1],
            lambda_=(-elapsed_s / self._lambda_time_s).exp(),
            rho_bar=config.rho_bar,
            c_bar=config.c_bar,
        )
        target = targets.targets.T.reshape(-1)
        advantage = targets.advantages.T.reshape(-1)
        explained = 1 - (target - value[:, :-1].reshape(-1)).var() / target.var().clamp(min=1e-12)
        self._normalise(target)
        goal = (target - self.critic.mean) / self.critic.scale
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        start_log_p = log_p[:, :-1].reshape(-1)

        made = samples.made
        sums = np.zeros(5)
        steps = 0
        stopped_early = False
        for _ in range(config.epochs):
            order = self._rng.permutation(len(made))
            for part in np.array_split(order, max(1, round(len(order) / config.minibatch))):
                batch = TorchBatch.of(samples.gather(made[part]))
                taken = torch.from_numpy(part)
                losses = self._step(
                    batch, advantage[taken], goal[taken], start_log_p[taken], entropy_weight
                )
                if not np.isfinite(losses).all():
                    raise NonFiniteError(
                        f"a loss is not finite after {self._updates} updates (policy {losses[0]}, "
                        f"value {losses[1]}, gradient {losses[4]}); lower the learning rate",
                        {name: np.asarray(tensor) for name, tensor in batch._asdict().items()},
                    )
                sums += losses
                steps += 1
            if sums[3] / steps > config.kl_limit:
                stopped_early = True
                break
        self._updates += 1
        policy_loss, value_loss, entropy, kl, gradient = sums / steps
        rho = log_rho.exp()
        return {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": kl,
            "gradient_norm": gradient,
            "explained_variance": float(explained),
            "importance_mean": float(rho.mean()),
            "importance_clipped": float((rho > config.rho_bar).float().mean()),
            "learning_rate": learning_rate,
            "entropy_weight": entropy_weight,
            "stopped_early": float(stopped_early),
            "cost_rate": float(samples.cost.sum() / max(samples.elapsed_s.sum(), 1e-9)),
            "update_s": time.perf_counter() - begin,
        }

    @torch.no_grad()
    def _recompute(self, samples: Samples) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values under the present parameters, each [N, T + 1]."""
        shape = samples.log_probability.shape
        total = shape[0] * shape[1]
        log_p, value = torch.zeros(total), torch.zeros(total)
        # The observations that only bootstrap have no action; they stand for one (stage 0, level 0)
        # whose log-probability nobody reads.
        for first in range(0, total, _RECOMPUTE):
            index = np.arange(first, min(first + _RECOMPUTE, total))
            batch = TorchBatch.of(samples.gather(index))
            log_p[first : first + len(index)] = self.policy(batch).log_probability
            value[first : first + len(index)] = self.critic.value(batch)
        return log_p.view(shape), value.view(shape)

    def _normalise(self, target: Tensor) -> None:
        """Follow the targets' mean and scale; what the critic says does not change."""
        decay = _NORMALISER_DECAY if self._updates else 0.0
        self._value_mean = decay * self._value_mean + (1 - decay) * float(target.mean())
        square = float((target * target).mean())
        self._value_square = decay * self._value_square + (1 - decay) * square
        variance = max(self._value_square - self._value_mean**2, 0.0)
        self.critic.renormalise(self._value_mean, variance**0.5 + 1e-3)

    def _step(
        self,
        batch: TorchBatch,
        advantage: Tensor,
        goal: Tensor,
        start_log_p: Tensor,
        entropy_weight: float,
    ) -> NDArray[np.float64]:
        """One gradient step: policy loss, value loss, entropy, KL from the start, gradient norm."""
        config = self.config
        output = self.policy(batch)
        change = output.log_probability - start_log_p
        ratio = change.exp()
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()
        value_loss = (self.critic(batch) - goal).pow(2).clamp(max=25).mean()
        entropy = output.entropy.mean()
        loss = policy_loss + config.value_weight * value_loss - entropy_weight * entropy
        self.optimiser.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._parameters, config.gradient_clip)
        self.optimiser.step()
        kl = (ratio - 1 - change).mean()
        return torch.stack([policy_loss, value_loss, entropy, kl, norm]).detach().double().numpy()


def _geometric(first: float, last: float, progress: float) -> float:
    """From `first` to `last` by equal ratios."""
    if first <= 0 or last <= 0:
        return first + (last - first) * progress
    return float(first * (last / first) ** progress)
