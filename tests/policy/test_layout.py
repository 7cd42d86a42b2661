"""The flat vector of weights, and the limits a policy chooses from."""

from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.policy.forward import weights_of
from ganger.policy.layout import (
    ALIGNMENT,
    FAN_IN,
    LEVELS,
    aligned_zeros,
    blocks,
    initial_vector,
    limit_levels,
    vector_size,
)

pytestmark = pytest.mark.uncompiled
both = pytest.mark.parametrize("messages", [False, True])


@both
def test_blocks_are_aligned_in_order_and_do_not_overlap(messages):
    placed = blocks(messages)
    assert placed[0].start == 0
    for block, following in pairwise(placed):
        assert block.stop - block.start == prod(block.shape)
        assert block.stop <= following.start < block.stop + ALIGNMENT
    assert all(block.start % ALIGNMENT == 0 for block in placed)
    assert placed[-1].stop <= vector_size(messages)
    assert len({block.name for block in placed}) == len(placed)


@both
def test_weights_are_views_of_the_vector_and_cover_it(messages):
    vector = aligned_zeros(vector_size(messages))
    weights = weights_of(vector, messages)
    for number, block in enumerate(blocks(messages), start=1):
        view = getattr(weights, block.name)
        assert view.shape == block.shape
        assert view.ctypes.data % (4 * ALIGNMENT) == 0
        view[:] = number
    for number, block in enumerate(blocks(messages), start=1):
        assert (vector[block.start : block.stop] == number).all()


def test_a_network_without_messages_is_smaller():
    assert vector_size(False) < vector_size(True)
    assert [b.name for b in blocks(False)] == [b.name for b in blocks(True)]


@both
def test_new_weights_are_small_seeded_and_without_bias(messages):
    vector = initial_vector(np.random.default_rng(3), messages)
    np.testing.assert_array_equal(vector, initial_vector(np.random.default_rng(3), messages))
    covered = np.zeros(len(vector), bool)
    for block in blocks(messages):
        values = vector[block.start : block.stop]
        covered[block.start : block.stop] = True
        if block.name.endswith("_bias") or prod(block.shape) == 1:
            assert not values.any()
            continue
        fan_in = [n for prefix, n in FAN_IN.items() if block.name.startswith(prefix)]
        assert len(fan_in) == 1
        assert 0 < np.abs(values).max() <= fan_in[0] ** -0.5
    assert not vector[~covered].any()


@given(st.integers(1, 100_000))
def test_limits_ascend_from_1_to_the_clusters_size(executors):
    levels = limit_levels(executors)
    used = levels[levels > 0].tolist()
    assert levels.shape == (LEVELS,)
    assert levels[: len(used)].tolist() == used, "padding comes last"
    assert used == sorted(set(used))
    assert (used[0], used[-1]) == (1, executors)
    if executors <= LEVELS:
        assert used == list(range(1, executors + 1))
    else:  # no gap is wider than a step on the logarithmic scale, and one executor for rounding
        step = executors ** (1 / (LEVELS - 1))
        assert all(b <= a * step + 1 + step for a, b in pairwise(used))
