"""The policy network compiled: one state in, a decision out. `network.py` is its torch reference.

One state at a time: batching buys nothing here. Rows are row-major and the output dimension is
what the processor's vectors run over, with widths known when compiling; the inner loops then run
at 25 to 60 GFLOP/s on one core.
"""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ganger.compiled import compiled, compiled_fast
from ganger.policy.features import write_features
from ganger.policy.layout import (
    EMBEDDING,
    HIDDEN,
    JOB_SUM_SCALE,
    LEVEL_WIDTH,
    LEVELS,
    LIMIT_HIDDEN,
    MESSAGE,
    MESSAGE_SCALE,
    SLOPE,
    blocks,
)
from ganger.streams import derive, uniform
from ganger.structs import ArrayStruct

_SLOPE = np.float32(SLOPE)
_JOB_SUM_SCALE = np.float32(JOB_SUM_SCALE)
_MESSAGE_SCALE = np.float32(MESSAGE_SCALE)
MASKED = np.float32(-1e30)
# Plain literals would make Numba compile a callee once more for each of them.
_FIRST, _ONE, _LEVELS = np.int64(0), np.int64(1), np.int64(LEVELS)


class Weights(ArrayStruct):
    """Views of one flat vector, one for each block of layout.py."""

    FIELDS: ClassVar = {b.name: (np.float32, len(b.shape)) for b in blocks(messages=True)}


def weights_of(vector: NDArray[np.float32], messages: bool) -> Weights:
    """The blocks of a flat vector, as views."""
    return Weights(**{b.name: vector[b.start : b.stop].reshape(b.shape) for b in blocks(messages)})


class Scratch(ArrayStruct):
    """Room for one forward pass; sized by the most rows a state may have."""

    FIELDS: ClassVar = {
        "job_hidden": (np.float32, 2),  # [jobs, HIDDEN]
        "job_embedding": (np.float32, 2),  # [jobs, EMBEDDING]
        "job_messages": (np.float32, 2),  # [jobs, MESSAGE]
        "whole_in": (np.float32, 2),  # [1, EMBEDDING]
        "whole_hidden": (np.float32, 2),  # [1, HIDDEN]
        "whole": (np.float32, 2),  # [1, EMBEDDING]
        "stage_hidden": (np.float32, 2),  # [stages, HIDDEN]
        "stage_hidden_2": (np.float32, 2),  # [stages, HIDDEN]
        "message": (np.float32, 2),  # [stages, MESSAGE]
        "sent": (np.float32, 2),  # [stages, MESSAGE]
        "logits": (np.float32, 1),  # [stages]
        "limit_base": (np.float32, 2),  # [1, LIMIT_HIDDEN]
        "level": (np.float32, 1),  # [LEVEL_WIDTH]
        "level_logits": (np.float32, 1),  # [LEVELS]
        "probabilities": (np.float32, 1),  # [stages], or [LEVELS] if that is more
        "path": (np.float64, 1),  # [stages of one job], for the features
        "work_path": (np.float64, 1),
    }


def new_scratch(jobs: int, stages: int, stages_of_a_job: int) -> Scratch:
    """Scratch for states of at most that many job rows and stage rows."""

    def zeros(*shape: int) -> NDArray[np.float32]:
        return np.zeros(shape, np.float32)

    return Scratch(
        job_hidden=zeros(jobs, HIDDEN),
        job_embedding=zeros(jobs, EMBEDDING),
        job_messages=zeros(jobs, MESSAGE),
        whole_in=zeros(1, EMBEDDING),
        whole_hidden=zeros(1, HIDDEN),
        whole=zeros(1, EMBEDDING),
        stage_hidden=zeros(stages, HIDDEN),
        stage_hidden_2=zeros(stages, HIDDEN),
        message=zeros(stages, MESSAGE),
        sent=zeros(stages, MESSAGE),
        logits=zeros(stages),
        limit_base=zeros(1, LIMIT_HIDDEN),
        level=zeros(LEVEL_WIDTH),
        level_logits=zeros(LEVELS),
        probabilities=zeros(max(stages, LEVELS)),
        path=np.zeros(stages_of_a_job),
        work_path=np.zeros(stages_of_a_job),
    )


