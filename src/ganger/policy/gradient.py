"""The learner's losses and their gradients, compiled. `network.py` with autograd is its reference.

A block of decisions at a time, so that everything a block needs stays in the processor's cache; no
graph, no tensors, no memory traffic between operations. Blocks are independent: several threads
work on them at once, without the GIL. Message passing is left to torch.

The loss of B decisions, each term a mean over them:

    -min(ratio x advantage, clip(ratio) x advantage)      ratio = exp(log p - start)
    or for an advantage below 0, 3 x -advantage, if that is less: else the few decisions whose
    probability rose a thousandfold would be all that a step is about (Ye et al. 2020,
    arXiv:1912.09729)
    + value_weight x min((value - goal)^2, 25)
    - entropy_weight x entropy
    + 0.0001 x (log sum exp of the stage logits)^2, and of the limit logits. Probabilities do not
    change when all logits rise together, so nothing else holds that: within a thousand updates
    noise drives them so far that float32 has no digits left for their differences (Chowdhery et
    al. 2022, arXiv:2204.02311)
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled, compiled_fast
from ganger.policy.features import JOB_WIDTH, STAGE_WIDTH
from ganger.policy.forward import (
    leaky,
    set_rows,
    to_embedding,
    to_hidden,
)
from ganger.policy.layout import (
    CRITIC,
    EMBEDDING,
    HIDDEN,
    JOB_SUM_SCALE,
    LEVELS,
    LIMIT_HIDDEN,
    SLOPE,
    critic_blocks,
)
from ganger.policy.minibatch import Minibatch, new_minibatch, pack
from ganger.structs import ArrayStruct

BLOCK = 32  # decisions
LARGEST_ERROR = 25.0  # squared, normalised: further away a value's error pulls no harder
LARGEST_RATIO = 3.0  # beyond, a decision that was worse than expected pulls no harder
LARGEST_CHANGE = 20.0  # of a log-probability, so that its exponential is a number
OFFSET_WEIGHT = 1e-4
_SLOPE = np.float32(SLOPE)
_SCALE = np.float32(JOB_SUM_SCALE)
_FIRST = np.int64(0)
_ZERO, _ONE = np.float32(0), np.float32(1)


class CriticWeights(ArrayStruct):
    """Views of the critic's flat vector, one for each of its blocks."""

    FIELDS: ClassVar = {name: (np.float32, len(shape)) for name, shape in CRITIC.items()}


def critic_weights_of(vector: NDArray[np.float32]) -> CriticWeights:
    """The blocks of the critic's flat vector, as views."""
    return CriticWeights(
        **{b.name: vector[b.start : b.stop].reshape(b.shape) for b in critic_blocks()}
    )


class Transposed(ArrayStruct):
    """Transposed weights, for the way back; written anew for every gradient step."""

    FIELDS: ClassVar = {
        "job_2": (np.float32, 2),
        "whole_1_jobs": (np.float32, 2),
        "whole_2": (np.float32, 2),
        "stage_1_embedding": (np.float32, 2),
        "stage_1_whole": (np.float32, 2),
        "stage_2": (np.float32, 2),
        "limit_1_embedding": (np.float32, 2),
        "limit_1_whole": (np.float32, 2),
        "limit_2": (np.float32, 2),
        "critic_job_2": (np.float32, 2),
        "critic_1_jobs": (np.float32, 2),
        "critic_2": (np.float32, 2),
    }


def new_transposed() -> Transposed:
    """Room for the transposed weights."""

    def room(outputs: int, inputs: int) -> NDArray[np.float32]:
        return np.zeros((outputs, inputs), np.float32)

    return Transposed(
        job_2=room(EMBEDDING, HIDDEN),
        whole_1_jobs=room(HIDDEN, EMBEDDING),
        whole_2=room(EMBEDDING, HIDDEN),
        stage_1_embedding=room(HIDDEN, EMBEDDING),
        stage_1_whole=room(HIDDEN, EMBEDDING),
        stage_2=room(HIDDEN, HIDDEN),
        limit_1_embedding=room(HIDDEN, EMBEDDING),
        limit_1_whole=room(HIDDEN, EMBEDDING),
        limit_2=room(LIMIT_HIDDEN, HIDDEN),
        critic_job_2=room(EMBEDDING, HIDDEN),
        critic_1_jobs=room(HIDDEN, EMBEDDING),
        critic_2=room(HIDDEN, HIDDEN),
    )


