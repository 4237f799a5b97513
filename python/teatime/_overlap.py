"""Functions of arrays on arrays that need not fit memory, box by box."""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import CodeType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _teatime
from ._arrays import (
    NATIVE, as_array, c_order, folder, host_array, is_long, is_path, is_url, library, on_card, parameters, stamp, text_options, whole,
)
from ._cuda import cupy_array, given_array
from ._device import Device, opened_device, run_options
from ._teatime import CudaArray, StoredArray

#: NumPy's modes of padding for dask's boundaries; any other boundary is a constant.
_PADDING = {"reflect": "symmetric", "nearest": "edge"}

#: The maximum number of elements of the parts of a box with their halos, for each element of the box.
_HALOS = 1.25


class Mapped(NamedTuple):
    """The counts of a :func:`map_overlap` to a Zarr array or an image."""

    #: The number of boxes that were computed.
    boxes: int
    #: The number of boxes that an earlier call had written.
    found: int
    #: The number of elements that were read, halos included, for each element that was computed.
    times_covered: float
    #: The number of times that a chunk was decoded, on average.
    times_decoded: float
    #: The bytes of host memory that were planned, if the memory is bounded.
    memory: int | None


class Overlap:
    """A function of a box with its halo, as dask's ``map_overlap`` calls it, for the boxes of one array."""

    def __init__(
        self, func: Callable[..., Any], shape: Sequence[int], given: np.dtype[Any], depth: Any, boundary: Any, dtype: DTypeLike, trim: bool,
        temporary: float, kwargs: dict[str, Any], threads: int = 1,
    ) -> None:
        self.func, self.trim, self.kwargs, self.threads = func, trim, kwargs, threads
        self.shape, ndim = tuple(shape), len(shape)
        self.is_bool = given.kind == "b"
        read = np.dtype("u1" if self.is_bool else "f8" if is_long(given) else given).newbyteorder("=")
        self.dtype = np.dtype(read if dtype is None else dtype).newbyteorder("=")
        if self.dtype not in NATIVE:
            raise ValueError(f"`dtype` of {self.dtype}: a float, or an integer of up to 32 bits; uint8 takes booleans")
        sides = [each if isinstance(each, (tuple, list)) else (each, each) for each in _per_axis(depth, 0, ndim, "depth")]
        if wrong := [each for each in sides if len(each) != 2]:
            raise ValueError(f"`depth` of {wrong[0]}: the elements before and after a box")
        self.depth = [(whole(before, "depth"), whole(after, "depth")) for before, after in sides]
        self.boundary = ["none" if each is None else each for each in _per_axis(boundary, "none", ndim, "boundary")]
        for each in self.boundary:
            if isinstance(each, str) and each not in ("none", "periodic", *_PADDING):
                raise ValueError(f"`boundary` is none, periodic, reflect, nearest or a number, not {each!r}")
        if any(each == "reflect" and before != after for each, (before, after) in zip(self.boundary, self.depth)):
            raise ValueError(f"`depth` of {depth}: with the boundary reflect, it is as large after a box as before")
        self.padded = [each not in ("none", "periodic") and depth != (0, 0) for each, depth in zip(self.boundary, self.depth)]
        # Padding copies the argument once per axis, and parts are copies. The function makes its result, of which the core is then copied.
        self.shares = threads > 1 and any(map(any, self.depth))
        own, made = read.itemsize * (self.shares or any(self.padded)), self.dtype.itemsize
        self.held = _HALOS * (read.itemsize + max(2 * own, own + made + temporary, 2 * made))
        self.tells = "block_info" in parameters(func)

    def compiled(self) -> dict[str, Any]:
        """Returns the function as the compiled part takes it."""
        return {
            "call": self, "depth": self.depth, "periodic": [each == "periodic" for each in self.boundary], "held": int(np.ceil(self.held)),
            "padding": [sum(depth) * padded for depth, padded in zip(self.depth, self.padded)], "dtype": str(self.dtype),
        }

    def job(self, *words: Any) -> str:
        """Returns a text that differs where results do, as far as this process can tell."""
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            return " ".join(map(str, [*words, _identity(self.func), _ordered(self.kwargs), self.depth, self.boundary, self.trim]))

    def __call__(self, x: Any, core: list[tuple[int, int]], before: list[int]) -> Any:
        """Returns the result for the box ``core``, of which ``x`` has ``before`` elements of the halo before it along each axis."""
        # A box is cut along the axis on which halos are the smallest share of it.
        axis = max(range(len(core)), key=lambda axis: (core[axis][1] - core[axis][0]) / (1 + sum(self.depth[axis])))
        (start, end), (head, tail) = core[axis], self.depth[axis]
        most = (end - start) * (_HALOS - 1) / (head + tail) if head + tail else end - start
        count = int(min(self.threads, most))
        if count <= 1:
            return c_order(self._part(x, core, before))
        cuts = [start + (end - start) * part // count for part in range(count + 1)]

        def part(first: int, last: int) -> Any:
            place = before[axis] + first - start
            around = slice(max(0, place - head), place + last - first + tail)
            inner = [*core[:axis], (first, last), *core[axis + 1 :]]
            halo = [*before[:axis], place - around.start, *before[axis + 1 :]]
            return self._part(x[(slice(None),) * axis + (around,)], inner, halo)

        with ThreadPoolExecutor(count) as pool:
            return c_order(np.concatenate(list(pool.map(part, cuts, cuts[1:])), axis))

    def _part(self, x: Any, core: list[tuple[int, int]], before: list[int]) -> Any:
        """Returns the result for a part of a box. Its place is noted where that fails."""
        try:
            return self._result(x, core, before)
        except Exception as error:
            if hasattr(error, "add_note"):  # From Python 3.11 on.
                error.add_note(f"in the box [{', '.join(f'{start}:{end}' for start, end in core)}]")
            raise

    def _result(self, x: Any, core: list[tuple[int, int]], before: list[int]) -> Any:
        extents = tuple(end - start for start, end in core)
        x, before = self._padded(_of_library(x), extents, before)
        if isinstance(x, np.ndarray) and self.shares:
            # A function may write to its argument, and the halos of parts overlap.
            x = x.copy() if x.base is not None else x
        if self.is_bool and isinstance(x, np.ndarray):
            x = x.view(np.bool_)
        told: dict[str, Any] = {}
        if self.tells:
            around = [(start - halo, start - halo + extent) for (start, _), halo, extent in zip(core, before, x.shape)]
            told["block_info"] = {
                0: {"shape": self.shape, "array-location": around, "dtype": x.dtype},
                None: {"shape": self.shape, "array-location": core, "dtype": self.dtype},
            }
        result = self.func(x, **told, **self.kwargs)
        result = result if on_card(result) else host_array(result, "the result of `func`", "map_overlap")
        wanted = tuple(x.shape) if self.trim else extents
        if tuple(result.shape) != wanted:
            why = f"with trim={self.trim} it is of {wanted}" + ("" if self.trim else ", the box without its halo")
            raise ValueError(f"`func` gave an array of {tuple(result.shape)} for one of {tuple(x.shape)}; {why}")
        if wanted != extents:
            result = result[tuple(slice(halo, halo + extent) for halo, extent in zip(before, extents))]
        result = given_array(result, "the result of `func`", "map_overlap")
        if result.dtype == np.bool_ and self.dtype == np.uint8:
            result = result.view(np.uint8)
        if result.dtype != self.dtype:
            raise TypeError(f"`func` gave {result.dtype}, and `dtype` is {self.dtype}")
        return result

    def _padded(self, x: Any, extents: Sequence[int], before: Sequence[int]) -> tuple[Any, list[int]]:
        """Returns ``x`` with what stands beyond the ends of the array, and the extents of the halo before the box."""
        before = list(before)
        for axis, mode in enumerate(self.boundary):
            head, tail = self.depth[axis]
            lacking = (head - before[axis], tail - (x.shape[axis] - before[axis] - extents[axis]))
            if not self.padded[axis] or lacking == (0, 0):
                continue
            options = {"mode": _PADDING[mode]} if mode in _PADDING else {"mode": "constant", "constant_values": mode}
            # A box has at least as many elements beside an end as are reflected there, or it is the whole axis.
            width = [lacking if other == axis else (0, 0) for other in range(len(extents))]
            x, before[axis] = (import_module("cupy") if on_card(x) else np).pad(x, width, **options), head
        return x, before


def _per_axis(value: Any, default: Any, count: int, name: str) -> list[Any]:
    """Returns a value for each axis, as dask takes them."""
    if isinstance(value, dict):
        if not all(axis in range(count) for axis in value):
            raise ValueError(f"`{name}` has the axes {sorted(value)}, and the array has {count}")
        return [value.get(axis, default) for axis in range(count)]
    values = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(values) != count:
        raise ValueError(f"`{name}` has {len(values)} values, and the array has {count} axes")
    return values


def _identity(func: Any) -> str:
    """Returns the name of a function, with its defaults and a digest of its code if that is Python's. An object stands for its type's call."""

    def parts(code: CodeType) -> list[Any]:
        return [code.co_code, code.co_names, *(parts(each) if isinstance(each, CodeType) else _ordered(each) for each in code.co_consts)]

    if isinstance(func, functools.partial):
        return f"{_identity(func.func)} {_ordered(func.args)} {_ordered(func.keywords)}"
    if not hasattr(func, "__qualname__"):
        return _identity(type(func).__call__)
    name, code = f"{func.__module__}.{func.__qualname__}", getattr(func, "__code__", None)
    if not code:
        return name
    defaults = [_ordered(func.__defaults__), _ordered(func.__kwdefaults__)]
    return f"{name} {hashlib.blake2b(repr([parts(code), defaults]).encode(), digest_size=8).hexdigest()}"


def _ordered(value: Any) -> Any:
    """Returns a value whose text is the same in every process: the elements of sets, and of sets in lists and dicts, in order."""
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(map(repr, map(_ordered, value)))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *map(_ordered, value)]
    return sorted((repr(key), _ordered(each)) for key, each in value.items()) if isinstance(value, dict) else value


