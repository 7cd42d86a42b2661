"""The policy and the critic in torch: the reference for `forward.py`, and what the learner trains.

Decisions are packed without padding: S stage rows, J job rows, B decisions; see
`training/samples.py`. Weights are [inputs, outputs], laid out by `layout.py`.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import leaky_relu_

from ganger.policy.features import JOB_WIDTH, POLICY_GLOBALS
from ganger.policy.forward import MASKED
from ganger.policy.layout import (
    EMBEDDING,
    JOB_SUM_SCALE,
    LEVELS,
    MESSAGE_SCALE,
    SLOPE,
    Block,
    blocks,
    critic_blocks,
)

_MASKED = float(MASKED)


class TorchBatch(NamedTuple):
    """A minibatch as tensors that share its memory; shapes as in `Minibatch`."""

    stages: Tensor
    stage_job: Tensor
    stage_decision: Tensor
    stage_slot: Tensor
    stage_choice: Tensor
    stage_height: Tensor
    edges: Tensor
    jobs: Tensor
    job_decision: Tensor
    globals: Tensor
    chosen: Tensor
    level: Tensor
    level_features: Tensor
    level_decision: Tensor
    level_slot: Tensor

    @classmethod
    def of(cls, minibatch: Any, device: torch.device | str = "cpu") -> "TorchBatch":
        """The tensors of a minibatch."""
        return cls(
            **{name: torch.from_numpy(getattr(minibatch, name)).to(device) for name in cls._fields}
        )


class PolicyOutput(NamedTuple):
    """What the policy says about the decisions of a batch, each [B]."""

    log_probability: Tensor  # of the chosen stage and limit, jointly
    entropy: Tensor
    squared_offset: Tensor  # of stages and limits: (log sum exp of the logits)^2


def _leaky(x: Tensor) -> Tensor:
    """In place: `x` must be a fresh sum. Half the memory traffic, which is what a step costs."""
    return leaky_relu_(x, SLOPE)


def _entropy(log_p: Tensor) -> Tensor:
    # exp() of a masked -1e30 is twenty times slower than of -60, and as good as zero either way.
    log_p = log_p.clamp(min=-60)
    return -(log_p.exp() * log_p).sum(1)


class _FlatModule(nn.Module):
    """A module whose parameters are views of one flat vector, which is shared, not copied."""

    def __init__(self, vector: NDArray[np.float32], placed: tuple[Block, ...]) -> None:
        super().__init__()
        self.flat = vector
        for block in placed:
            view = torch.from_numpy(vector[block.start : block.stop].reshape(block.shape))
            self.register_parameter(block.name, nn.Parameter(view))

    def __getattr__(self, name: str) -> Any:  # torch's own says Tensor or Module
        return super().__getattr__(name)

    def vector(self) -> NDArray[np.float32]:
        """A copy of the parameters as one flat vector."""
        return np.concatenate([self.flat])


class PolicyNetwork(_FlatModule):
    """The policy."""

    def __init__(self, vector: NDArray[np.float32], *, messages: bool) -> None:
        super().__init__(vector, blocks(messages))
        self.messages = messages

    def forward(self, batch: TorchBatch) -> PolicyOutput:
        logits, job_embedding, whole, message = self.stage_logits(batch)
        count = len(batch.globals)
        slots = int(batch.stage_slot.max()) + 1
        padded = logits.new_full((count, slots), _MASKED)
        padded = padded.index_put((batch.stage_decision, batch.stage_slot), logits)
        stage_log_p = padded.log_softmax(1)
        chosen_slot = batch.stage_slot[batch.chosen]
        levels = self.limit_logits(batch, job_embedding, whole, message)
        level_log_p = levels.log_softmax(1)
        log_probability = (
            stage_log_p.gather(1, chosen_slot[:, None])
            + level_log_p.gather(1, batch.level[:, None])
        ).squeeze(1)
        return PolicyOutput(
            log_probability,
            _entropy(stage_log_p) + _entropy(level_log_p),
            padded.logsumexp(1) ** 2 + levels.logsumexp(1) ** 2,
        )

    def stage_logits(self, batch: TorchBatch) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Logits [S], embeddings of jobs [J, .] and whole clusters [B, .], messages [S, .]."""
        message = self._messages(batch) if self.messages else None
        jobs = batch.jobs[:, :JOB_WIDTH]
        hidden = torch.addmm(self.job_1_bias, jobs, self.job_1)
        if message is not None:
            gathered = message.new_zeros(len(batch.jobs), message.shape[1])
            gathered = gathered.index_add(0, batch.stage_job, message) * MESSAGE_SCALE
            hidden = torch.addmm(hidden, gathered, self.job_1_messages)
        embedding = _leaky(torch.addmm(self.job_2_bias, _leaky(hidden), self.job_2))
        total = embedding.new_zeros(len(batch.globals), EMBEDDING)
        total = total.index_add(0, batch.job_decision, embedding) * JOB_SUM_SCALE
        seen = batch.globals[:, :POLICY_GLOBALS]
        hidden = torch.addmm(self.whole_1_bias, seen, self.whole_1)
        hidden = _leaky(torch.addmm(hidden, total, self.whole_1_jobs))
        whole = _leaky(torch.addmm(self.whole_2_bias, hidden, self.whole_2))

        of_whole = torch.addmm(self.stage_1_bias, whole, self.stage_1_whole)
        of_job = torch.addmm(of_whole[batch.job_decision], jobs, self.stage_1_job)
        of_job = torch.addmm(of_job, embedding, self.stage_1_embedding)
        hidden = torch.addmm(of_job[batch.stage_job], batch.stages, self.stage_1_stage)
        if message is not None:
            hidden = torch.addmm(hidden, message, self.stage_1_message)
        hidden = _leaky(torch.addmm(self.stage_2_bias, _leaky(hidden), self.stage_2))
        logits = hidden @ self.stage_3
        if message is not None:
            logits = logits.masked_fill(~batch.stage_choice, _MASKED)
        return logits, embedding, whole, message

    def limit_logits(
        self, batch: TorchBatch, embedding: Tensor, whole: Tensor, message: Tensor | None
    ) -> Tensor:
        """Logits [B, LEVELS] of the limits for the chosen stages."""
        job = batch.stage_job[batch.chosen]
        hidden = torch.addmm(self.limit_1_bias, whole, self.limit_1_whole)
        hidden = torch.addmm(hidden, batch.jobs[job, :JOB_WIDTH], self.limit_1_job)
        hidden = torch.addmm(hidden, embedding[job], self.limit_1_embedding)
        hidden = torch.addmm(hidden, batch.stages[batch.chosen], self.limit_1_stage)
        if message is not None:
            hidden = torch.addmm(hidden, message[batch.chosen], self.limit_1_message)
        base = torch.addmm(self.limit_2_bias, _leaky(hidden), self.limit_2)
        of_level = base[batch.level_decision]
        of_level = _leaky(torch.addmm(of_level, batch.level_features, self.limit_2_level))
        padded = base.new_full((len(base), LEVELS), _MASKED)
        place = (batch.level_decision, batch.level_slot)
        return padded.index_put(place, of_level @ self.limit_3)

    def _messages(self, batch: TorchBatch) -> Tensor:
        own = _leaky(torch.addmm(self.message_in_bias, batch.stages, self.message_in))
        parent, child = batch.edges[:, 0], batch.edges[:, 1]
        edge_height = batch.stage_height[parent]
        for height in range(1, int(batch.stage_height.max()) + 1):
            edges = (edge_height == height).nonzero().squeeze(1)
            children = child[edges]
            parents, of_edge = parent[edges].unique(return_inverse=True)
            sent = _leaky(torch.addmm(self.message_send_bias, own[children], self.message_send))
            total = own.new_zeros(len(parents), own.shape[1]).index_add(0, of_edge, sent)
            merged = _leaky(torch.addmm(self.message_merge_bias, total, self.message_merge))
            own = own.index_add(0, parents, merged)
        return own