@compiled
def _transpose(weight, out):
    for i in range(weight.shape[0]):
        for o in range(weight.shape[1]):
            out[o, i] = weight[i, o]


@compiled
def transpose(weights, critic, out):
    """Write the transposed weights."""
    _transpose(weights.job_2, out.job_2)
    _transpose(weights.whole_1_jobs, out.whole_1_jobs)
    _transpose(weights.whole_2, out.whole_2)
    _transpose(weights.stage_1_embedding, out.stage_1_embedding)
    _transpose(weights.stage_1_whole, out.stage_1_whole)
    _transpose(weights.stage_2, out.stage_2)
    _transpose(weights.limit_1_embedding, out.limit_1_embedding)
    _transpose(weights.limit_1_whole, out.limit_1_whole)
    _transpose(weights.limit_2, out.limit_2)
    _transpose(critic.critic_job_2, out.critic_job_2)
    _transpose(critic.critic_1_jobs, out.critic_1_jobs)
    _transpose(critic.critic_2, out.critic_2)


class Work(ArrayStruct):
    """What a block's decisions activate; `d_` is the loss's gradient by it."""

    FIELDS: ClassVar = {
        "turned": (np.float32, 2),  # scratch, [HIDDEN, the most rows]
        "job_hidden": (np.float32, 2),  # [J, HIDDEN]
        "d_job_hidden": (np.float32, 2),
        "embedding": (np.float32, 2),  # [J, EMBEDDING]
        "d_embedding": (np.float32, 2),
        "of_job": (np.float32, 2),  # [J, HIDDEN]
        "d_of_job": (np.float32, 2),
        "stage_1": (np.float32, 2),  # [S, HIDDEN]
        "d_stage_1": (np.float32, 2),
        "stage_2": (np.float32, 2),  # [S, HIDDEN]
        "d_stage_2": (np.float32, 2),
        "logits": (np.float32, 1),  # [S]
        "total": (np.float32, 2),  # [B, EMBEDDING]
        "d_total": (np.float32, 2),
        "whole_hidden": (np.float32, 2),  # [B, HIDDEN]
        "d_whole_hidden": (np.float32, 2),
        "whole": (np.float32, 2),  # [B, EMBEDDING]
        "d_whole": (np.float32, 2),
        "of_whole": (np.float32, 2),  # [B, HIDDEN]
        "d_of_whole": (np.float32, 2),
        "limit_stage": (np.float32, 2),  # [B, STAGE_WIDTH]: inputs of the limit head
        "limit_job": (np.float32, 2),  # [B, JOB_WIDTH]
        "limit_embedding": (np.float32, 2),  # [B, EMBEDDING]
        "d_limit_embedding": (np.float32, 2),
        "limit_hidden": (np.float32, 2),  # [B, HIDDEN]
        "d_limit_hidden": (np.float32, 2),
        "limit_base": (np.float32, 2),  # [B, LIMIT_HIDDEN]
        "d_limit_base": (np.float32, 2),
        "level_hidden": (np.float32, 2),  # [L, LIMIT_HIDDEN]
        "d_level_hidden": (np.float32, 2),
        "level_logits": (np.float32, 1),  # [L]
        "critic_1": (np.float32, 2),  # [B, HIDDEN]
        "d_critic_1": (np.float32, 2),
        "critic_2": (np.float32, 2),  # [B, HIDDEN]
        "d_critic_2": (np.float32, 2),
        "log_probability": (np.float32, 1),  # [B]
        "entropy": (np.float32, 1),  # [B]: of the stage
        "level_entropy": (np.float32, 1),  # [B]
        "offset": (np.float32, 1),  # [B]: log sum exp of the stage logits
        "level_offset": (np.float32, 1),  # [B]
        "value": (np.float32, 1),  # [B], normalised
    }


