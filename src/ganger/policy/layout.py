"""The policy network's shape: its blocks of weights, and their places in one flat vector.

The flat vector is what the learner publishes, what actors read and what a checkpoint holds. Every
block starts on a 64-byte boundary. Weights are [inputs, outputs]: a row of inputs times a block is
a row of outputs. The first layer of each head is split by where its inputs come from (stage, job,
whole cluster), so that each part is computed once for all rows that share it.

Network, leaky ReLU after every layer but the last of each head:

    job         features (+ messages) -> hidden -> embedding          one row per job
    whole       sum of job embeddings / 4, features -> hidden -> embedding
    stage head  stage, job and whole -> hidden -> hidden -> logit     one per choosable stage
    limit head  stage, job and whole -> hidden -> limit hidden, plus a level's features -> logit
    messages    (a setting) stage -> message, from children to parents along the DAG
"""

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ganger.policy.features import (
    CRITIC_JOB_WIDTH,
    GLOBAL_WIDTH,
    JOB_WIDTH,
    POLICY_GLOBALS,
    STAGE_WIDTH,
)

HIDDEN = 64
EMBEDDING = 32
LIMIT_HIDDEN = 32
MESSAGE = 16
LEVELS = 20
LEVEL_WIDTH = 6
SLOPE = 0.1
JOB_SUM_SCALE = 0.25
MESSAGE_SCALE = 0.25
ALIGNMENT = 16  # floats

_BASE = {
    "job_1": (JOB_WIDTH, HIDDEN),
    "job_1_bias": (HIDDEN,),
    "job_2": (HIDDEN, EMBEDDING),
    "job_2_bias": (EMBEDDING,),
    "whole_1_jobs": (EMBEDDING, HIDDEN),
    "whole_1": (POLICY_GLOBALS, HIDDEN),
    "whole_1_bias": (HIDDEN,),
    "whole_2": (HIDDEN, EMBEDDING),
    "whole_2_bias": (EMBEDDING,),
    "stage_1_stage": (STAGE_WIDTH, HIDDEN),
    "stage_1_job": (JOB_WIDTH, HIDDEN),
    "stage_1_embedding": (EMBEDDING, HIDDEN),
    "stage_1_whole": (EMBEDDING, HIDDEN),
    "stage_1_bias": (HIDDEN,),
    "stage_2": (HIDDEN, HIDDEN),
    "stage_2_bias": (HIDDEN,),
    "stage_3": (HIDDEN,),
    "limit_1_stage": (STAGE_WIDTH, HIDDEN),
    "limit_1_job": (JOB_WIDTH, HIDDEN),
    "limit_1_embedding": (EMBEDDING, HIDDEN),
    "limit_1_whole": (EMBEDDING, HIDDEN),
    "limit_1_bias": (HIDDEN,),
    "limit_2": (HIDDEN, LIMIT_HIDDEN),
    "limit_2_level": (LEVEL_WIDTH, LIMIT_HIDDEN),
    "limit_2_bias": (LIMIT_HIDDEN,),
    "limit_3": (LIMIT_HIDDEN,),
}
_MESSAGES = {
    "message_in": (STAGE_WIDTH, MESSAGE),
    "message_in_bias": (MESSAGE,),
    "message_send": (MESSAGE, MESSAGE),
    "message_send_bias": (MESSAGE,),
    "message_merge": (MESSAGE, MESSAGE),
    "message_merge_bias": (MESSAGE,),
    "job_1_messages": (MESSAGE, HIDDEN),
    "stage_1_message": (MESSAGE, HIDDEN),
    "limit_1_message": (MESSAGE, HIDDEN),
}
# The critic, which exists in training only: jobs summed as in the policy, then two layers.
CRITIC = {
    "critic_job_1": (CRITIC_JOB_WIDTH, HIDDEN),
    "critic_job_1_bias": (HIDDEN,),
    "critic_job_2": (HIDDEN, EMBEDDING),
    "critic_job_2_bias": (EMBEDDING,),
    "critic_1_jobs": (EMBEDDING, HIDDEN),
    "critic_1": (GLOBAL_WIDTH, HIDDEN),
    "critic_1_bias": (HIDDEN,),
    "critic_2": (HIDDEN, HIDDEN),
    "critic_2_bias": (HIDDEN,),
    "critic_3": (HIDDEN,),
    "critic_3_bias": (1,),
}
# Blocks that enter one sum share its fan-in; weights start uniform within 1 / sqrt(fan-in).
FAN_IN = {
    "job_1": JOB_WIDTH,
    "whole_1": EMBEDDING + POLICY_GLOBALS,
    "stage_1": STAGE_WIDTH + JOB_WIDTH + 2 * EMBEDDING,
    "limit_1": STAGE_WIDTH + JOB_WIDTH + 2 * EMBEDDING,
    "job_2": HIDDEN,
    "whole_2": HIDDEN,
    "stage_2": HIDDEN,
    "stage_3": HIDDEN,
    "limit_2": HIDDEN + LEVEL_WIDTH,
    "limit_3": LIMIT_HIDDEN,
    "message_in": STAGE_WIDTH,
    "message_send": MESSAGE,
    "message_merge": MESSAGE,
    "critic_job_1": CRITIC_JOB_WIDTH,
    "critic_job_2": HIDDEN,
    "critic_1": EMBEDDING + GLOBAL_WIDTH,
    "critic_2": HIDDEN,
    "critic_3": HIDDEN,
}
LAST_LAYER_SCALE = 0.1  # a new policy is close to uniform


