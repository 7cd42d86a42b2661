"""How the learner computes: compiled code on all cores, or torch.

Both write the gradient of one minibatch into the same flat vector, policy first, then critic; see
`policy/gradient.py` for the loss. Torch does what the compiled code leaves out (message passing)
and is its reference.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ganger.evaluation.episodes import usable_cores
from ganger.policy.forward import weights_of
from ganger.policy.gradient import (
    LARGEST_CHANGE,
    LARGEST_ERROR,
    LARGEST_RATIO,
    OFFSET_WEIGHT,
    Desk,
    critic_weights_of,
    gradients,
    look,
    new_transposed,
    transpose,
)
from ganger.policy.layout import Block, blocks, critic_blocks
from ganger.policy.network import Critic, PolicyNetwork, TorchBatch
from ganger.training.samples import Samples

_CHUNKS = 8  # of a minibatch; fixed, so that sums are the same whatever the number of threads
_LOOK = 1024  # decisions of one task without gradients


class Wanted(NamedTuple):
    """What a minibatch is to learn, each [decisions] float32."""

    advantage: NDArray[np.float32]
    goal: NDArray[np.float32]  # of the value, normalised
    start: NDArray[np.float32]  # log-probability that ratios are taken against
    weight: NDArray[np.float32]  # its share of the policy that ratios are taken against


class Weighting(NamedTuple):
    """The loss's constants."""

    clip: float
    value: float
    entropy: float