class Desk:
    """What one thread needs to work on blocks: room for a block and for a gradient."""

    def __init__(self, stages: int, jobs: int) -> None:
        """`stages`, `jobs`: the most rows that one decision has."""
        self.stages = max(stages, 16 * BLOCK)
        self.jobs = max(jobs, 8 * BLOCK)
        self.minibatch: Minibatch = new_minibatch(BLOCK, self.stages, self.jobs, 1)
        sizes = {
            "turned": (HIDDEN, max(self.stages, self.jobs, BLOCK * LEVELS)),
            "stage_1": (self.stages, HIDDEN),
            "stage_2": (self.stages, HIDDEN),
            "logits": (self.stages,),
            "job_hidden": (self.jobs, HIDDEN),
            "embedding": (self.jobs, EMBEDDING),
            "of_job": (self.jobs, HIDDEN),
            "total": (BLOCK, EMBEDDING),
            "whole_hidden": (BLOCK, HIDDEN),
            "whole": (BLOCK, EMBEDDING),
            "of_whole": (BLOCK, HIDDEN),
            "limit_stage": (BLOCK, STAGE_WIDTH),
            "limit_job": (BLOCK, JOB_WIDTH),
            "limit_embedding": (BLOCK, EMBEDDING),
            "limit_hidden": (BLOCK, HIDDEN),
            "limit_base": (BLOCK, LIMIT_HIDDEN),
            "level_hidden": (BLOCK * LEVELS, LIMIT_HIDDEN),
            "level_logits": (BLOCK * LEVELS,),
            "critic_1": (BLOCK, HIDDEN),
            "critic_2": (BLOCK, HIDDEN),
        }
        room = {name: np.zeros(shape, np.float32) for name, shape in sizes.items()}
        for name in Work.FIELDS:
            if name not in room:
                shape = sizes.get(name.removeprefix("d_"), (BLOCK,))
                room[name] = np.zeros(shape, np.float32)
        self.work = Work(**room)

    def holds(self, stages: int, jobs: int) -> bool:
        """Whether a decision with that many rows fits."""
        return stages <= self.stages and jobs <= self.jobs


# ------------------------------------------------- gradient[i, o] += sum over n of x[n, i] d[n, o]
@compiled_fast
def _turn(work, x, inputs, rows):
    for n in range(rows):
        for i in range(inputs):
            work.turned[i, n] = x[n, i]


@compiled_fast
def _outer_hidden(work, x, d, gradient, rows):
    """For d and gradient that are HIDDEN wide: x transposed times d, by the same fast kernel."""
    inputs = gradient.shape[0]
    _turn(work, x, inputs, rows)
    to_hidden(work.turned, _FIRST, d[:rows], gradient, inputs)


@compiled_fast
def _outer_embedding(work, x, d, gradient, rows):
    """For those that are EMBEDDING wide, or LIMIT_HIDDEN, which is the same."""
    inputs = gradient.shape[0]
    _turn(work, x, inputs, rows)
    to_embedding(work.turned, _FIRST, d[:rows], gradient, inputs)


@compiled_fast
def _add_rows(d, gradient, rows):
    """gradient[o] += sum over n of d[n, o]."""
    for n in range(rows):
        for o in range(gradient.shape[0]):
            gradient[o] += d[n, o]


@compiled_fast
def _zero(y, rows):
    for n in range(rows):
        for o in range(y.shape[1]):
            y[n, o] = _ZERO


@compiled_fast
def _through_leaky(y, d, rows):
    """Turn the gradient by a leaky ReLU's output into that by its input."""
    for n in range(rows):
        for o in range(y.shape[1]):
            d[n, o] *= _ONE if y[n, o] > _ZERO else _SLOPE


