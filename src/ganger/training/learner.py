"""The learner: a copy of the policy that only learns, from whatever decisions arrive.

V-trace targets inside a trust region. The decisions were made by older parameters (the behaviour
policy). The learner recomputes their log-probabilities and values with its own parameters, cuts the
importance weights in a time-aware lambda-return (Espeholt et al. 2018, arXiv:1802.01561), and clips
the policy's step against the parameters it started from (decoupled PPO: Hilton et al. 2022,
arXiv:2110.00641). Discount and lambda run in continuous time, exp(-dt / tau).
"""

import contextlib
import ctypes
import logging
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
from ganger.training.group import Alone, Group, agreed
from ganger.training.samples import ActorTrajectory, Samples
from ganger.training.vtrace import vtrace

_log = logging.getLogger(__name__)

_NORMALISER_DECAY = 0.9
_SMALLEST_SCALE = 1e-3
_LOSSES = 4  # policy, value, entropy, KL
UNDONE_IN_A_ROW = 5
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
        self,
        config: TrainConfig,
        cells: Cells,
        vector: NDArray[np.float32] | None = None,
        threads: int | None = None,
    ) -> None:
        """`vector`: the policy to start from, else a new one. `threads`: to compute with."""
        self.config: LearningConfig = config.learning
        self.cells = cells
        self.group: Group = Alone()
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
        # The losses follow the gradient, so that learners add up both at once.
        self._sums = aligned_zeros(len(flat) + _LOSSES)
        self._gradient = self._sums[: len(flat)]
        self._parameters = torch.nn.Parameter(torch.from_numpy(flat))
        self._parameters.grad = torch.from_numpy(self._gradient)
        self._backend: Backend = (
            TorchBackend(self.policy, self.critic, self._gradient, config.device)
            if config.messages or config.device != "cpu"
            else CompiledBackend(self.policy, self.critic, self._gradient, threads)
        )
        self.optimiser = torch.optim.Adam(
            [self._parameters], lr=self.config.learning_rate, fused=True
        )
        self._value_mean, self._value_square, self._updates = 0.0, 0.0, 0
        self._undone = 0  # the last updates, in a row

    @property
    def updates(self) -> int:
        """How many it has made."""
        return self._updates

    def update(self, trajectories: list[ActorTrajectory], progress: float) -> dict[str, float]:
        """Learn from these trajectories; `progress` in [0, 1] places the schedules.

        In a group all learners call this, each with as many decisions of its own, and all end with
        the same parameters: those of one learner that had all the decisions, in minibatches as
        large as theirs together.

        Returns:
            What happened, by name. Losses are the group's; importance weights, explained variance
            and cost rate are of its own decisions.

        An update in which something is not finite is undone: the parameters are those before it,
        and `undone` is 1. That is one in thousands, where a policy that is nearly sure of all it
        does meets a decision that it deemed impossible.

        Raises:
            NonFiniteError: if what is to be learned is not finite, or after too many updates in a
                row that were undone; the parameters are then unusable.
            GroupError: if another learner is gone; likewise.
        """
        before = self.state()
        begin = time.perf_counter()
        config = self.config
        learning_rate = _geometric(config.learning_rate, config.final_learning_rate, progress)
        entropy_weight = _geometric(config.entropy_weight, config.final_entropy_weight, progress)
        for settings in self.optimiser.param_groups:
            settings["lr"] = learning_rate

        samples = Samples(trajectories)
        shape = samples.log_probability.shape
        log_p, normalised = self._backend.look(samples)
        value = torch.from_numpy(normalised.reshape(shape)) * self.critic.scale + self.critic.mean
        start = log_p.reshape(shape)[:, :-1]
        log_rho = torch.from_numpy((start - samples.log_probability[:, :-1]).T)
        rho = log_rho.exp().clamp(max=config.rho_bar)
        targets, advantage = self._targets(samples, value, log_rho, rho)
        weight = rho.T.reshape(-1).numpy()
        explained = 1 - (targets - value[:, :-1].reshape(-1)).var() / targets.var().clamp(min=1e-12)
        self._normalise(targets)
        goal = ((targets - self.critic.mean) / self.critic.scale).numpy()
        start = np.ascontiguousarray(start).reshape(-1)

        self._check_wanted(samples, advantage, goal)
        made, group = samples.made, self.group
        sums = np.zeros(_LOSSES + 1)
        steps = 0
        stopped_early = undone = False
        # Each update has a stream of its own: a resumed run draws the same, and stores nothing.
        rng = streams.rng(self._seed, streams.Stream.LEARNER, _FIRST_UPDATE + self._updates)
        for _ in range(config.epochs):
            # One order of the decisions of all learners: each computes what is its own of a part.
            order = rng.permutation(len(made) * group.size)
            at_once = config.minibatch * group.size
            for whole in np.array_split(order, max(1, round(len(order) / at_once))):
                part = whole[whole // len(made) == group.rank] % len(made)
                wanted = Wanted(advantage[part], goal[part], start[part], weight[part])
                weighting = Weighting(config.clip, config.value_weight, entropy_weight)
                losses = self._gradients(samples, part, wanted, weighting, len(whole))
                norm = torch.nn.utils.clip_grad_norm_([self._parameters], config.gradient_clip)
                losses = np.append(losses, float(norm))
                if not np.isfinite(losses).all():
                    undone = True
                    break
                self.optimiser.step()
                sums += losses
                steps += 1
            if undone or sums[3] / steps > config.kl_limit:
                stopped_early = True
                break
        updates = self._updates + 1
        self._undone = self._undone + 1 if undone else 0
        if self._undone > UNDONE_IN_A_ROW:
            raise self._not_finite(losses, samples, made[part])
        if undone:
            _log.warning("update %d was undone: gradient or loss not finite", updates)
            self.restore(before)
        self._updates = updates
        if not agreed(group, self._parameters.detach().numpy()):
            raise TrainingError(
                f"the learners' parameters differ after {self._updates} updates; they must run the "
                "same versions on machines of one kind"
            )
        policy_loss, value_loss, entropy, kl, gradient = sums / max(steps, 1)
        importance = log_rho.exp()
        return {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": kl,
            "gradient_norm": gradient,
            "explained_variance": float(explained),
            "importance_mean": float(importance.mean()),
            "importance_clipped": float((importance > config.rho_bar).float().mean()),
            "learning_rate": learning_rate,
            "entropy_weight": entropy_weight,
            "stopped_early": float(stopped_early),
            "undone": float(undone),
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

    def _gradients(
        self,
        samples: Samples,
        part: NDArray[np.int64],
        wanted: Wanted,
        weighting: Weighting,
        whole: int,
    ) -> NDArray[np.float64]:
        """The gradient of `whole` decisions of all learners, `part` of them its own; the losses."""
        if self.group.size == 1:
            return self._backend.gradients(samples, samples.made[part], wanted, weighting)
        self._sums[:] = 0
        if len(part):
            losses = self._backend.gradients(samples, samples.made[part], wanted, weighting)
            self._sums[-_LOSSES:] = losses
            self._sums *= np.float32(len(part) / whole)
        self.group.add_up(self._sums)
        return self._sums[-_LOSSES:].astype(np.float64)

    def _targets(
        self, samples: Samples, value: Tensor, log_rho: Tensor, rho: Tensor
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
        weight = rho.T.numpy()
        for cell in range(len(cells.executors)):  # no cell drowns another
            # An advantage is rho times what was better than expected, and so is its share of the
            # mean: else what the policy would never do again were pushed by the mean alone.
            sums = np.array([
                advantage[of == cell].sum(dtype=np.float64),
                weight[of == cell].sum(dtype=np.float64),
            ])  # fmt: skip
            self.group.add_up(sums)
            advantage[of == cell] -= weight[of == cell] * (sums[0] / max(sums[1], 1e-12))
            _, variance = self._moments(advantage[of == cell])
            advantage[of == cell] /= variance**0.5 + 1e-6
        return targets.targets.T.reshape(-1), advantage.reshape(-1)

    def _moments(self, own: NDArray[np.float32]) -> tuple[float, float]:
        """Mean and variance of what all learners have."""
        sums = np.array([own.size, own.sum(dtype=np.float64)])
        self.group.add_up(sums)
        count, mean = sums[0], sums[1] / max(sums[0], 1)
        squares = np.array([((own - mean) ** 2).sum(dtype=np.float64)])
        self.group.add_up(squares)
        return float(mean), float(squares[0] / max(count, 1))

    def _check_wanted(
        self, samples: Samples, advantage: NDArray[np.float32], goal: NDArray[np.float32]
    ) -> None:
        """All learners look, so that none waits for one that gave up."""
        bad = ~(np.isfinite(advantage) & np.isfinite(goal))
        found = np.array([float(bad.any())])
        self.group.largest(found)
        if found[0]:
            at = np.flatnonzero(bad)[:1] if bad.any() else np.zeros(1, np.int64)
            raise self._not_finite(np.full(_LOSSES + 1, np.nan), samples, samples.made[at])

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
        mean, of_update = self._moments(target.numpy())
        self._value_mean = decay * self._value_mean + (1 - decay) * mean
        self._value_square = decay * self._value_square + (1 - decay) * (of_update + mean**2)
        variance = max(self._value_square - self._value_mean**2, 0.0)
        self.critic.renormalise(self._value_mean, variance**0.5 + _SMALLEST_SCALE)


def _geometric(first: float, last: float, progress: float) -> float:
    """From `first` to `last` by equal ratios."""
    if first <= 0 or last <= 0:
        return first + (last - first) * progress
    return float(first * (last / first) ** progress)
