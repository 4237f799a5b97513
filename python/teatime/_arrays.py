"""Arguments as the compiled part takes them: aligned, in C order, of a type that it knows."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import operator
import os
import re
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._teatime import CudaArray

#: Types that kernels take without a conversion.
NATIVE = frozenset(np.dtype(t) for t in ("f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4"))
#: Types with numbers that float32 does not hold.
WIDE = frozenset(np.dtype(t) for t in ("f8", "i4", "u4"))
_LARGEST = 2**53


def is_lazy(x: Any) -> bool:
    """Whether dask has yet to compute ``x``. An array of xarray's in memory has no graph."""
    graph = getattr(x, "__dask_graph__", None)
    return graph is not None and graph() is not None


def parameters(function: Any) -> list[str]:
    """The names of a function's parameters; none of some compiled functions."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def library(x: Any) -> str:
    """The name of the package that ``x`` is of."""
    return type(x).__module__.partition(".")[0]


def on_card(x: Any) -> bool:
    """Whether an array is in the memory of a CUDA GPU, as it says itself: by an interface of its own, or by DLPack alone."""
    if library(x) == "torch":
        # The interface of a tensor with a gradient raises an error that `hasattr` lets through.
        return bool(getattr(x, "is_cuda", False))
    if hasattr(x, "__cuda_array_interface__"):
        return True
    # CUDA is DLPack's device 2.
    return hasattr(x, "__dlpack_device__") and not hasattr(x, "__array__") and x.__dlpack_device__()[0] == 2


def host_array(x: Any, name: str, instead: str) -> NDArray[Any]:
    """``x`` as NumPy has it, of any type. TypeError for a dask array, which would silently be computed here, for one in a GPU's memory, and
    for one with masked elements."""
    if is_lazy(x):
        raise TypeError(f"`{name}` is a dask array, and this function would compute all of it here: teatime.dask.{instead} takes it")
    if on_card(x):
        raise TypeError(f"`{name}` is in the memory of a GPU: hand over `{name}.{to_host(x)}()`; teatime.adapter does so for a pipeline")
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError(f"`{name}` is a masked array: hand over `{name}.filled(value)`, with NaN where it may be missing")
    return np.from_dlpack(x) if hasattr(x, "__dlpack__") and not hasattr(x, "__array__") else np.asarray(x)


def to_host(x: Any) -> str:
    """The method that gives an array of a GPU's on the host: CuPy's, PyTorch's or Numba's."""
    return next((name for name in ("get", "cpu", "copy_to_host") if hasattr(x, name)), "get")


def on_host(x: Any, name: str, instead: str) -> NDArray[Any]:
    """``x`` as NumPy has it, of any type, copied where it is in the memory of a GPU. TypeError as of :func:`host_array`, where that
    has no method for it too."""
    if on_card(x) and hasattr(x, to_host(x)):
        x = getattr(x, to_host(x))()
    return host_array(x, name, instead)


def as_array(x: Any, name: str, instead: str) -> NDArray[Any]:
    """``x`` in native byte order and of a type that tensors hold: bool as uint8, 64-bit integers as float64 where that changes none.
    TypeError as of :func:`host_array`, and for other types."""
    if isinstance(x, CudaArray):
        return x  # type: ignore[return-value]
    a = host_array(x, name, instead)
    if a.dtype == np.bool_:
        a = a.view(np.uint8)
    elif is_long(a.dtype):
        if a.size and not -_LARGEST <= int(a.min()) <= int(a.max()) <= _LARGEST:
            raise ValueError(f"`{name}`: integers beyond 2**53 would change as float64, in which they are computed")
        a = a.astype(np.float64)
    elif a.dtype.kind not in "fiu" or a.dtype.newbyteorder("=") not in NATIVE:
        raise TypeError(f"`{name}` has the type {a.dtype}: bool, integers and floats of up to 64 bits are taken")
    elif not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    return a


def c_order(a: NDArray[Any]) -> NDArray[Any]:
    """Aligned and in C order, as an array in a GPU's memory is; a copy where it is not."""
    if isinstance(a, CudaArray):
        return a
    return np.require(a, requirements=("C", "A"))


def is_long(dtype: np.dtype[Any]) -> bool:
    """True for integers of 64 bits, which devices have as float64."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def either_order(a: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Aligned and in C order, and whether it is the transposed: an array in Fortran order is not copied."""
    if not isinstance(a, CudaArray) and a.flags.f_contiguous and not a.flags.c_contiguous:
        return c_order(a.T), True
    return c_order(a), False