# ---------------------------------------------------------------- y[:rows] += x[x0 : x0 + rows] @ W
def _matmul_into(outputs: int) -> Any:
    """A compiled product of known output width: four rows by four inputs, then one row by four."""

    @compiled_fast
    def matmul(x, x0, weight, y, rows):
        inputs = weight.shape[0]
        fours = inputs // 4 * 4
        n = 0
        while n + 4 <= rows:
            m = x0 + n
            for i in range(0, fours, 4):
                a0, a1, a2, a3 = x[m, i], x[m, i + 1], x[m, i + 2], x[m, i + 3]
                b0, b1, b2, b3 = x[m + 1, i], x[m + 1, i + 1], x[m + 1, i + 2], x[m + 1, i + 3]
                c0, c1, c2, c3 = x[m + 2, i], x[m + 2, i + 1], x[m + 2, i + 2], x[m + 2, i + 3]
                d0, d1, d2, d3 = x[m + 3, i], x[m + 3, i + 1], x[m + 3, i + 2], x[m + 3, i + 3]
                for o in range(outputs):
                    w0, w1, w2, w3 = (
                        weight[i, o],
                        weight[i + 1, o],
                        weight[i + 2, o],
                        weight[i + 3, o],
                    )
                    y[n, o] += a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3
                    y[n + 1, o] += b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3
                    y[n + 2, o] += c0 * w0 + c1 * w1 + c2 * w2 + c3 * w3
                    y[n + 3, o] += d0 * w0 + d1 * w1 + d2 * w2 + d3 * w3
            for i in range(fours, inputs):
                a0, b0, c0, d0 = x[m, i], x[m + 1, i], x[m + 2, i], x[m + 3, i]
                for o in range(outputs):
                    w0 = weight[i, o]
                    y[n, o] += a0 * w0
                    y[n + 1, o] += b0 * w0
                    y[n + 2, o] += c0 * w0
                    y[n + 3, o] += d0 * w0
            n += 4
        while n < rows:
            m = x0 + n
            for i in range(0, fours, 4):
                a0, a1, a2, a3 = x[m, i], x[m, i + 1], x[m, i + 2], x[m, i + 3]
                for o in range(outputs):
                    y[n, o] += (
                        a0 * weight[i, o]
                        + a1 * weight[i + 1, o]
                        + a2 * weight[i + 2, o]
                        + a3 * weight[i + 3, o]
                    )
            for i in range(fours, inputs):
                a0 = x[m, i]
                for o in range(outputs):
                    y[n, o] += a0 * weight[i, o]
            n += 1

    return matmul


to_hidden = _matmul_into(HIDDEN)
to_embedding = _matmul_into(EMBEDDING)  # and to LIMIT_HIDDEN, which is as wide
_to_message = _matmul_into(MESSAGE)


@compiled_fast
def set_rows(y, bias, rows):
    for r in range(rows):
        for o in range(bias.shape[0]):
            y[r, o] = bias[o]


@compiled_fast
def leaky(y, rows):
    for r in range(rows):
        for o in range(y.shape[1]):
            y[r, o] = max(y[r, o], _SLOPE * y[r, o])


@compiled_fast
def _pass_messages(weights, scratch, rows, d):
    """From the leaves to the roots: a stage's message takes in its children's."""
    first = rows.stage_pointer[d]
    count = rows.stage_pointer[d + 1] - first
    own, sent = scratch.message, scratch.sent
    set_rows(own, weights.message_in_bias, count)
    _to_message(rows.stages, first, weights.message_in, own, count)
    leaky(own, count)
    edge = rows.edge_pointer[d + 1] - 1
    total = np.zeros((1, MESSAGE), np.float32)
    merged = np.zeros((1, MESSAGE), np.float32)
    for r in range(count - 1, -1, -1):
        has_child = False
        for k in range(MESSAGE):
            total[0, k] = 0
        while edge >= rows.edge_pointer[d] and rows.edges[edge, 0] == r:
            child = rows.edges[edge, 1]
            for k in range(MESSAGE):
                total[0, k] += sent[child, k]
            has_child = True
            edge -= 1
        if has_child:
            set_rows(merged, weights.message_merge_bias, _ONE)
            _to_message(total, _FIRST, weights.message_merge, merged, _ONE)
            leaky(merged, _ONE)
            for k in range(MESSAGE):
                own[r, k] += merged[0, k]
        set_rows(sent[r : r + 1], weights.message_send_bias, _ONE)
        _to_message(own, r, weights.message_send, sent[r : r + 1], _ONE)
        leaky(sent[r : r + 1], _ONE)


