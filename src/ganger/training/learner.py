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
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ganger import streams
from ganger.errors import CheckpointError, TrainingError
from ganger.policy.layout import aligned_zeros, initial_critic, initial_vector
from ganger.policy.network import Critic, PolicyNetwork
from ganger.training.backend import (
    Backend,
    CompiledBackend,
    TorchBackend,
    Wanted,
    Weighting,
)
from ganger.training.cells import Cells
from ganger.training.config import LearningConfig, TrainConfig
from ganger.training.samples import ActorTrajectory, Samples
from ganger.training.vtrace import vtrace

_NORMALISER_DECAY = 0.9
_SMALLEST_SCALE = 1e-3
_FIRST_UPDATE = 3  # random streams before it initialise networks
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

    def __init__(
        self, config: TrainConfig, cells: Cells, vector: NDArray[np.float32] | None = None
    ) -> None:
        """`vector`: the policy to start from, else a new one."""
        self.config: LearningConfig = config.learning
        self.cells = cells
        if vector is None:
            rng = streams.rng(config.seed, streams.Stream.LEARNER)
            vector = initial_vector(rng, config.messages)
        critic_vector = initial_critic(streams.rng(config.seed, streams.Stream.LEARNER, 2))
        self._seed = config.seed
        # One flat vector of all that is learned: one tensor for the optimiser.
        flat = aligned_zeros(len(vector) + len(critic_vector))
        flat[: len(vector)] = vector
        flat[len(vector) :] = critic_vector
        self.policy = PolicyNetwork(flat[: len(vector)], messages=config.messages)
        self.critic = Critic(flat[len(vector) :])
        gradient = aligned_zeros(len(flat))
        self._parameters = torch.nn.Parameter(torch.from_numpy(flat))
        self._parameters.grad = torch.from_numpy(gradient)
        backend = TorchBackend if config.messages else CompiledBackend
        self._backend: Backend = backend(self.policy, self.critic, gradient)
        self.optimiser = torch.optim.Adam(
            [self._parameters], lr=self.config.learning_rate, fused=True
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
        shape = samples.log_probability.shape
        log_p, normalised = self._backend.look(samples)
        value = torch.from_numpy(normalised.reshape(shape)) * self.critic.scale + self.critic.mean
        start = log_p.reshape(shape)[:, :-1]
        log_rho = torch.from_numpy((start - samples.log_probability[:, :-1]).T)
        targets, advantage = self._targets(samples, value, log_rho)
        explained = 1 - (targets - value[:, :-1].reshape(-1)).var() / targets.var().clamp(min=1e-12)
        self._normalise(targets)
        goal = ((targets - self.critic.mean) / self.critic.scale).numpy()
        start = np.ascontiguousarray(start).reshape(-1)

        made = samples.made
        sums = np.zeros(5)
        steps = 0
        stopped_early = False
        # Each update has a stream of its own: a resumed run draws the same, and stores nothing.
        rng = streams.rng(self._seed, streams.Stream.LEARNER, _FIRST_UPDATE + self._updates)
        for _ in range(config.epochs):
            order = rng.permutation(len(made))
            for part in np.array_split(order, max(1, round(len(order) / config.minibatch))):
                wanted = Wanted(advantage[part], goal[part], start[part])
                weighting = Weighting(config.clip, config.value_weight, entropy_weight)
                losses = self._backend.gradients(samples, made[part], wanted, weighting)
                norm = torch.nn.utils.clip_grad_norm_([self._parameters], config.gradient_clip)
                losses = np.append(losses, float(norm))
                if not np.isfinite(losses).all():
                    raise self._not_finite(losses, samples, made[part])
                self.optimiser.step()
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

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that learning goes on from, by name: what a checkpoint holds."""
        adam = self.optimiser.state.get(self._parameters)
        moments = np.zeros((2, len(self._parameters)), np.float32)
        steps = 0.0
        if adam:  # there is none before the first step
            moments[0], moments[1] = adam["exp_avg"].numpy(), adam["exp_avg_sq"].numpy()
            steps = float(adam["step"])
        return {
            "policy": self.policy.vector(),
            "critic": self.critic.vector(),
            "critic_scale": np.array([self.critic.mean, self.critic.scale]),
            "adam_moments": moments,
            "adam_steps": np.array(steps),
            "normaliser": np.array([self._value_mean, self._value_square, self._updates]),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave, to the bit.

        Raises:
            CheckpointError: if something is missing or is another learner's.
        """
        own = self.state()
        for name, array in own.items():
            given = state.get(name)
            if given is None or (given.dtype, given.shape) != (array.dtype, array.shape):
                found = "is absent" if given is None else f"is {given.dtype}{list(given.shape)}"
                raise CheckpointError(
                    f"tensor {name!r} {found}; expected {array.dtype}{list(array.shape)}"
                )
        self.policy.flat[:] = state["policy"]
        self.restore_critic(state)
        moments = torch.from_numpy(state["adam_moments"])
        self.optimiser.state[self._parameters] = {
            "step": torch.tensor(float(state["adam_steps"]), dtype=torch.float32),
            "exp_avg": torch.empty_like(self._parameters).copy_(moments[0]),
            "exp_avg_sq": torch.empty_like(self._parameters).copy_(moments[1]),
        }
        self._value_mean, self._value_square, updates = state["normaliser"].tolist()
        self._updates = int(updates)

    def restore_critic(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take only the critic: what fine-tuning starts from."""
        self.critic.flat[:] = state["critic"]
        self.critic.mean, self.critic.scale = state["critic_scale"].tolist()

    def close(self) -> None:
        """End its threads."""
        self._backend.close()

    def _targets(
        self, samples: Samples, value: Tensor, log_rho: Tensor
    ) -> tuple[Tensor, NDArray[np.float32]]:
        """Goals of the value and normalised advantages of the decisions made, each [N x T]."""
        cells, of = self.cells, samples.cells
        elapsed_s = torch.from_numpy(samples.elapsed_s[:, :-1].T)
        done = torch.from_numpy(samples.done[:, :-1].T).float()
        targets = vtrace(
            log_rho,
            reward=torch.from_numpy((-samples.cost[:, :-1] / cells.cost_unit[of, None]).T),
            discount=(-elapsed_s / torch.from_numpy(cells.discount_time_s[of])).exp() * (1 - done),
            value=value[:, :-1].T,
            bootstrap_value=value[:, -1],
            lambda_=(-elapsed_s / torch.from_numpy(cells.lambda_time_s[of])).exp(),
            rho_bar=self.config.rho_bar,
            c_bar=self.config.c_bar,
        )
        advantage = targets.advantages.T.numpy().copy()
        for cell in np.unique(of):  # no cell drowns another
            own = advantage[of == cell]
            advantage[of == cell] = (own - own.mean()) / (own.std() + 1e-6)
        return targets.targets.T.reshape(-1), advantage.reshape(-1)

    def _not_finite(
        self, losses: NDArray[np.float64], samples: Samples, index: NDArray[np.int64]
    ) -> NonFiniteError:
        batch = samples.gather(index)
        return NonFiniteError(
            f"a loss is not finite after {self._updates} updates (policy {losses[0]}, "
            f"value {losses[1]}, gradient {losses[4]}); lower the learning rate",
            {name: getattr(batch, name) for name in batch.FIELDS},
        )

    def _normalise(self, target: Tensor) -> None:
        """Follow the targets' mean and scale; what the critic says does not change."""
        decay = _NORMALISER_DECAY if self._updates else 0.0
        self._value_mean = decay * self._value_mean + (1 - decay) * float(target.mean())
        square = float((target * target).mean())
        self._value_square = decay * self._value_square + (1 - decay) * square
        variance = max(self._value_square - self._value_mean**2, 0.0)
        self.critic.renormalise(self._value_mean, variance**0.5 + _SMALLEST_SCALE)


def _geometric(first: float, last: float, progress: float) -> float:
    """From `first` to `last` by equal ratios."""
    if first <= 0 or last <= 0:
        return first + (last - first) * progress
    return float(first * (last / first) ** progress)