# ---------------------------------------------------------------- forward
@compiled_fast
def _embed_jobs(first, first_bias, second, second_bias, batch, work, decisions, jobs):
    """Embed the job rows, and sum them up for each decision: as the policy and the critic begin."""
    set_rows(work.job_hidden, first_bias, jobs)
    to_hidden(batch.jobs, _FIRST, first, work.job_hidden, jobs)
    leaky(work.job_hidden, jobs)
    set_rows(work.embedding, second_bias, jobs)
    to_embedding(work.job_hidden, _FIRST, second, work.embedding, jobs)
    leaky(work.embedding, jobs)
    _zero(work.total, decisions)
    for j in range(jobs):
        b = batch.job_decision[j]
        for o in range(EMBEDDING):
            work.total[b, o] += _SCALE * work.embedding[j, o]


@compiled_fast
def _last_layer(hidden, weight, out, rows):
    """out[n] = hidden[n] times weight."""
    for n in range(rows):
        total = _ZERO
        for o in range(hidden.shape[1]):
            total += hidden[n, o] * weight[o]
        out[n] = total


@compiled_fast
def _critic_forward(critic, batch, work, decisions, jobs):
    _embed_jobs(
        critic.critic_job_1,
        critic.critic_job_1_bias,
        critic.critic_job_2,
        critic.critic_job_2_bias,
        batch,
        work,
        decisions,
        jobs,
    )
    set_rows(work.critic_1, critic.critic_1_bias, decisions)
    to_hidden(work.total, _FIRST, critic.critic_1_jobs, work.critic_1, decisions)
    to_hidden(batch.globals, _FIRST, critic.critic_1, work.critic_1, decisions)
    leaky(work.critic_1, decisions)
    set_rows(work.critic_2, critic.critic_2_bias, decisions)
    to_hidden(work.critic_1, _FIRST, critic.critic_2, work.critic_2, decisions)
    leaky(work.critic_2, decisions)
    _last_layer(work.critic_2, critic.critic_3, work.value, decisions)
    for b in range(decisions):
        work.value[b] += critic.critic_3_bias[0]


@compiled_fast
def _policy_forward(weights, batch, work, decisions, stages, jobs, limits):
    _embed_jobs(
        weights.job_1,
        weights.job_1_bias,
        weights.job_2,
        weights.job_2_bias,
        batch,
        work,
        decisions,
        jobs,
    )
    set_rows(work.whole_hidden, weights.whole_1_bias, decisions)
    to_hidden(work.total, _FIRST, weights.whole_1_jobs, work.whole_hidden, decisions)
    # Of the global features a policy's weights have rows for the first POLICY_GLOBALS only.
    to_hidden(batch.globals, _FIRST, weights.whole_1, work.whole_hidden, decisions)
    leaky(work.whole_hidden, decisions)
    set_rows(work.whole, weights.whole_2_bias, decisions)
    to_embedding(work.whole_hidden, _FIRST, weights.whole_2, work.whole, decisions)
    leaky(work.whole, decisions)

    set_rows(work.of_whole, weights.stage_1_bias, decisions)
    to_hidden(work.whole, _FIRST, weights.stage_1_whole, work.of_whole, decisions)
    for j in range(jobs):
        b = batch.job_decision[j]
        for o in range(HIDDEN):
            work.of_job[j, o] = work.of_whole[b, o]
    to_hidden(batch.jobs, _FIRST, weights.stage_1_job, work.of_job, jobs)
    to_hidden(work.embedding, _FIRST, weights.stage_1_embedding, work.of_job, jobs)
    for s in range(stages):
        j = batch.stage_job[s]
        for o in range(HIDDEN):
            work.stage_1[s, o] = work.of_job[j, o]
    to_hidden(batch.stages, _FIRST, weights.stage_1_stage, work.stage_1, stages)
    leaky(work.stage_1, stages)
    set_rows(work.stage_2, weights.stage_2_bias, stages)
    to_hidden(work.stage_1, _FIRST, weights.stage_2, work.stage_2, stages)
    leaky(work.stage_2, stages)
    _last_layer(work.stage_2, weights.stage_3, work.logits, stages)

    for b in range(decisions):
        s = batch.chosen[b]
        j = batch.stage_job[s]
        for k in range(STAGE_WIDTH):
            work.limit_stage[b, k] = batch.stages[s, k]
        for k in range(JOB_WIDTH):
            work.limit_job[b, k] = batch.jobs[j, k]
        for k in range(EMBEDDING):
            work.limit_embedding[b, k] = work.embedding[j, k]
    set_rows(work.limit_hidden, weights.limit_1_bias, decisions)
    to_hidden(work.whole, _FIRST, weights.limit_1_whole, work.limit_hidden, decisions)
    to_hidden(work.limit_job, _FIRST, weights.limit_1_job, work.limit_hidden, decisions)
    to_hidden(work.limit_embedding, _FIRST, weights.limit_1_embedding, work.limit_hidden, decisions)
    to_hidden(work.limit_stage, _FIRST, weights.limit_1_stage, work.limit_hidden, decisions)
    leaky(work.limit_hidden, decisions)
    set_rows(work.limit_base, weights.limit_2_bias, decisions)
    to_embedding(work.limit_hidden, _FIRST, weights.limit_2, work.limit_base, decisions)
    for r in range(limits):
        b = batch.level_decision[r]
        for o in range(LIMIT_HIDDEN):
            work.level_hidden[r, o] = work.limit_base[b, o]
    to_embedding(batch.level_features, _FIRST, weights.limit_2_level, work.level_hidden, limits)
    leaky(work.level_hidden, limits)
    _last_layer(work.level_hidden, weights.limit_3, work.level_logits, limits)