@compiled_fast
def stage_logits(weights, scratch, rows, d, messages):
    """Logits of decision d's stage rows into scratch.logits; MASKED if it may not be chosen.

    Leaves the job and whole-cluster embeddings in the scratch for `limit_logits`.
    """
    first_stage, first_job = rows.stage_pointer[d], rows.job_pointer[d]
    stages = rows.stage_pointer[d + 1] - first_stage
    jobs = rows.job_pointer[d + 1] - first_job
    hidden, embedding = scratch.job_hidden, scratch.job_embedding
    set_rows(hidden, weights.job_1_bias, jobs)
    to_hidden(rows.jobs, first_job, weights.job_1, hidden, jobs)
    if messages:
        _pass_messages(weights, scratch, rows, d)
        for j in range(jobs):
            for k in range(MESSAGE):
                scratch.job_messages[j, k] = 0
        for r in range(stages):
            j = rows.stage_job[first_stage + r]
            for k in range(MESSAGE):
                scratch.job_messages[j, k] += _MESSAGE_SCALE * scratch.message[r, k]
        to_hidden(scratch.job_messages, _FIRST, weights.job_1_messages, hidden, jobs)
    leaky(hidden, jobs)
    set_rows(embedding, weights.job_2_bias, jobs)
    to_embedding(hidden, _FIRST, weights.job_2, embedding, jobs)
    leaky(embedding, jobs)

    for k in range(EMBEDDING):
        scratch.whole_in[0, k] = 0
    for j in range(jobs):
        for k in range(EMBEDDING):
            scratch.whole_in[0, k] += embedding[j, k]
    for k in range(EMBEDDING):
        scratch.whole_in[0, k] *= _JOB_SUM_SCALE
    whole_hidden, whole = scratch.whole_hidden, scratch.whole
    set_rows(whole_hidden, weights.whole_1_bias, _ONE)
    to_hidden(scratch.whole_in, _FIRST, weights.whole_1_jobs, whole_hidden, _ONE)
    to_hidden(rows.globals, d, weights.whole_1, whole_hidden, _ONE)
    leaky(whole_hidden, _ONE)
    set_rows(whole, weights.whole_2_bias, _ONE)
    to_embedding(whole_hidden, _FIRST, weights.whole_2, whole, _ONE)
    leaky(whole, _ONE)

    set_rows(whole_hidden, weights.stage_1_bias, _ONE)
    to_hidden(whole, _FIRST, weights.stage_1_whole, whole_hidden, _ONE)
    set_rows(hidden, whole_hidden[0], jobs)
    to_hidden(rows.jobs, first_job, weights.stage_1_job, hidden, jobs)
    to_hidden(embedding, _FIRST, weights.stage_1_embedding, hidden, jobs)
    one, two = scratch.stage_hidden, scratch.stage_hidden_2
    for r in range(stages):
        j = rows.stage_job[first_stage + r]
        for o in range(HIDDEN):
            one[r, o] = hidden[j, o]
    to_hidden(rows.stages, first_stage, weights.stage_1_stage, one, stages)
    if messages:
        to_hidden(scratch.message, _FIRST, weights.stage_1_message, one, stages)
    leaky(one, stages)
    set_rows(two, weights.stage_2_bias, stages)
    to_hidden(one, _FIRST, weights.stage_2, two, stages)
    leaky(two, stages)
    for r in range(stages):
        logit = np.float32(0)
        for o in range(HIDDEN):
            logit += two[r, o] * weights.stage_3[o]
        if rows.stage_choice[first_stage + r] == 0:
            logit = MASKED
        scratch.logits[r] = logit


@compiled
def write_level(levels, k, own, could_use, offer, cluster, x):
    """Write what the limit head sees of the k-th limit into x [LEVEL_WIDTH]; returns its legality.

    Illegal: padding; a limit the job has already; one whose next smaller one gives the stage all
    it can get, for then both are the same action. If the job has all there is, the largest is
    legal.
    """
    level = np.int64(levels[k])
    if level == 0:
        return False
    most = np.int64(min(could_use, offer))
    largest = k == LEVELS - 1 or levels[k + 1] == 0
    if level <= own:
        if not largest:
            return False
    elif k > 0 and levels[k - 1] > own and levels[k - 1] - own >= most:
        return False
    given = max(min(level - own, most), 1)
    x[0] = level / cluster
    x[1] = math.log1p(level) / 4
    x[2] = given / cluster
    x[3] = math.log1p(given) / 4
    x[4] = given / offer
    x[5] = 1.0 if given == could_use else 0.0
    return True