def _of_library(x: Any) -> Any:
    """Returns an array of CuPy's for one in a GPU's memory, if CuPy is installed."""
    try:
        return cupy_array(x, x.device) if isinstance(x, CudaArray) else x
    except ImportError:
        return x


def opened(
    x: Any, fill: bool, level: int | None, storage_options: dict[str, Any] | None = None, name: str = "x", function: str = "map_overlap"
) -> tuple[StoredArray, np.dtype[Any], str]:
    """Returns an array that is read in boxes, the type of its elements, and words that differ where its files do."""
    if level is not None and (level := whole(level, "level")) < 0:
        raise ValueError(f"`level` is {level}; it is at least 0")
    if is_path(x):
        path = folder(x)
        stored = StoredArray(path, None, fill, text_options(storage_options), images=True, level=level)
        return stored, np.dtype(stored.dtype), stamp(path if stored.path_in_image is None else f"{path}/{stored.path_in_image}")
    for option, given in (("storage_options", storage_options), ("level", level)):
        if given is not None:
            raise TypeError(f"`{option}` is for a path as `{name}`")
    if library(x) in ("zarr", "h5py"):
        raise TypeError(f"`{name}` is {type(x)}, which would be read as a whole: the path of a Zarr array is read in boxes")
    array = host_array(x, name, function)
    if array.ndim == 0:
        raise ValueError(f"`{name}` has no axis")
    return StoredArray.of_array(c_order(as_array(array, name, function))), array.dtype, ""