@compiled
def _log_softmax(logits, group, rows, groups, entropy, offset):
    """Turn logits into log-probabilities within each run of rows of one group.

    Writes each group's entropy and what was subtracted from its logits.
    """
    r = 0
    for b in range(groups):
        first = r
        top = np.float32(-np.inf)
        while r < rows and group[r] == b:
            top = max(top, logits[r])
            r += 1
        total = _ZERO
        for k in range(first, r):
            total += math.exp(logits[k] - top)
        shift = top + np.float32(math.log(total)) if r > first else _ZERO
        spread = _ZERO
        for k in range(first, r):
            logits[k] -= shift
            spread -= np.float32(math.exp(logits[k])) * logits[k]
        entropy[b], offset[b] = spread, shift


@compiled
def _finish_forward(batch, work, decisions, stages, limits):
    of_stage, of_level = batch.stage_decision, batch.level_decision
    _log_softmax(work.logits, of_stage, stages, decisions, work.entropy, work.offset)
    _log_softmax(
        work.level_logits, of_level, limits, decisions, work.level_entropy, work.level_offset
    )
    for b in range(decisions):
        work.log_probability[b] = work.logits[batch.chosen[b]]
    for r in range(limits):
        b = batch.level_decision[r]
        if batch.level_slot[r] == batch.level[b]:
            work.log_probability[b] += work.level_logits[r]


@compiled
def _block_end(rows, index, first, most_stages, most_jobs):
    """How far a block reaches that begins at `first`, so that its rows fit."""
    stages = 0
    jobs = 0
    last = first
    while last < len(index) and last - first < BLOCK:
        d = index[last]
        stages += rows.stage_pointer[d + 1] - rows.stage_pointer[d]
        jobs += rows.job_pointer[d + 1] - rows.job_pointer[d]
        if stages > most_stages or jobs > most_jobs:
            break
        last += 1
    return last


@compiled
def look(weights, critic, rows, chosen, level, levels, per_environment, index, batch, work, out):
    """Log-probabilities and normalised values of the decisions `index`, into out [2, decisions].

    An observation that nothing was decided on counts as if its first stage and limit were chosen.
    """
    first = 0
    while first < len(index):
        last = _block_end(rows, index, first, len(batch.stages), len(batch.jobs))
        part = index[first:last]
        stages, jobs, limits = pack(rows, chosen, level, levels, per_environment, part, batch)
        decisions = last - first
        _critic_forward(critic, batch, work, decisions, jobs)
        _policy_forward(weights, batch, work, decisions, stages, jobs, limits)
        _finish_forward(batch, work, decisions, stages, limits)
        for b in range(decisions):
            out[0, first + b] = work.log_probability[b]
            out[1, first + b] = work.value[b]
        first = last


