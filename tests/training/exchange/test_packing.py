"""A trajectory that travels as one buffer arrives as it was sent, or not at all."""

import numpy as np
import pytest
import toys

from ganger.policy.layout import aligned_zeros, vector_size
from ganger.training.acting import Decisions
from ganger.training.exchange import Header, Parameters
from ganger.training.samples import Samples

packing = pytest.importorskip("ganger.training.exchange.packing", reason="needs ganger[ray]")
PARAMETERS = Parameters(aligned_zeros(vector_size(False)), 5)


def acted():
    actor = toys.actor(executors=(1, 3))
    return [actor.act(PARAMETERS) for _ in range(3)][-1]  # by then, episodes have ended


def test_what_is_unpacked_is_what_was_packed():
    sent = acted()
    assert sent.outcomes
    header = Header(3, 1, 7, 5)
    packed, buffer = packing.pack(header, sent)
    received = packing.unpack(packed, buffer)
    assert received.header == header
    assert received.payload.outcomes == sent.outcomes
    assert received.payload.seconds == sent.seconds
    mine, theirs = Samples([sent.samples]), Samples([received.payload.samples])
    for name in ("chosen", "level", "log_probability", "cost", "elapsed_s", "done", "cells"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    used = {"stages": mine.rows.stage_pointer[-1], "jobs": mine.rows.job_pointer[-1]}
    for name in type(mine.rows).FIELDS:
        array = getattr(theirs.rows, name)
        assert np.array_equal(getattr(mine.rows, name)[: len(array)], array), name
        assert len(array) == used.get(name, len(array))
        assert array.ctypes.data % 16 == 0
    assert set(Decisions.FIELDS) == set(type(received.payload.samples.decisions).FIELDS)


@pytest.mark.parametrize("place", [0.0, 0.5, 0.99])
def test_one_flipped_bit_anywhere_is_noticed(place):
    packed, buffer = packing.pack(Header(2, 0, 9, 0), acted())
    buffer[int(place * len(buffer))] ^= 4
    with pytest.raises(packing.DamagedError, match="trajectory 9 of actor 2 is damaged"):
        packing.unpack(packed, buffer)