class Critic(_FlatModule):
    """The value of a state, in training only: it also sees the arrivals to come.

    Its output is normalised; `mean` and `scale` turn it into (negative, discounted) costs.
    """

    def __init__(self, vector: NDArray[np.float32]) -> None:
        super().__init__(vector, critic_blocks())
        self.mean, self.scale = 0.0, 1.0

    def forward(self, batch: TorchBatch) -> Tensor:
        """Normalised values [B]."""
        hidden = _leaky(torch.addmm(self.critic_job_1_bias, batch.jobs, self.critic_job_1))
        embedding = _leaky(torch.addmm(self.critic_job_2_bias, hidden, self.critic_job_2))
        total = embedding.new_zeros(len(batch.globals), EMBEDDING)
        total = total.index_add(0, batch.job_decision, embedding) * JOB_SUM_SCALE
        hidden = torch.addmm(self.critic_1_bias, total, self.critic_1_jobs)
        hidden = _leaky(torch.addmm(hidden, batch.globals, self.critic_1))
        hidden = _leaky(torch.addmm(self.critic_2_bias, hidden, self.critic_2))
        values: Tensor = hidden @ self.critic_3 + self.critic_3_bias
        return values

    def value(self, batch: TorchBatch) -> Tensor:
        """Values [B] in the reward's unit."""
        return self.forward(batch) * self.scale + self.mean

    @torch.no_grad()
    def renormalise(self, mean: float, scale: float) -> None:
        """Change the normalisation without changing what the critic says (PopArt).

        Source: van Hasselt et al. 2016, arXiv:1602.07714.
        """
        self.critic_3 *= self.scale / scale
        self.critic_3_bias.copy_((self.critic_3_bias * self.scale + self.mean - mean) / scale)
        self.mean, self.scale = mean, scale