class Backend(Protocol):
    """The learner's arithmetic."""

    def look(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Log-probabilities and normalised values of all decisions, each flat."""

    def gradients(
        self, samples: Samples, index: NDArray[np.int64], wanted: Wanted, weighting: Weighting
    ) -> NDArray[np.float64]:
        """Write the gradient of the loss over the decisions `index`.

        Returns:
            Means over them: policy loss, value loss, entropy, KL divergence from the start.
        """

    def close(self) -> None:
        """End its threads."""


class CompiledBackend:
    """Compiled, in as many threads as there are cores."""

    def __init__(
        self,
        policy: PolicyNetwork,
        critic: Critic,
        gradient: NDArray[np.float32],
        threads: int | None = None,
    ) -> None:
        self._weights = weights_of(policy.flat, False)
        self._critic = critic_weights_of(critic.flat)
        self._transposed = new_transposed()
        self._gradient = gradient
        split = len(policy.flat)
        self._parts = np.zeros((_CHUNKS, len(gradient)), np.float32)
        self._gradients = [
            (weights_of(part[:split], False), critic_weights_of(part[split:]))
            for part in self._parts
        ]
        self._threads = threads or usable_cores()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="learner")
        self._desks: list[Desk] = []

    def look(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Log-probabilities and normalised values of all decisions, each flat."""
        self._make_room(samples)
        total = samples.log_probability.size
        parts = [np.arange(at, min(at + _LOOK, total)) for at in range(0, total, _LOOK)]
        out = [np.empty((2, len(part)), np.float32) for part in parts]

        def work(k: int) -> None:
            desk = self._desks.pop()  # popping and appending are atomic
            look(
                self._weights,
                self._critic,
                samples.rows,
                samples.chosen,
                samples.level,
                samples.levels,
                samples.steps + 1,
                parts[k],
                desk.minibatch,
                desk.work,
                out[k],
            )
            self._desks.append(desk)

        list(self._pool.map(work, range(len(parts))))
        log_p, value = np.concatenate(out, axis=1)
        return log_p, value

    def gradients(
        self, samples: Samples, index: NDArray[np.int64], wanted: Wanted, weighting: Weighting
    ) -> NDArray[np.float64]:
        """Write the gradient of the loss over the decisions `index`; returns means."""
        transpose(self._weights, self._critic, self._transposed)
        settings = np.array([1 / len(index), *weighting], np.float32)
        wants = np.stack(wanted)
        sums = np.zeros((_CHUNKS, 4))
        edges = np.linspace(0, len(index), _CHUNKS + 1).astype(np.int64)

        def work(k: int) -> None:
            chunk = slice(edges[k], edges[k + 1])
            desk = self._desks.pop()
            self._parts[k] = 0
            policy_gradient, critic_gradient = self._gradients[k]
            gradients(
                self._weights,
                self._critic,
                self._transposed,
                samples.rows,
                samples.chosen,
                samples.level,
                samples.levels,
                samples.steps + 1,
                index[chunk],
                np.ascontiguousarray(wants[:, chunk]),
                settings,
                desk.minibatch,
                desk.work,
                policy_gradient,
                critic_gradient,
                sums[k],
            )
            self._desks.append(desk)

        list(self._pool.map(work, range(_CHUNKS)))
        np.sum(self._parts, axis=0, out=self._gradient)
        means: NDArray[np.float64] = sums.sum(0) / len(index)
        return means

    def close(self) -> None:
        """End its threads."""
        self._pool.shutdown()

    def _make_room(self, samples: Samples) -> None:
        stages = int(np.diff(samples.rows.stage_pointer).max())
        jobs = int(np.diff(samples.rows.job_pointer).max())
        if not self._desks or not self._desks[0].holds(stages, jobs):
            self._desks = [Desk(stages, jobs) for _ in range(self._threads)]


class TorchBackend:
    """Autograd, in one thread, on the CPU or on a GPU."""

    def __init__(
        self,
        policy: PolicyNetwork,
        critic: Critic,
        gradient: NDArray[np.float32],
        device: str = "cpu",
    ) -> None:
        self._gradient, self._device = gradient, device
        split = len(policy.flat)
        self._policy = _Elsewhere(policy, blocks(policy.messages), gradient[:split], device)
        self._critic = _Elsewhere(critic, critic_blocks(), gradient[split:], device)

    @torch.no_grad()
    def look(self, samples: Samples) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Log-probabilities and normalised values of all decisions, each flat."""
        policy, critic = self._policy.renewed(), self._critic.renewed()
        total = samples.log_probability.size
        log_p, value = np.zeros(total, np.float32), np.zeros(total, np.float32)
        for first in range(0, total, _LOOK):
            index = np.arange(first, min(first + _LOOK, total))
            batch = TorchBatch.of(samples.gather(index), self._device)
            log_p[index] = policy(batch).log_probability.cpu().numpy()
            value[index] = critic(batch).cpu().numpy()
        return log_p, value

    def gradients(
        self, samples: Samples, index: NDArray[np.int64], wanted: Wanted, weighting: Weighting
    ) -> NDArray[np.float64]:
        """Write the gradient of the loss over the decisions `index`; returns means."""
        policy, critic = self._policy.renewed(), self._critic.renewed()
        batch = TorchBatch.of(samples.gather(index), self._device)
        advantage, goal, start, weight = (
            torch.from_numpy(array).to(self._device) for array in wanted
        )
        output = policy(batch)
        change = (output.log_probability - start).clamp(max=LARGEST_CHANGE)
        ratio = change.exp()
        held = ratio.clamp(1 - weighting.clip, 1 + weighting.clip)
        gain = torch.min(ratio * advantage, held * advantage)
        gain = torch.where(advantage < 0, gain.clamp(min=LARGEST_RATIO * advantage), gain)
        policy_loss = -gain.mean()
        value_loss = (critic(batch) - goal).pow(2).clamp(max=LARGEST_ERROR).mean()
        entropy = output.entropy.mean()
        loss = policy_loss + weighting.value * value_loss - weighting.entropy * entropy
        loss = loss + OFFSET_WEIGHT * output.squared_offset.mean()
        loss.backward()
        self._policy.hand_over()
        self._critic.hand_over()
        kl = (weight * (ratio - 1 - change)).mean()
        means: NDArray[np.float64] = (
            torch.stack([policy_loss, value_loss, entropy, kl]).detach().double().cpu().numpy()
        )
        return means

    def close(self) -> None:
        """It has no threads."""


class _Elsewhere:
    """A module's copy on a device: weights go there, and gradients come back, in one piece."""

    def __init__(
        self,
        module: PolicyNetwork | Critic,
        placed: tuple[Block, ...],
        gradient: NDArray[np.float32],
        device: str,
    ) -> None:
        self._flat, self._gradient = torch.from_numpy(module.flat), torch.from_numpy(gradient)
        self._weights = torch.zeros(len(self._flat), device=device)
        self._gradients = torch.zeros(len(self._flat), device=device)
        self._copy = copy.deepcopy(module)
        for block in placed:
            at = slice(block.start, block.stop)
            parameter = torch.nn.Parameter(self._weights[at].view(block.shape))
            parameter.grad = self._gradients[at].view(block.shape)
            self._copy.register_parameter(block.name, parameter)

    def renewed(self) -> Any:
        """The copy with the module's weights of now, its gradients zero."""
        self._weights.copy_(self._flat)
        self._gradients.zero_()
        return self._copy

    def hand_over(self) -> None:
        """Write its gradients where the module's belong."""
        self._gradient.copy_(self._gradients)
