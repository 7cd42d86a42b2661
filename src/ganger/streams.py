"""Random streams: every draw is keyed by what it is for, never by when it happens.

A key is a 64-bit word; `mix` is the finaliser of SplitMix64 (Steele, Lea & Flood 2014), so keys
that differ in one bit give unrelated words. Compiled code derives keys with `derive` and turns
them into numbers with `uniform`; Python code asks for a numpy generator with `rng`.
"""

import enum

import numpy as np
from numpy.random import Generator, Philox

from ganger.compiled import JIT, compiled

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_ONE = np.uint64(1)
_TO_UNIT = 2.0**-53

if not JIT:  # 64-bit wrap-around is meant; compiled code does not warn about it
    np.seterr(over="ignore")


class Stream(enum.IntEnum):
    """What a random number is for. Streams of different purposes never share numbers."""

    DURATIONS = 1
    JOB_LIST = 2
    EVALUATION = 3
    TUNING = 4
    ACTOR = 5
    LEARNER = 6
    SYNTHETIC = 7
    SCHEDULER = 8
    VALIDATION = 9


@compiled
def mix(word):
    """Scramble a 64-bit word; a bijection."""
    word = (word ^ (word >> _S30)) * _MIX_1
    word = (word ^ (word >> _S27)) * _MIX_2
    return word ^ (word >> _S31)


@compiled
def derive(key, index):
    """The key of a key's child `index` (uint64, int64 >= 0)."""
    return mix(key + (np.uint64(index) + _ONE) * GOLDEN)


@compiled
def uniform(key):
    """A float64 in [0, 1) from a key."""
    return np.float64(key >> _S11) * _TO_UNIT


def key(seed: int, stream: Stream, index: int = 0) -> np.uint64:
    """The 64-bit key of a stream's member `index`, for compiled code."""
    words = np.random.SeedSequence([seed, int(stream), index]).generate_state(1, np.uint64)
    return np.uint64(words[0])


def rng(seed: int, stream: Stream, index: int = 0) -> Generator:
    """A numpy generator of a stream's member `index`; seeds and indices are 0 or more."""
    return Generator(Philox(np.random.SeedSequence([seed, int(stream), index])))
