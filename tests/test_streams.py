"""Random streams: known values, and that keys of different purposes never meet."""

import numpy as np
import pytest

from ganger import streams
from ganger.streams import Stream, derive, mix, uniform

pytestmark = pytest.mark.uncompiled

# The first outputs of SplitMix64 from state 0 (Vigna's splitmix64.c).
SPLITMIX64 = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_children_of_key_0_are_splitmix64s_first_outputs():
    assert [int(derive(np.uint64(0), i)) for i in range(3)] == SPLITMIX64


def test_mix_is_a_bijection_on_a_sample_and_fixes_only_0():
    words = {int(mix(np.uint64(word))) for word in range(10_000)}
    assert len(words) == 10_000
    assert mix(np.uint64(0)) == 0


def test_keys_that_differ_in_one_bit_give_unrelated_words():
    base = int(derive(np.uint64(12345), 0))
    for bit in range(64):
        other = int(derive(np.uint64(12345 ^ (1 << bit)), 0))
        assert 12 <= (base ^ other).bit_count() <= 52


def test_a_uniform_number_lies_from_0_up_to_but_not_1():
    assert uniform(np.uint64(0)) == 0.0
    assert uniform(np.uint64(2**64 - 1)) == 1.0 - 2.0**-53
    numbers = np.array([uniform(np.uint64(derive(np.uint64(7), i))) for i in range(4000)])
    assert abs(numbers.mean() - 0.5) < 5 * (1 / 12 / 4000) ** 0.5
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.1


def test_keys_depend_on_seed_purpose_and_index_and_on_nothing_else():
    keys = {
        int(streams.key(seed, stream, index))
        for seed in range(4)
        for stream in Stream
        for index in range(4)
    }
    assert len(keys) == 4 * len(Stream) * 4
    assert streams.key(3, Stream.ACTOR, 2) == streams.key(3, Stream.ACTOR, 2)
    assert streams.key(3, Stream.ACTOR).dtype == np.uint64


def test_generators_of_different_purposes_differ_and_repeat():
    first = streams.rng(1, Stream.LEARNER).random(4)
    np.testing.assert_array_equal(first, streams.rng(1, Stream.LEARNER).random(4))
    assert not np.array_equal(first, streams.rng(1, Stream.ACTOR).random(4))
    assert not np.array_equal(first, streams.rng(2, Stream.LEARNER).random(4))


def test_evaluation_and_training_never_share_a_purpose():
    assert len({int(stream) for stream in Stream}) == len(Stream)
