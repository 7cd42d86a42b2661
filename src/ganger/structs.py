"""A struct of arrays that compiled code receives by reference: one machine word.

A tuple of arrays would be passed as some seven words an array, at every call that is not inlined,
with reference counts kept along the way; measured on the simulator, that is ten times slower and
takes five times as long to compile. Here the word points to a header of addresses and shapes, and
compiled code reads `struct.field[i]` through it without counting references. The Python object
keeps the arrays alive: hold it for as long as compiled code may use it.

    class Point(ArrayStruct):
        xy: Any
        FIELDS = {"xy": (np.float32, 2)}     # dtype and number of dimensions (1 or 2)
"""

import weakref
from typing import Any, ClassVar, Self

import numpy as np
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np import numpy_support
from numba.np.arrayobj import make_array, populate_array

from ganger.compiled import JIT

_WORDS = 3  # of a field in the header: address, first and second dimension

_live: "weakref.WeakValueDictionary[int, ArrayStruct]" = weakref.WeakValueDictionary()


class ArrayStruct:
    """Base of structs of arrays. Fields are set once; their contents change freely."""

    FIELDS: ClassVar[dict[str, tuple[Any, int]]] = {}
    numba_type: ClassVar["StructType"]

    def __init_subclass__(cls) -> None:
        cls.numba_type = StructType(cls.__qualname__, tuple(cls.FIELDS.items()))

    def __init__(self, **arrays: Any) -> None:
        if arrays.keys() != self.FIELDS.keys():
            raise TypeError(f"{type(self).__name__} takes exactly {', '.join(self.FIELDS)}")
        self._header = np.zeros(_WORDS * len(arrays), np.int64)
        for index, (name, (dtype, dimensions)) in enumerate(self.FIELDS.items()):
            array = arrays[name]
            if array.dtype != dtype or array.ndim != dimensions or not array.flags.c_contiguous:
                raise TypeError(
                    f"{type(self).__name__}.{name}: {array.dtype} with {array.ndim} dimensions; "
                    f"expected contiguous {np.dtype(dtype)} with {dimensions}"
                )
            header = self._header[_WORDS * index :]
            header[0] = array.ctypes.data
            header[1 : 1 + dimensions] = array.shape
            setattr(self, name, array)
        self.address = self._header.ctypes.data
        _live[self.address] = self

    def replace(self, **arrays: Any) -> Self:
        """A struct with some arrays exchanged and the others shared."""
        return type(self)(**({name: getattr(self, name) for name in self.FIELDS} | arrays))


class StructType(types.Type):  # type: ignore[misc]  # numba ships no annotations
    """The type of one ArrayStruct class in compiled code."""

    def __init__(self, name: str, fields: tuple[tuple[str, tuple[Any, int]], ...]) -> None:
        self.arrays = tuple(
            (field, types.Array(numpy_support.from_dtype(np.dtype(dtype)), dimensions, "C"))
            for field, (dtype, dimensions) in fields
        )
        super().__init__(f"ArrayStruct({name}, {fields})")


@typeof_impl.register(ArrayStruct)  # type: ignore[untyped-decorator]
def _typeof(value: ArrayStruct, context: Any) -> StructType:
    return value.numba_type


@register_model(StructType)
class _StructModel(models.OpaqueModel):  # type: ignore[misc]
    """One pointer."""


@unbox(StructType)  # type: ignore[untyped-decorator]
def _unbox(typ: Any, obj: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(obj, "address")
    word = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(c.builder.inttoptr(word, cgutils.voidptr_t))


@infer_getattr
class _StructAttributes(AttributeTemplate):  # type: ignore[misc]
    key = StructType

    def generic_resolve(self, typ: StructType, attr: str) -> Any:
        return dict(typ.arrays).get(attr)


@lower_getattr_generic(StructType)  # type: ignore[untyped-decorator]
def _getattr(context: Any, builder: Any, typ: StructType, value: Any, attr: str) -> Any:
    index = [name for name, _ in typ.arrays].index(attr)
    array_type = typ.arrays[index][1]
    i64 = cgutils.intp_t
    header = builder.bitcast(value, i64.as_pointer())

    def word(k: int) -> Any:
        loaded = builder.load(builder.gep(header, [i64(_WORDS * index + k)]))
        # The header never changes, whatever is stored in between: let LLVM keep it in registers.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    array = make_array(array_type)(context, builder)
    item_size = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
    shape = [word(1 + k) for k in range(array_type.ndim)]
    strides = [i64(item_size)]
    if array_type.ndim == 2:
        strides.insert(0, builder.mul(shape[1], i64(item_size)))
    populate_array(
        array,
        data=builder.inttoptr(word(0), array.data.type),
        shape=shape,
        strides=strides,
        itemsize=i64(item_size),
        meminfo=None,
    )
    return array._getvalue()


def struct_at(cls: type[ArrayStruct]) -> Any:
    """A compiled function that turns an address into the struct of class `cls` that lives there."""
    result = cls.numba_type

    @intrinsic  # type: ignore[untyped-decorator]
    def at(typing: Any, address: Any) -> Any:
        def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], cgutils.voidptr_t)

        return result(types.int64), lower

    return at if JIT else _live.__getitem__
