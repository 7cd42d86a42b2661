import importlib
import io
import os
import pickle
import random
import struct
import sys

import numpy as np
import pytest

from ganger.errors import WorkloadError
from ganger.workload.readers.npy import plain, read_npy


def npy(payload):
    """An .npy file of an array of objects whose pickle is `payload`."""
    out = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": ()}
    np.lib.format.write_array_header_1_0(out, header)
    return out.getvalue() + payload


def read(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    return read_npy(path)


def saved(tmp_path, value):
    path = tmp_path / "saved.npy"
    np.save(path, value, allow_pickle=True)
    return path


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_numbers_are_read(tmp_path, order):
    for dtype in (np.float64, np.int32, np.bool_, ">f4"):
        value = np.asarray(np.arange(6).reshape(2, 3), dtype, order=order)
        assert np.array_equal(read_npy(saved(tmp_path, value)), value)


def test_an_object_of_dicts_lists_and_numbers_is_read(tmp_path):
    value = {0: {"a": {2: [1, 300, 70_000, -5], 5: [2.5, 2**40, None, True]}}, 1: {"b": {}}}
    assert read_npy(saved(tmp_path, np.array(value, object))) == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_protocols_and_numpy_values_inside_are_read(tmp_path, protocol):
    value = {"scalar": np.int64(7), "float": np.float64(0.1), "list": np.array([1.5, 2.5])}
    array = np.array(value, object)
    # numpy.save's protocol is its own choice; other writers chose others.
    result = read(tmp_path, npy(pickle.dumps(array, protocol=min(protocol, 4))))
    assert result["scalar"] == 7
    assert result["float"] == 0.1
    assert plain(result["list"]) == [1.5, 2.5]


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def test_the_hostile_pickles_of_these_tests_do_execute_elsewhere(tmp_path):
    marker = tmp_path / "executed"
    path = tmp_path / "x.npy"
    path.write_bytes(npy(pickle.dumps(Calls(os.system, f"touch {marker}"))))
    np.load(path, allow_pickle=True)
    assert marker.exists()


def attribute(module, name):
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        return value
    except (ImportError, AttributeError):
        pytest.skip(f"{module}.{name} is not in this version")


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize(
    ("module", "name", "make_arguments"),
    [
        ("os", "system", lambda marker: (f"touch {marker}",)),
        ("subprocess", "check_output", lambda marker: (["touch", marker],)),
        ("builtins", "eval", lambda marker: (f"open({marker!r}, 'w')",)),
        ("builtins", "exec", lambda marker: (f"open({marker!r}, 'w')",)),
        ("builtins", "open", lambda marker: (marker, "w")),
        ("builtins", "getattr", lambda marker: (os.system, "__call__")),
        ("numpy.testing._private.utils", "runstring", lambda m: (f"open({m!r}, 'w')", {})),
        ("numpy", "memmap", lambda marker: (marker, "u1", "w+", 0, (4,))),
        ("numpy", "save", lambda marker: (marker, [1])),
        ("numpy", "fromfile", lambda marker: (marker,)),
        ("numpy", "ndarray.tofile", lambda marker: (np.zeros(1), marker)),
        ("importlib", "import_module", lambda marker: ("antigravity",)),
    ],
)
def test_a_hostile_pickle_executes_nothing(tmp_path, module, name, make_arguments, protocol):
    marker = tmp_path / "executed"
    hostile = Calls(attribute(module, name), *make_arguments(str(marker)))
    for value in (hostile, {"a": [hostile]}, np.array([hostile, 1], object)):
        content = npy(pickle.dumps(value, protocol=protocol))
        with pytest.raises(WorkloadError, match=r"x\.npy: refused") as caught:
            read(tmp_path, content)
        assert "\n" not in str(caught.value)
    assert not marker.exists()


def text(value):
    return b"\x8c" + bytes([len(value)]) + value.encode()


def name(module, attribute):
    return text(module) + text(attribute) + b"\x93"


@pytest.mark.parametrize(
    "hidden",
    [
        ("numpy.f2py", "crackfortran.os.system"),
        ("numpy.f2py.capi_maps", "os.system"),
        ("numpy.distutils.exec_command", "exec_command"),
        ("numpy.testing", "run_module_suite"),
        ("numpy.core.multiarray", "os"),
        ("numpy", "ndarray.__reduce__"),
        ("numpy.core.multiarray", "_reconstruct.__globals__"),
        ("numpy.core._internal", "eval"),
        ("copyreg", "_reconstructor"),
    ],
)
def test_a_name_is_refused_before_its_module_is_imported(tmp_path, hidden):
    before = set(sys.modules)
    payload = b"\x80\x04" + name(*hidden) + text("true") + b"\x85R."
    with pytest.raises(WorkloadError, match="refused"):
        read(tmp_path, npy(payload))
    assert set(sys.modules) <= before


RECONSTRUCT = name("numpy.core.multiarray", "_reconstruct")
NDARRAY = name("numpy", "ndarray")
DTYPE = name("numpy", "dtype")
EMPTY_ARRAY = RECONSTRUCT + NDARRAY + b"K\x00\x85C\x01b\x87R"

TRICKS = {
    "another subtype": RECONSTRUCT + DTYPE + b"K\x00\x85C\x01b\x87R",
    "a state for a name": DTYPE + b"}" + text("kind") + text("array") + b"sb",
    "attributes for a name": DTYPE + b"N}" + text("kind") + text("array") + b"s\x86b",
    "attributes for an array": EMPTY_ARRAY + b"N}" + text("value") + b"K\x01s\x86b",
    "a type by name": DTYPE + text("V8") + b"\x85R",
    "a shape larger than the data": EMPTY_ARRAY
    + b"(K\x01J\x00\x00\x00\x7f\x85"
    + DTYPE
    + text("O8")
    + b"\x85R\x89]t"
    + b"b",
    "pointers as numbers": EMPTY_ARRAY
    + b"(K\x01)"
    + DTYPE
    + text("O8")
    + b"\x85R\x89C\x08AAAAAAAAtb",
    "bytes for a list": name("numpy.core.multiarray", "scalar")
    + DTYPE
    + text("O8")
    + b"\x85RC\x08AAAAAAAA\x86R",
    "another codec": name("_codecs", "encode") + text("x") + text("rot13") + b"\x86R",
    "a memo of gigabytes": b"Nr\xff\xff\xff\x7f",
    "a frame of gigabytes": b"\x95\xff\xff\xff\xff\x00\x00\x00\x00N",
    "an extension": b"\x82\x01",
    "a persistent id": b"K\x01Q",
    "a new object": DTYPE + b")\x81",
    "an instance": b"(ios\nsystem\n",
    "a built object": b"(" + DTYPE + b"o",
    "an attribute of a list": b"]}" + text("a") + b"K\x01sb",
    "protocol 0": b"I1\n",
}


@pytest.mark.parametrize("payload", TRICKS.values(), ids=TRICKS.keys())
def test_tricks_with_allowed_names_are_refused(tmp_path, payload):
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, npy(b"\x80\x04" + payload + b"."))
    assert str(caught.value).startswith(str(tmp_path / "x.npy"))
    # What follows still reads: nothing shared was altered.
    assert read_npy(saved(tmp_path, np.array({"a": 1}, object))) == {"a": 1}