def as_float32(a: NDArray[Any], name: str, *, integers: bool = False, why: str = "") -> tuple[NDArray[np.float32], float]:
    """``a`` as float32 but for a factor, and that factor: a power of two where numbers, or their squares, leave float32. Integers, and
    ``integers`` that are of float64 by now, are refused where they would change."""
    if isinstance(a, CudaArray):
        return a.astype("f4"), 1.0
    if integers or a.dtype.kind in "iu":
        return integers_as_float32(a, name, why), 1.0
    scale = scale_of(a)
    with np.errstate(over="ignore", under="ignore"):
        return (a if scale == 1 else a / scale).astype(np.float32, copy=False), scale


def integers_as_float32(a: NDArray[Any], name: str, why: str = "") -> NDArray[np.float32]:
    """Integers, also those that are of float64 by now, as float32. ValueError where that would change one."""
    narrow = a.astype(np.float32)
    if a.dtype.itemsize >= 4 and not np.array_equal(narrow.astype(np.float64), a):
        raise ValueError(f"`{name}`: integers beyond 2**24 would change as float32, in which this is computed{why}")
    return narrow


def scale_of(a: NDArray[Any]) -> float:
    """What the numbers of ``a`` are divided by before they become float32. A power of two changes no digit."""
    largest = max(abs(float(a.max(initial=0))), abs(float(a.min(initial=0))))
    if not 0 < largest < np.inf or 2.0**-40 < largest < 2.0**40:
        return 1.0
    return float(2.0 ** np.floor(np.log2(largest)))


def float_type(a: NDArray[Any]) -> np.dtype[Any]:
    """float32 of float32 and float16, else float64: what scikit-learn and sgkit give."""
    return np.dtype(np.float32 if a.dtype in (np.dtype("f4"), np.dtype("f2")) else np.float64)


def widened(a: NDArray[Any]) -> NDArray[Any]:
    """As float64 what float32 does not hold."""
    return a.astype(np.float64, copy=False) if a.dtype in WIDE else a


def of_one_type(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Both of the type that holds both."""
    common = np.result_type(a, b)
    if common not in NATIVE:
        common = np.dtype(np.float64)
    return a.astype(common, copy=False), b.astype(common, copy=False)


def whole(value: Any, name: str, *, most: int = 2**32 - 1) -> int:
    """A whole number from 0 on that a caller gave."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is {value!r}; it is a whole number, at least 0") from None
    if number < 0:
        raise ValueError(f"`{name}` is {number}; it is at least 0")
    if number > most:
        raise ValueError(f"`{name}` is {number}; it is at most {most}")
    return number


def is_path(x: Any) -> bool:
    """True for a path or URL, which is no array."""
    return isinstance(x, (str, os.PathLike))


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a URL."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", os.fspath(path)) is not None


def folder(path: str | os.PathLike[str]) -> str:
    """The whole path of a store that a caller gave, or its URL."""
    given = os.fspath(path)
    return given if is_url(given) else os.path.abspath(given)


def text_options(storage_options: dict[str, Any] | None) -> dict[str, str] | None:
    """Options of remote stores, as the compiled part takes them."""
    return None if storage_options is None else {str(key): str(value) for key, value in storage_options.items()}


#: The maximum numbers of a store's folders and files that are looked at.
_MOST_FOLDERS, _MOST_FILES = 1000, 10_000


def stamp(path: str) -> str:
    """What tells that a store was written anew: how large its first folders and files are, and when they last changed. Of a remote one,
    which one it is."""
    entries, left = [], _MOST_FILES
    for within, folders, files in itertools.islice(os.walk(path), _MOST_FOLDERS):
        folders.sort()
        some = sorted(files)[:left]
        left -= len(some)
        entries += [within, *(os.path.join(within, name) for name in some)]
    digest = hashlib.blake2b(digest_size=16)
    if is_url(path):
        digest.update(path.encode())
    # A path may lead into a zip archive.
    whole = PurePath(path)
    file = next(filter(os.path.isfile, map(str, (whole, *whole.parents))), path)
    for entry in entries or [file]:
        with contextlib.suppress(OSError):
            status = os.stat(entry)
            digest.update(f"{entry} {status.st_mtime_ns} {status.st_size}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
