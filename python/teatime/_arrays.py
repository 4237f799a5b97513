"""Arguments as the compiled part takes them: aligned, in C order, of a type that it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Types that are taken as they are.
NATIVE = frozenset(np.dtype(t) for t in ("f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4"))
_LARGEST = 2**53


def refuse_lazy(x: Any, name: str, instead: str) -> None:
    """Raises TypeError for a dask array, which would silently be computed here."""
    if hasattr(x, "__dask_graph__"):
        raise TypeError(f"`{name}` is a dask array, and this function would compute all of it here: teatime.dask.{instead} takes it")


def as_array(x: Any, name: str, instead: str) -> NDArray[Any]:
    """``x`` in native byte order and of a type that tensors hold: bool as uint8, 64-bit integers as float64 where that changes none."""
    refuse_lazy(x, name, instead)
    if hasattr(x, "__cuda_array_interface__"):
        raise TypeError(f"`{name}` is in the memory of a GPU: hand over `{name}.get()`; teatime.adapter does so for a pipeline")
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError(f"`{name}` is a masked array: hand over `{name}.filled(value)`, with NaN where it may be missing")
    a = np.from_dlpack(x) if hasattr(x, "__dlpack__") and not hasattr(x, "__array__") else np.asarray(x)
    if a.dtype == np.bool_:
        a = a.view(np.uint8)
    elif a.dtype.kind in "iu" and a.dtype.itemsize == 8:
        if a.size and not -_LARGEST <= int(a.min()) <= int(a.max()) <= _LARGEST:
            raise ValueError(f"`{name}`: integers beyond 2**53 would change as float64, in which they are computed")
        a = a.astype(np.float64)
    elif a.dtype.kind not in "fiu" or a.dtype.newbyteorder("=") not in NATIVE:
        raise TypeError(f"`{name}` has the type {a.dtype}: bool, integers and floats of up to 64 bits are taken")
    elif not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a


def c_order(a: NDArray[Any]) -> NDArray[Any]:
    """Aligned and in C order; a copy where it is not."""
    return np.require(a, requirements=("C", "A"))


def either_order(a: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Aligned and in C order, and whether it is the transposed: an array in Fortran order is not copied."""
    if a.flags.f_contiguous and not a.flags.c_contiguous:
        return c_order(a.T), True
    return c_order(a), False


def as_float32(a: NDArray[Any], name: str) -> NDArray[np.float32]:
    """``a`` rounded to float32, which no number may leave, and which no integer may change in."""
    if a.dtype == np.float32:
        return a
    with np.errstate(over="ignore"):
        narrow = a.astype(np.float32)
    if a.dtype.kind in "iu":
        if a.dtype.itemsize >= 4 and not np.array_equal(narrow.astype(np.float64), a.astype(np.float64)):
            raise ValueError(f"`{name}`: integers beyond 2**24 would change as float32, in which this is computed")
    elif a.dtype.itemsize == 8 and not np.array_equal(np.isfinite(narrow), np.isfinite(a)):
        raise ValueError(f"`{name}`: numbers beyond the range of float32, in which this is computed")
    return narrow


def float_type(*arrays: NDArray[Any]) -> np.dtype[Any]:
    """float32 where all are of it or of float16, else float64: what scikit-learn and sgkit give."""
    narrow = all(a.dtype in (np.dtype("f4"), np.dtype("f2")) for a in arrays)
    return np.dtype(np.float32 if narrow else np.float64)


def of_one_type(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both of the type that holds both; of integers that only 64 bits hold, float64."""
    common = np.result_type(a, b)
    if common not in NATIVE:
        common = np.dtype(np.float64)
    return a.astype(common, copy=False), b.astype(common, copy=False)