def target(
    out: Any, stored: StoredArray, chunks: Any, resume: bool, job: str, pyramid: bool
) -> tuple[str, list[int] | None, str, bool, bool]:
    """Returns the Zarr array or the image of a result, as the compiled part takes it: its folder, its chunks, words of its job, whether it is
    continued, and whether an image gets smaller levels."""
    if not is_path(out):
        raise TypeError(f"`out` is {type(out)}; it is the path of a Zarr array or an image. One array is read")
    if pyramid and stored.path_in_image is None:
        raise ValueError("`pyramid` is of OME-Zarr images alone")
    if is_url(out):
        raise ValueError(f"`out` is {out!r}: results are written to disks alone")
    path = folder(out)
    if os.path.exists(path) and not resume:
        raise FileExistsError(f"`out` {path} is there; resume=True goes on with what was begun")
    size = None if chunks is None else [max(1, whole(each, "chunks")) for each in _per_axis(chunks, 1, len(stored.shape), "chunks")]
    return path, size, job, resume, pyramid


def map_overlap(
    func: Callable[..., Any], x: Any, out: str | os.PathLike[str] | None = None, depth: Any = 0, boundary: Any = "none",
    dtype: DTypeLike = None, *, trim: bool = True, chunks: int | Sequence[int] | None = None, resume: bool = False, fill: bool = False,
    level: int | None = None, pyramid: bool = False, temporary: float = 0, device: Device | str = "cpu", progress: Any = None,
    memory: int | str | None = None, **kwargs: Any,
) -> NDArray[Any] | Mapped:
    """A function of your own on an array that need not fit memory, box by box: dask's ``map_overlap``, with its arguments.

    Boxes are as large as ``memory`` allows. While one is computed, others are read and written. On the CPU as many parts of a box are computed
    at once as the device has threads. What ``func`` gives must not depend on how the array is cut. An exception of ``func`` is raised as it
    is, with a note that names the box.

    Parameters
    ----------
    func
        Takes a box with its halo, and gives an array of the same shape. On the CPU these are NumPy's, on a CUDA GPU CuPy's, or
        :class:`teatime.CudaArray` without CuPy. One that has an argument ``block_info`` gets dask's: ``block_info[None]["array-location"]``
        is the box, ``block_info[0]["array-location"]`` the box with its halo, ``["shape"]`` that of the array. The rest of dask's is not there.
    x
        The path of a Zarr array, of an OME-Zarr image or of a .npy file; or an array in memory, which may be a :class:`numpy.memmap`. One to
        five axes. int64 and uint64 arrive as float64, and are refused from 2**53 on; other types as they are, and with NaN for what an array's
        attributes call missing.
    out
        The folder for a new Zarr array; of an image, for another image with its axes, pixel sizes and channels, of version 0.5, or 0.4 if that
        of ``x`` is earlier. None: the result is in memory.
    depth
        Elements of the halo: a number, a tuple with one for each axis, or a dictionary of axes; (before, after) in place of each.
    boundary
        What stands beyond the ends: ``"none"``, so that boxes end there; ``"periodic"``, ``"reflect"``, ``"nearest"`` or a number. One, or a tuple
        or a dictionary as for ``depth``.
    dtype
        The type of what ``func`` gives, which is not converted: a float, or an integer of up to 32 bits; booleans are uint8. None: the type
        that arrives.
    trim
        Whether the halo is cut off the results. False: ``func`` gives the box without its halo.
    chunks
        Extents of the chunks of ``out``. None: those of ``x``, and its shards. Its version of Zarr and names of axes stay.
    resume
        Begins ``out``, or goes on with what an earlier call with the same arguments left there, and ends with the same bytes. It is an
        error where arguments, the code of ``func`` or the files of ``x`` changed; variables that ``func`` reads, other functions that it
        calls and an ``x`` in memory are not compared.
    fill
        Whether a missing chunk of a Zarr array has its fill value. Else it is an error, since it is more often damage; but images leave out
        chunks of background.
    level
        The level of an OME-Zarr image that is read. None: the largest, 0.
    pyramid
        True: an image as ``out`` gets smaller levels. Pixels are means of two along each axis of a plane, until planes have at most 256 along
        both, and of two planes where a stack has at least a quarter of a plane's longer extent. They follow when ``progress`` is at its end.
    temporary
        Bytes that ``func`` holds for each element of its argument besides that and its result.
    device
        The CPU or a CUDA GPU. ``teatime.Device("cpu", threads=1)`` calls ``func`` from the calling thread alone.
    progress, memory
        As in :func:`teatime.genotype.pca`.
    kwargs
        Handed to ``func``.

    Returns
    -------
    numpy.ndarray or Mapped
        With ``out``, how many boxes were computed and how often elements were read.

    Raises
    ------
    MemoryError
        A budget in which boxes of one chunk do not fit, with the least that would do.
    FileExistsError
        There is something at ``out``, without ``resume``.

    Examples
    --------
    >>> import numpy as np, scipy.ndimage, teatime
    >>> x = np.array([[0, 0, 0, 9], [0, 9, 0, 0], [1, 1, 1, 1]], "u1")
    >>> teatime.map_overlap(scipy.ndimage.median_filter, x, depth=1, size=3, mode="nearest")
    array([[0, 0, 0, 0],
           [0, 0, 1, 1],
           [1, 1, 1, 1]], dtype=uint8)
    """
    stored, given, files = opened(x, fill, level)
    on = opened_device(device)
    threads = on.threads if on.backend == "cpu" else 1
    function = Overlap(func, stored.shape, given, depth, boundary, dtype, trim, temporary, kwargs, threads)
    if on.backend not in ("cpu", "cuda"):
        raise ValueError(f"`device` is {on.name}: a function of arrays runs on the CPU or on a CUDA GPU")
    run = run_options(on, progress, memory)
    if out is None:
        if resume or pyramid or chunks is not None:
            raise TypeError("`resume`, `pyramid` and `chunks` are for a Zarr array or an image as `out`")
        return _teatime.map_box(stored, function.compiled(), [(0, extent) for extent in stored.shape], run)
    to = target(out, stored, chunks, resume, function.job(files, on.name), pyramid)
    return Mapped(*_teatime.map_to_zarr(stored, function.compiled(), to, run))