# ---------------------------------------------------------------- backward
@compiled_fast
def _back_last_layer(hidden, weight, d_out, gradient, d_hidden, rows):
    """Through `_last_layer` and the leaky ReLU before it."""
    for n in range(rows):
        d = d_out[n]
        for o in range(hidden.shape[1]):
            gradient[o] += d * hidden[n, o]
            d_hidden[n, o] = d * weight[o]
    _through_leaky(hidden, d_hidden, rows)


@compiled_fast
def _back_to_hidden(work, d, turned_weight, hidden, gradient, bias_gradient, d_hidden, rows):
    """Through a layer from `hidden` to HIDDEN and the leaky ReLU before it."""
    _add_rows(d, bias_gradient, rows)
    _outer_hidden(work, hidden, d, gradient, rows)
    _zero(d_hidden, rows)
    to_hidden(d, _FIRST, turned_weight, d_hidden, rows)
    _through_leaky(hidden, d_hidden, rows)


@compiled_fast
def _back_embedding(work, d, turned_weight, hidden, gradient, bias_gradient, d_hidden, rows):
    """Through a layer from `hidden` to EMBEDDING, or LIMIT_HIDDEN, likewise."""
    _add_rows(d, bias_gradient, rows)
    _outer_embedding(work, hidden, d, gradient, rows)
    _zero(d_hidden, rows)
    to_hidden(d, _FIRST, turned_weight, d_hidden, rows)
    _through_leaky(hidden, d_hidden, rows)


@compiled_fast
def _critic_backward(critic, transposed, batch, work, gradient, decisions, jobs):
    """From work.value, which holds the gradient by the value."""
    for b in range(decisions):
        gradient.critic_3_bias[0] += work.value[b]
    _back_last_layer(
        work.critic_2, critic.critic_3, work.value, gradient.critic_3, work.d_critic_2, decisions
    )
    _back_to_hidden(
        work,
        work.d_critic_2,
        transposed.critic_2,
        work.critic_1,
        gradient.critic_2,
        gradient.critic_2_bias,
        work.d_critic_1,
        decisions,
    )
    _add_rows(work.d_critic_1, gradient.critic_1_bias, decisions)
    _outer_hidden(work, work.total, work.d_critic_1, gradient.critic_1_jobs, decisions)
    _outer_hidden(work, batch.globals, work.d_critic_1, gradient.critic_1, decisions)
    _zero(work.d_total, decisions)
    to_embedding(work.d_critic_1, _FIRST, transposed.critic_1_jobs, work.d_total, decisions)
    for j in range(jobs):
        b = batch.job_decision[j]
        for o in range(EMBEDDING):
            work.d_embedding[j, o] = _SCALE * work.d_total[b, o]
    _through_leaky(work.embedding, work.d_embedding, jobs)
    _back_embedding(
        work,
        work.d_embedding,
        transposed.critic_job_2,
        work.job_hidden,
        gradient.critic_job_2,
        gradient.critic_job_2_bias,
        work.d_job_hidden,
        jobs,
    )
    _add_rows(work.d_job_hidden, gradient.critic_job_1_bias, jobs)
    _outer_hidden(work, batch.jobs, work.d_job_hidden, gradient.critic_job_1, jobs)