def test_a_file_cut_anywhere_gives_one_error(tmp_path):
    value = {i: {"first_wave": {2: [1, 300, 70_000], 5: []}} for i in range(3)}
    whole = saved(tmp_path, np.array(value, object)).read_bytes()
    for size in range(len(whole)):
        with pytest.raises(WorkloadError):
            read(tmp_path, whole[:size])


def test_damaged_bytes_give_data_or_one_error(tmp_path):
    value = {i: {"first_wave": {2: [1, 300, 70_000], 5: [0.5]}} for i in range(3)}
    contents = [
        saved(tmp_path, np.array(value, object)).read_bytes(),
        saved(tmp_path, np.eye(3)).read_bytes(),
        npy(pickle.dumps(np.array([np.float64(1), np.arange(3)], object), protocol=2)),
    ]
    random_ = random.Random(0)
    for _ in range(3000):
        content = bytearray(random_.choice(contents))
        for _ in range(random_.randint(1, 3)):
            content[random_.randrange(len(content))] = random_.randrange(256)
        try:
            read(tmp_path, bytes(content))
        except WorkloadError as error:
            assert str(error).startswith(str(tmp_path / "x.npy"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(WorkloadError, match=r"y\.npy: cannot be read: No such file"):
        read_npy(tmp_path / "y.npy")


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    out = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**9)}
    np.lib.format.write_array_header_1_0(out, header)
    with pytest.raises(WorkloadError, match="not a readable"):
        read(tmp_path, out.getvalue() + struct.pack("d", 1.0))
