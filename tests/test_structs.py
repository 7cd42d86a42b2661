"""Structs of arrays: read and written by reference, compiled or not."""

from typing import Any, ClassVar

import numpy as np
import pytest

from ganger.compiled import compiled, records
from ganger.structs import ArrayStruct, struct_at

pytestmark = pytest.mark.uncompiled

POINT = np.dtype([("x", "f8"), ("n", "i4")], align=True)


class Sample(ArrayStruct):
    points: Any
    grid: Any
    FIELDS: ClassVar = {"points": (POINT, 1), "grid": (np.float32, 2)}


_sample_at = struct_at(Sample)


@compiled
def scale(sample, factor):
    for i in range(len(sample.points)):
        sample.points[i].x *= factor
        sample.points[i].n += 1
    total = 0.0
    for i in range(sample.grid.shape[0]):
        for k in range(sample.grid.shape[1]):
            sample.grid[i, k] += factor
            total += sample.grid[i, k]
    return total


@compiled
def scale_at(addresses, factor):
    total = 0.0
    for i in range(len(addresses)):
        total += scale(_sample_at(addresses[i]), factor)
    return total


def new_sample(points=3, shape=(2, 5)):
    sample = Sample(
        points=records(points, POINT),
        grid=np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape),
    )
    sample.points["x"] = 1.5
    return sample


def test_compiled_code_reads_and_writes_the_arrays_in_place():
    sample = new_sample()
    expected = float((sample.grid + 2).sum())
    assert scale(sample, 2.0) == expected
    assert sample.points["x"].tolist() == [3.0] * 3
    assert sample.points["n"].tolist() == [1] * 3
    assert sample.grid[1, 4] == 11.0


def test_structs_are_found_by_their_address():
    samples = [new_sample(), new_sample(points=1, shape=(1, 1))]
    scale_at(np.array([sample.address for sample in samples]), 2.0)
    assert [sample.points["n"].tolist() for sample in samples] == [[1, 1, 1], [1]]


def test_empty_arrays_are_fine():
    assert scale(new_sample(points=0, shape=(0, 4)), 2.0) == 0.0


def test_replacing_an_array_shares_the_others():
    sample = new_sample()
    other = sample.replace(grid=np.zeros((1, 1), np.float32))
    assert other.points is sample.points
    scale(other, 2.0)
    assert sample.points["n"].tolist() == [1] * 3
    assert sample.grid[0, 0] == 0.0


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"points": records(1, POINT)},
        {"points": records(1, POINT), "grid": np.zeros((1, 1), np.float64)},
        {"points": records(1, POINT), "grid": np.zeros(4, np.float32)},
        {"points": records(1, POINT), "grid": np.zeros((4, 4), np.float32).T[:, ::2]},
        {"points": np.zeros(1), "grid": np.zeros((1, 1), np.float32)},
    ],
)
def test_arrays_of_the_wrong_kind_are_refused(arrays):
    with pytest.raises(TypeError, match="Sample"):
        Sample(**arrays)