@compiled_fast
def _policy_backward(weights, transposed, batch, work, gradient, decisions, stages, jobs, limits):
    """From work.logits and work.level_logits, which hold the gradients by the logits."""
    _back_last_layer(
        work.level_hidden,
        weights.limit_3,
        work.level_logits,
        gradient.limit_3,
        work.d_level_hidden,
        limits,
    )
    _outer_embedding(
        work, batch.level_features, work.d_level_hidden, gradient.limit_2_level, limits
    )
    _zero(work.d_limit_base, decisions)
    for r in range(limits):
        b = batch.level_decision[r]
        for o in range(LIMIT_HIDDEN):
            work.d_limit_base[b, o] += work.d_level_hidden[r, o]
    _back_embedding(
        work,
        work.d_limit_base,
        transposed.limit_2,
        work.limit_hidden,
        gradient.limit_2,
        gradient.limit_2_bias,
        work.d_limit_hidden,
        decisions,
    )
    _add_rows(work.d_limit_hidden, gradient.limit_1_bias, decisions)
    _outer_hidden(work, work.whole, work.d_limit_hidden, gradient.limit_1_whole, decisions)
    _outer_hidden(work, work.limit_job, work.d_limit_hidden, gradient.limit_1_job, decisions)
    _outer_hidden(
        work, work.limit_embedding, work.d_limit_hidden, gradient.limit_1_embedding, decisions
    )
    _outer_hidden(work, work.limit_stage, work.d_limit_hidden, gradient.limit_1_stage, decisions)
    _zero(work.d_whole, decisions)
    to_embedding(work.d_limit_hidden, _FIRST, transposed.limit_1_whole, work.d_whole, decisions)
    _zero(work.d_limit_embedding, decisions)
    to_embedding(
        work.d_limit_hidden, _FIRST, transposed.limit_1_embedding, work.d_limit_embedding, decisions
    )

    _back_last_layer(
        work.stage_2, weights.stage_3, work.logits, gradient.stage_3, work.d_stage_2, stages
    )
    _back_to_hidden(
        work,
        work.d_stage_2,
        transposed.stage_2,
        work.stage_1,
        gradient.stage_2,
        gradient.stage_2_bias,
        work.d_stage_1,
        stages,
    )
    _outer_hidden(work, batch.stages, work.d_stage_1, gradient.stage_1_stage, stages)
    _zero(work.d_of_job, jobs)
    for s in range(stages):
        j = batch.stage_job[s]
        for o in range(HIDDEN):
            work.d_of_job[j, o] += work.d_stage_1[s, o]
    _outer_hidden(work, batch.jobs, work.d_of_job, gradient.stage_1_job, jobs)
    _outer_hidden(work, work.embedding, work.d_of_job, gradient.stage_1_embedding, jobs)
    _zero(work.d_embedding, jobs)
    to_embedding(work.d_of_job, _FIRST, transposed.stage_1_embedding, work.d_embedding, jobs)
    _zero(work.d_of_whole, decisions)
    for j in range(jobs):
        b = batch.job_decision[j]
        for o in range(HIDDEN):
            work.d_of_whole[b, o] += work.d_of_job[j, o]
    _add_rows(work.d_of_whole, gradient.stage_1_bias, decisions)
    _outer_hidden(work, work.whole, work.d_of_whole, gradient.stage_1_whole, decisions)
    to_embedding(work.d_of_whole, _FIRST, transposed.stage_1_whole, work.d_whole, decisions)

    _through_leaky(work.whole, work.d_whole, decisions)
    _back_embedding(
        work,
        work.d_whole,
        transposed.whole_2,
        work.whole_hidden,
        gradient.whole_2,
        gradient.whole_2_bias,
        work.d_whole_hidden,
        decisions,
    )
    _add_rows(work.d_whole_hidden, gradient.whole_1_bias, decisions)
    _outer_hidden(work, work.total, work.d_whole_hidden, gradient.whole_1_jobs, decisions)
    _outer_hidden(work, batch.globals, work.d_whole_hidden, gradient.whole_1, decisions)
    _zero(work.d_total, decisions)
    to_embedding(work.d_whole_hidden, _FIRST, transposed.whole_1_jobs, work.d_total, decisions)

    for j in range(jobs):
        b = batch.job_decision[j]
        for o in range(EMBEDDING):
            work.d_embedding[j, o] += _SCALE * work.d_total[b, o]
    for b in range(decisions):
        j = batch.stage_job[batch.chosen[b]]
        for o in range(EMBEDDING):
            work.d_embedding[j, o] += work.d_limit_embedding[b, o]
    _through_leaky(work.embedding, work.d_embedding, jobs)
    _back_embedding(
        work,
        work.d_embedding,
        transposed.job_2,
        work.job_hidden,
        gradient.job_2,
        gradient.job_2_bias,
        work.d_job_hidden,
        jobs,
    )
    _add_rows(work.d_job_hidden, gradient.job_1_bias, jobs)
    _outer_hidden(work, batch.jobs, work.d_job_hidden, gradient.job_1, jobs)