class Block(NamedTuple):
    """A named part of the flat vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)


def _placed(shapes: dict[str, tuple[int, ...]]) -> tuple[Block, ...]:
    placed, at = [], 0
    for name, shape in shapes.items():
        placed.append(Block(name, shape, at))
        at += -(-prod(shape) // ALIGNMENT) * ALIGNMENT
    return tuple(placed)


def blocks(messages: bool) -> tuple[Block, ...]:
    """The blocks of a network with or without message passing, in order."""
    # An unused place-holder keeps compiled code's types the same.
    absent = {} if messages else {name: (1,) * len(shape) for name, shape in _MESSAGES.items()}
    return _placed(_BASE | _MESSAGES | absent)


def critic_blocks() -> tuple[Block, ...]:
    """The critic's blocks, in order."""
    return _placed(CRITIC)


def vector_size(messages: bool) -> int:
    """Length of the policy's flat vector."""
    return _size(blocks(messages))


def critic_size() -> int:
    """Length of the critic's flat vector."""
    return _size(critic_blocks())


def _size(placed: tuple[Block, ...]) -> int:
    return -(-placed[-1].stop // ALIGNMENT) * ALIGNMENT


def aligned_zeros(size: int) -> NDArray[np.float32]:
    """A zeroed float32 vector that starts on a 64-byte boundary."""
    raw = np.zeros(size + ALIGNMENT, np.float32)
    skip = (-raw.ctypes.data // 4) % ALIGNMENT
    return raw[skip : skip + size]


def initial_vector(rng: np.random.Generator, messages: bool) -> NDArray[np.float32]:
    """Weights of a policy that has learned nothing."""
    return _initial(rng, blocks(messages))


def initial_critic(rng: np.random.Generator) -> NDArray[np.float32]:
    """Weights of a critic that has learned nothing."""
    return _initial(rng, critic_blocks())


def _initial(rng: np.random.Generator, placed: tuple[Block, ...]) -> NDArray[np.float32]:
    vector = aligned_zeros(_size(placed))
    for block in placed:
        if block.name.endswith("_bias") or prod(block.shape) == 1:
            continue
        fan_in = next(n for prefix, n in FAN_IN.items() if block.name.startswith(prefix))
        bound = 1 / np.sqrt(fan_in)
        if block.name in ("stage_3", "limit_3", "critic_3"):
            bound *= LAST_LAYER_SCALE
        vector[block.start : block.stop] = rng.uniform(-bound, bound, block.stop - block.start)
    return vector


def limit_levels(executors: int) -> NDArray[np.int32]:
    """The limits a policy chooses from on a cluster of that size, padded with zeros to LEVELS.

    All of them up to 20 executors; beyond, about evenly spaced on a logarithmic scale, the
    cluster's size included.
    """
    if executors <= LEVELS:
        levels = np.arange(1, executors + 1)
    else:
        levels = np.unique(np.round(np.geomspace(1, executors, LEVELS)).astype(np.int64))
    padded = np.zeros(LEVELS, np.int32)
    padded[: len(levels)] = levels
    return padded
