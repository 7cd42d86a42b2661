"""Reads .npy files that hold pickled Python data, without ever running what they pickle.

Numpy's own loader unpickles anything, and even numpy's array constructors trust the sizes a pickle
gives them. Here the only names a pickle may use are numpy's array, scalar and dtype, and they stand
for small records of ours that check what they are given. Any other name is refused before it is
imported, and any instruction that data does not need before the pickle is opened at all.
"""

import io
import os
import pickle
import re
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format

from ganger.errors import WorkloadError

_NUMBER = re.compile(r"[biuf][1248]")
_OBJECT = re.compile(r"O[48]?")

# numpy moved its core from numpy.core to numpy._core in 2.0; files of both ages are about.
_ALLOWED = {
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy.core.multiarray", "scalar"): "scalar",
    ("numpy._core.multiarray", "scalar"): "scalar",
    ("_codecs", "encode"): "bytes",  # how Python 3 writes bytes in an old protocol
}


# Instructions of one length: values, lists, dicts, tuples, the memo, and calls of allowed names.
_FIXED = re.compile(
    rb"(?:K.|M..|J....|G.{8}|[])}(Naesut]|[\x85-\x89\x93\x94Rb]|[qh\x80].|j....)*+", re.DOTALL
)
# Instructions that say how many bytes follow, and the width of that number.
_COUNTED = {b"U": 1, b"C": 1, b"\x8c": 1, b"\x8a": 1, b"T": 4, b"X": 4, b"B": 4}


def _check_instructions(data: bytes) -> None:
    """Refuse instructions that data does not need, and counts larger than the file.

    The unpickler makes room for a memo as large as an instruction says, so a few bytes could fill
    the memory.
    """
    at = 0
    while True:
        match = _FIXED.match(data, at)
        at = match.end() if match else at
        code = data[at : at + 1]
        at += 1
        if code == b".":
            return
        if code in _COUNTED:
            width = _COUNTED[code]
            at += width + int.from_bytes(data[at : at + width], "little")
        elif code == b"c":  # a name, on two lines
            at = data.index(b"\n", data.index(b"\n", at) + 1) + 1
        elif code in (b"r", b"\x95"):  # a place in the memo; the length of a part
            width = 4 if code == b"r" else 8
            count = int.from_bytes(data[at : at + width], "little")
            if count > len(data):
                raise pickle.UnpicklingError(f"the count {count} in {len(data)} bytes")
            at += width
        elif code:
            raise pickle.UnpicklingError(f"the instruction {code!r}")
        else:
            raise EOFError("it ends too early")


class _Name:
    """An allowed name. One per use, without attributes, so a pickle can alter nothing shared."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        match self.kind, arguments:
            case "dtype", (str(code), *_):
                return _Dtype(code)
            case "array", (_Name(kind="ndarray"), _, _):
                return _Array()
            case "scalar", (_Dtype() as dtype, bytes() | str() as data):
                return dtype.numbers(data, 1)[0]
            case "bytes", (str(text), "latin1" | "latin-1"):
                return text.encode("latin-1")
        raise pickle.UnpicklingError(f"a malformed {self.kind}")

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"a state for the name {self.kind}")


class _Dtype:
    __slots__ = ("code", "order")

    def __init__(self, code: str) -> None:
        if not _NUMBER.fullmatch(code) and not _OBJECT.fullmatch(code):
            raise pickle.UnpicklingError(f"dtype {code[:20]!r}; expected numbers or objects")
        self.code = code
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        match state:
            case (int(), "<" | ">" | "=" | "|" as order, *_):
                self.order = order
            case _:
                raise pickle.UnpicklingError("a malformed dtype")

    def numbers(self, data: bytes | str, count: int) -> list[Any]:
        """Exactly `count` numbers from their bytes."""
        if isinstance(data, str):  # Python 2 wrote bytes as strings
            data = data.encode("latin-1")
        if not _NUMBER.fullmatch(self.code):
            raise pickle.UnpicklingError("bytes in an array of objects")
        dtype = np.dtype(self.order + self.code)
        if len(data) != count * dtype.itemsize:
            raise pickle.UnpicklingError(f"{len(data)} bytes for {count} numbers")
        values: list[Any] = np.frombuffer(data, dtype).tolist()
        return values


class _Array:
    """An array without dimensions, which stands for its one value, or with one, a list."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def __setstate__(self, state: Any) -> None:
        match state:
            case (int(), (), _Dtype() as dtype, bool() | int(), data):
                self.value = _items(dtype, data, 1)[0]
            case (int(), (int(count),), _Dtype() as dtype, bool() | int(), data):
                self.value = _items(dtype, data, count)
            case _:
                raise pickle.UnpicklingError("an array of another shape than () or (n,)")


def _items(dtype: _Dtype, data: Any, count: int) -> list[Any]:
    if isinstance(data, bytes | str):
        return dtype.numbers(data, count)
    if type(data) is list and len(data) == count and _OBJECT.fullmatch(dtype.code):
        return data
    raise pickle.UnpicklingError(f"array contents that are not {count} items")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        kind = _ALLOWED.get((module, name))
        if kind is None:
            raise pickle.UnpicklingError(f"the name {f'{module}.{name}'[:80]!r}")
        return _Name(kind)


def plain(value: Any) -> Any:
    """What a value of an unpickled structure stands for: an array's contents, or itself."""
    return value.value if isinstance(value, _Array) else value


def read_npy(path: str | os.PathLike[str]) -> Any:
    """Read an array of numbers, or the one Python object that an array of objects holds.

    Nested arrays in the object are opened with `plain`.

    Raises:
        WorkloadError: naming the file, if it is missing, damaged, or pickles anything but data.
    """
    try:
        with open(path, "rb") as file:
            version = npy_format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = npy_format.read_array_header_1_0(file)
            else:
                shape, fortran, dtype = npy_format.read_array_header_2_0(file)
            if dtype == np.dtype(object):
                data = file.read()
                _check_instructions(data)
                buffered = io.BufferedReader(io.BytesIO(data))
                return plain(_Unpickler(buffered, encoding="latin-1").load())
            if dtype.kind not in "biuf":
                raise ValueError(f"dtype {dtype}; expected numbers")
            # From the bytes that are there, not by the size that the header claims.
            order: Literal["F", "C"] = "F" if fortran else "C"
            return np.frombuffer(file.read(), dtype).reshape(shape, order=order)
    except OSError as error:
        raise WorkloadError(f"{path}: cannot be read: {error.strerror}") from None
    except pickle.UnpicklingError as error:
        raise WorkloadError(
            f"{path}: refused, its pickle holds {error}; expected only arrays, dicts, lists and "
            "numbers"
        ) from None
    except Exception as error:  # a damaged pickle or header can raise nearly anything
        raise WorkloadError(
            f"{path}: not a readable .npy file ({type(error).__name__}: {str(error)[:100]})"
        ) from None
