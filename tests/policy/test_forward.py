"""The compiled policy: exact sampling under masks, and which limits are different actions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganger.policy.forward import MASKED, choose, new_scratch, write_level
from ganger.policy.layout import LEVEL_WIDTH, LEVELS, limit_levels

pytestmark = pytest.mark.uncompiled
INF, NAN = math.inf, math.nan


def chosen(logits, draw):
    logits = np.array(logits, np.float32)
    probabilities = np.zeros(max(len(logits), LEVELS), np.float32)
    index, log_p = choose(logits, len(logits), probabilities, draw)
    return index, log_p, probabilities[: len(logits)]


DRAWS = [0.0, 1e-9, *np.linspace(0, 1, 101)[:-1], 1.0 - 2.0**-53, -1.0]


@pytest.mark.parametrize("only", [0.0, 50.0, -3e4, INF, -INF, NAN])
def test_a_single_legal_action_is_taken_with_probability_one(only):
    for draw in DRAWS:
        index, log_p, _ = chosen([MASKED, MASKED, only, MASKED], draw)
        assert (index, log_p) == (2, 0.0)


@pytest.mark.parametrize(
    "legal",
    [
        *([0.0, 1.0], [-3e4, 3e4], [INF, 0.0], [INF, INF]),
        *([-INF, 0.0], [-INF, -INF], [NAN, 1.0], [NAN, NAN]),
    ],
)
def test_a_masked_action_is_never_taken_whatever_the_logits_of_the_others(legal):
    for draw in DRAWS:
        index, log_p, probabilities = chosen([MASKED, legal[0], MASKED, legal[1]], draw)
        assert index in (1, 3)
        assert probabilities[[0, 2]].tolist() == [0.0, 0.0]
        assert math.isfinite(log_p)
        assert probabilities.sum() == pytest.approx(1.0)


def test_of_infinite_logits_the_largest_share_the_probability():
    assert chosen([INF, 5.0, INF], 0.0)[2].tolist() == [0.5, 0.0, 0.5]
    assert chosen([-INF, 5.0, -INF], 0.0)[2].tolist() == [0.0, 1.0, 0.0]


def test_nothing_is_chosen_where_everything_is_masked():
    assert chosen([MASKED, MASKED], 0.5)[0] == -1


@given(st.lists(st.floats(-20, 20, width=32) | st.just(MASKED), min_size=1, max_size=12))
def test_sampling_follows_the_softmax_of_the_legal_logits(logits):
    legal = np.array(logits, np.float32) != MASKED
    if not legal.any():
        return
    values = np.where(legal, np.array(logits, np.float64), -INF)
    expected = np.exp(values - values.max())
    expected /= expected.sum()
    _, _, probabilities = chosen(logits, 0.5)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    # Every draw at once: in the middle of each action's share of [0, 1) it is that action.
    ends = np.cumsum(expected)
    for k in np.flatnonzero(expected > 1e-4):
        index, log_p, _ = chosen(logits, ends[k] - expected[k] / 2)
        assert index == k
        assert log_p == pytest.approx(math.log(expected[k]), abs=1e-4)
    assert chosen(logits, -1.0)[0] == int(np.argmax(values))


def legal_limits(levels, own, could_use, offer, executors):
    """{limit: the executors it gives} of the legal ones, and what the limit head sees of them."""
    found, seen = {}, {}
    for k in range(LEVELS):
        x = np.full(LEVEL_WIDTH, np.nan, np.float32)
        if write_level(levels, k, own, could_use, offer, executors, x):
            limit = int(levels[k])
            found[limit] = max(min(limit - own, could_use, offer), 1)
            seen[limit] = x
        else:
            assert np.isnan(x).all()
    return found, seen


@given(
    executors=st.integers(1, 300),
    own=st.integers(0, 320),
    could_use=st.integers(1, 10_000),
    data=st.data(),
)
def test_legal_limits_are_different_actions_and_there_is_always_one(
    executors, own, could_use, data
):
    offer = data.draw(st.integers(1, executors))
    levels = limit_levels(executors)
    found, seen = legal_limits(levels, own, could_use, offer, executors)
    every = {int(k): max(min(int(k) - own, could_use, offer), 1) for k in levels if k > 0}
    assert found, "some limit is always legal"
    assert len(set(found.values())) == len(found), "two limits that give the same are one action"
    above = {amount for limit, amount in every.items() if limit > own}
    assert set(found.values()) == (above or {1}), "no action is lost"
    for limit, x in seen.items():
        amount = found[limit]
        np.testing.assert_allclose(
            x,
            [
                limit / executors,
                math.log1p(limit) / 4,
                amount / executors,
                math.log1p(amount) / 4,
                amount / offer,
                float(amount == could_use),
            ],
            rtol=1e-5,
            atol=1e-5,
        )


def test_scratch_has_room_for_the_limits_even_of_a_single_stage():
    assert len(new_scratch(1, 1, 1).probabilities) >= LEVELS