@compiled_fast
def limit_logits(weights, scratch, rows, d, chosen, levels, messages):
    """Logits of the limits for the chosen stage row into scratch.level_logits.

    levels: [LEVELS] int32, padded with zeros; MASKED where `write_level` says illegal.
    """
    row = rows.stage_pointer[d] + chosen
    j = np.int64(rows.stage_job[row])
    job_row = rows.job_pointer[d] + j
    hidden, base = scratch.whole_hidden, scratch.limit_base
    set_rows(hidden, weights.limit_1_bias, _ONE)
    to_hidden(scratch.whole, _FIRST, weights.limit_1_whole, hidden, _ONE)
    to_hidden(rows.jobs, job_row, weights.limit_1_job, hidden, _ONE)
    to_hidden(scratch.job_embedding, j, weights.limit_1_embedding, hidden, _ONE)
    to_hidden(rows.stages, row, weights.limit_1_stage, hidden, _ONE)
    if messages:
        to_hidden(scratch.message, chosen, weights.limit_1_message, hidden, _ONE)
    leaky(hidden, _ONE)
    set_rows(base, weights.limit_2_bias, _ONE)
    to_embedding(hidden, _FIRST, weights.limit_2, base, _ONE)

    own = rows.job_own[job_row]
    could_use = rows.stage_demand[row]
    offer = rows.on_offer[d]
    cluster = rows.executors[d]
    x, w = scratch.level, weights.limit_2_level
    for k in range(LEVELS):
        if not write_level(levels, k, own, could_use, offer, cluster, x):
            scratch.level_logits[k] = MASKED
            continue
        logit = np.float32(0)
        for o in range(LIMIT_HIDDEN):
            z = base[0, o]
            for i in range(LEVEL_WIDTH):
                z += x[i] * w[i, o]
            logit += max(z, _SLOPE * z) * weights.limit_3[o]
        scratch.level_logits[k] = logit


# No fastmath from here on: masks rely on comparisons that it may reorder.
@compiled
def choose(logits, count, probabilities, draw):
    """Sample from softmax(logits[:count]) by `draw` in [0, 1); a negative one takes the largest.

    A MASKED logit has probability zero, however large or small the others are; a single legal one
    is taken with probability one. Returns the index and its log-probability; -1 if all are masked.
    Even where logits are not finite, a legal index comes back: it will address memory.
    """
    top = np.float32(-np.inf)
    best = -1
    for k in range(count):
        if logits[k] != MASKED and (best < 0 or logits[k] > top or math.isnan(top)):
            top = logits[k]
            best = k
    if best < 0:
        return -1, np.float32(0)
    total = np.float32(0)
    finite = math.isfinite(top)
    for k in range(count):
        if logits[k] == MASKED:
            probabilities[k] = 0
        elif finite:
            below = logits[k] - top
            probabilities[k] = math.exp(below) if below <= 0 else 0.0  # not of a NaN
        else:
            probabilities[k] = 1 if logits[k] == top or math.isnan(top) else 0
        total += probabilities[k]
    for k in range(count):
        probabilities[k] /= total
    chosen = best
    if draw >= 0:
        reached = np.float32(0)
        for k in range(count):
            if probabilities[k] > 0:
                reached += probabilities[k]
                chosen = k
                if reached > draw:
                    break
    return chosen, np.float32(math.log(probabilities[chosen]))


@compiled
def choose_decision(state, table, weights, scratch, rows, d, levels, messages, future, key, sample):
    """Write decision d's rows and decide: stage row from the decision's first, level, log p.

    key: random word of this decision; sample: draw from the policy, else take the most probable.
    """
    write_features(state, table, rows, d, messages, future, scratch.path, scratch.work_path)
    stages = rows.stage_pointer[d + 1] - rows.stage_pointer[d]
    stage_logits(weights, scratch, rows, d, messages)
    draw = uniform(derive(key, 0)) if sample else -1.0
    chosen, stage_log_p = choose(scratch.logits, stages, scratch.probabilities, draw)
    limit_logits(weights, scratch, rows, d, chosen, levels, messages)
    draw = uniform(derive(key, 1)) if sample else -1.0
    level, level_log_p = choose(scratch.level_logits, _LEVELS, scratch.probabilities, draw)
    return chosen, level, stage_log_p + level_log_p