@compiled
def gradients(
    weights,
    critic,
    transposed,
    rows,
    chosen,
    level,
    levels,
    per_environment,
    index,
    wanted,
    settings,
    batch,
    work,
    gradient,
    critic_gradient,
    sums,
):
    """Add the loss's gradients over the decisions `index`.

    wanted: [4, decisions] advantage, goal of the value, log-probability to start from, weight in
    the divergence, in the order of `index`. settings: [4] 1 / decisions of the whole minibatch,
    clip, value weight, entropy weight. sums: [4] policy loss, value loss, entropy, KL divergence
    are added to it.
    """
    share, clip = settings[0], settings[1]
    value_weight, entropy_weight = settings[2], settings[3]
    first = 0
    while first < len(index):
        last = _block_end(rows, index, first, len(batch.stages), len(batch.jobs))
        part = index[first:last]
        stages, jobs, limits = pack(rows, chosen, level, levels, per_environment, part, batch)
        decisions = last - first
        _critic_forward(critic, batch, work, decisions, jobs)
        for b in range(decisions):
            error = work.value[b] - wanted[1, first + b]
            square = error * error
            sums[1] += min(square, LARGEST_ERROR)
            inside = square < LARGEST_ERROR or math.isnan(square)
            work.value[b] = 2 * value_weight * share * error if inside else 0.0
        _critic_backward(critic, transposed, batch, work, critic_gradient, decisions, jobs)

        _policy_forward(weights, batch, work, decisions, stages, jobs, limits)
        _finish_forward(batch, work, decisions, stages, limits)
        for b in range(decisions):
            advantage = wanted[0, first + b]
            change = work.log_probability[b] - wanted[2, first + b]
            if change > LARGEST_CHANGE:
                change = np.float32(LARGEST_CHANGE)
            ratio = math.exp(change)
            free = ratio * advantage
            held = min(max(ratio, 1 - clip), 1 + clip) * advantage
            gain = min(free, held)
            if advantage < 0:
                gain = max(gain, LARGEST_RATIO * advantage)
            sums[0] -= gain
            sums[2] += work.entropy[b] + work.level_entropy[b]
            # Of what the starting policy would hardly do, ratios say nothing about its divergence.
            sums[3] += wanted[3, first + b] * (ratio - 1 - change)
            # From here on log_probability holds the loss's gradient by it.
            if advantage > 0:
                stopped = ratio > 1 + clip
            else:
                stopped = ratio < 1 - clip or ratio > LARGEST_RATIO
            work.log_probability[b] = 0.0 if stopped else -share * free
        for s in range(stages):
            b = batch.stage_decision[s]
            log_p = work.logits[s]
            p = math.exp(log_p)
            own = 1.0 if s == batch.chosen[b] else 0.0
            pull = entropy_weight * (log_p + work.entropy[b])
            pull += 2 * OFFSET_WEIGHT * work.offset[b]
            work.logits[s] = work.log_probability[b] * (own - p) + share * p * pull
        for r in range(limits):
            b = batch.level_decision[r]
            log_p = work.level_logits[r]
            p = math.exp(log_p)
            own = 1.0 if batch.level_slot[r] == batch.level[b] else 0.0
            pull = entropy_weight * (log_p + work.level_entropy[b])
            pull += 2 * OFFSET_WEIGHT * work.level_offset[b]
            work.level_logits[r] = work.log_probability[b] * (own - p) + share * p * pull
        _policy_backward(
            weights, transposed, batch, work, gradient, decisions, stages, jobs, limits
        )
        first = last
