"""Filters and packing of dask arrays, block by block, and filters of stored arrays, box by box."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.utils import parse_bytes

from . import __version__, _worker
from ._arrays import folder, is_long, stamp, whole
from ._filter import computed_type, filter_options, filtered_axes, warn_of_sign
from ._overlap import Overlap
from ._tasks import annotated, device_name, finished, known, task_memory
from ._teatime import StoredArray

#: dask's boundary for each mode.
_BOUNDARIES = {
    **dict.fromkeys(("reflect", "nearest", "mirror", "constant", "grid-mirror", "grid-constant"), "none"),
    **dict.fromkeys(("wrap", "grid-wrap"), "periodic"),
}


def gaussian_filter(
    image: Any, sigma: float | Sequence[float], order: int | Sequence[int] = 0, mode: str | Sequence[str] = "reflect", cval: float = 0.0,
    truncate: float = 4.0, *, radius: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None, output: Any = None,
    rounding: str = "once", narrow: bool | None = None, array: str | None = None, chunks: Any = None, fill: bool = False,
    device: str | None = None, resources: dict[str, float] | None = None, compute: bool = False,
) -> Any:
    """A Gaussian filter: ``dask_image.ndfilters.gaussian_filter``, with scipy's other arguments.

    It gives a dask array, or NumPy's with ``compute=True``: the same bits as of the whole array, however it is chunked.

    Parameters
    ----------
    image
        A dask array of one to five axes; or the path of a Zarr array, of which each task reads a box and what lies around it.
    sigma, order, mode, cval, truncate, radius, axes, output, rounding, narrow
        As in :func:`teatime.gaussian_filter`; of a path, integers that float32 would change are refused with ``narrow=True`` too, and
        of 64 bits ``rounding="scipy"``.
    array, fill
        Of a path: the array in the store, where the path is not its own, and whether a missing chunk has its fill value, as in
        :func:`teatime.map_overlap`.
    chunks
        Of a path: chunks of the result, as dask has them; an axis that weights reach over is whole. None: boxes of whole stored chunks, of
        up to dask's ``array.chunk-size`` (128 MiB), or an eighth of a thread's share of the smallest worker's memory: neighbouring boxes
        read what lies between them each for itself, so that large ones read less. A task holds up to half of its thread's share, and is a
        MemoryError where that does not do.
    device, resources, compute
        As in :func:`pca`.

    Examples
    --------
    >>> gaussian_filter(da.ones((4, 4), chunks=2, dtype="f4"), sigma=1).compute().round(6).tolist()[0]
    [1.0, 1.0, 1.0, 1.0]
    """
    name = device_name(device)
    x: Any
    filtered: Callable[..., Any]
    if isinstance(image, (str, os.PathLike)):
        x, filtered = _Stored(folder(image), array, fill, chunks), _filtered_store
    elif array is not None or chunks is not None or fill:
        raise TypeError("`array`, `chunks` and `fill` are for the path of a stored array; rechunk() changes the chunks of a dask array")
    else:
        x, filtered = da.asarray(image), _filtered_blocks
        known(x, "image")
    dtype = np.dtype(x.dtype if output is None else output).newbyteorder("=")
    options = filter_options(
        filtered_axes(axes, x.ndim), sigma, order=order, mode=mode, cval=cval, truncate=truncate, radius=radius, rounding=rounding, narrow=narrow
    )
    warn_of_sign(options["order"], dtype)
    unknown = [name for name in options["mode"] if name not in _BOUNDARIES]
    if unknown:
        raise ValueError(f"`mode` is one of {', '.join(_BOUNDARIES)}, not {unknown[0]!r}")
    if not all(0 <= value < math.inf for value in [*options["sigma"], options["truncate"]]):
        raise ValueError(f"`sigma` of {sigma}, `truncate` of {truncate}: they are finite numbers from 0 on")
    reach = options["radius"] or [int(truncate * s + 0.5) for s in options["sigma"]]
    radii = [0] * x.ndim
    for axis, r, s in zip(options["axes"], reach, options["sigma"]):
        radii[axis] = r if s > 1e-15 else 0
    with annotated(resources, compute):
        return finished(filtered(x, radii, options, dtype, name), compute)


def _filtered_blocks(x: Any, radii: Sequence[int], options: dict[str, Any], dtype: np.dtype[Any], name: str | None) -> Any:
    # An axis needs no neighbours if the radius is at least its extent.
    fitted = zip(x.chunks, radii, x.shape)
    x = x.rechunk(tuple((extent,) if r >= extent else da.overlap.ensure_minimum_chunksize(r, sizes) for sizes, r, extent in fitted))
    depth = [radius if blocks > 1 else 0 for radius, blocks in zip(radii, x.numblocks)]
    modes = dict(zip(options["axes"], options["mode"]))
    boundary = [_BOUNDARIES[modes[axis]] if halo else "none" for axis, halo in enumerate(depth)]
    haloed = da.overlap.overlap(x, dict(enumerate(depth)), dict(enumerate(boundary))) if any(depth) else x
    before = [(halo if beyond == "periodic" else 0, halo) for halo, beyond in zip(depth, boundary)]
    return _mapped(haloed, _worker.filtered, "gaussian", dtype, x.chunks, options=options, before=before, becomes=str(dtype), on=name)


def _mapped(x: Any, function: Callable[..., Any], name: str, dtype: Any, chunks: Any, **options: Any) -> Any:
    """``function`` of each block, with ``options``."""
    return x.map_blocks(
        function, name=f"teatime-{name}-" + tokenize(__version__, x, dtype, options), dtype=dtype, chunks=chunks,
        meta=meta_from_array(x, dtype=dtype), **options,
    )


class _Stored:
    """A stored array, as this process sees it."""

    def __init__(self, path: str, array: str | None, fill: bool, chunks: Any) -> None:
        self.place, self.wanted = (path, array, fill), chunks
        opened = StoredArray(*self.place)
        self.shape, self.chunk, self.dtype = tuple(opened.shape), opened.chunk, np.dtype(opened.dtype)
        self.ndim = len(self.shape)


def _filtered_store(x: _Stored, radii: Sequence[int], options: dict[str, Any], dtype: np.dtype[Any], name: str | None) -> Any:
    computed = computed_type(x.dtype, dtype, options["rounding"])
    if options["rounding"] == "scipy" and is_long(dtype):
        raise ValueError(f"`rounding` of scipy for {dtype} of a path: of the dask array that da.from_zarr gives, it is done")
    chunks = _result_chunks(x, radii, dtype)
    # An axis needs no neighbours if the radius is at least its extent.
    chunks = tuple((extent,) if radius >= extent else sizes for sizes, radius, extent in zip(chunks, radii, x.shape))
    given = (*x.place, options, str(computed), str(dtype), name)
    token = tokenize(__version__, stamp(os.path.join(x.place[0], x.place[1] or "")), chunks, *given)
    return da.map_blocks(
        _worker.filtered_box, *given, name=f"teatime-gaussian-of-store-{token}", chunks=chunks, dtype=dtype, meta=np.empty((0,) * x.ndim, dtype)
    )


def map_overlap(
    func: Callable[..., Any], x: str | os.PathLike[str], depth: Any = 0, boundary: Any = "none", dtype: Any = None, *, trim: bool = True,
    chunks: Any = None, fill: bool = False, temporary: float = 0, device: str = "cpu", resources: dict[str, float] | None = None,
    compute: bool = False, **kwargs: Any,
) -> Any:
    """A function on a Zarr array, of which each task reads a box with its halo: :func:`teatime.map_overlap` in tasks.

    A task cuts its box further where its worker has less memory. Of a dask array, :func:`dask.array.map_overlap` maps the blocks.

    Parameters
    ----------
    func, depth, boundary, dtype, trim, fill, temporary, kwargs
        As in :func:`teatime.map_overlap`.
    x
        The path of a Zarr array or of a .npy file.
    chunks
        As those of a path in :func:`gaussian_filter`.
    device, resources, compute
        As in :func:`pca`.

    Examples
    --------
    >>> import tempfile, teatime
    >>> path = tempfile.mkdtemp() + "/x.zarr"
    >>> _ = teatime.map_overlap(np.abs, np.arange(-3, 3, dtype="f4"), path, chunks=2)
    >>> map_overlap(np.gradient, path, depth=1, chunks=2).compute()
    array([-1., -1., -1.,  0.,  1.,  1.], dtype=float32)
    """
    if not isinstance(x, (str, os.PathLike)):
        raise TypeError(f"`x` is {type(x)}: the path of a Zarr array is taken; dask.array.map_overlap takes a dask array")
    stored, name = _Stored(folder(x), None, fill, chunks), device_name(device)
    overlap = Overlap(func, stored.shape, stored.dtype, depth, boundary, dtype, trim, temporary, kwargs)
    chunks, dtype = _result_chunks(stored, [max(sides) for sides in overlap.depth], overlap.dtype), overlap.dtype
    token = tokenize(__version__, stamp(stored.place[0]), stored.place, chunks, dtype, func, kwargs, overlap.job(name))
    with annotated(resources, compute):
        boxes = da.map_blocks(
            _worker.mapped_box, *stored.place, overlap, name, name=f"teatime-map-overlap-{token}", chunks=chunks, dtype=dtype,
            meta=np.empty((0,) * stored.ndim, dtype),
        )
        return finished(boxes, compute)


def _result_chunks(x: _Stored, radii: Sequence[int], dtype: np.dtype[Any]) -> Any:
    """Returns the chunks that are wanted, or boxes of whole stored chunks that suit the workers."""
    chunks = x.wanted
    if chunks is None:
        most, memory = parse_bytes(dask.config.get("array.chunk-size")), task_memory()
        if memory is not None:
            # A box of the result may take a quarter. The rest is for the arrays from which it is computed.
            most = min(most, memory // 4)
        chunks = _box(x.shape, x.chunk, radii, most // max(x.dtype.itemsize, dtype.itemsize))
    elif chunks == 0 or (isinstance(chunks, (tuple, list)) and 0 in chunks):
        raise ValueError(f"`chunks` of {chunks}: at least 1 along each axis")
    return da.core.normalize_chunks(chunks, x.shape, dtype=dtype)


def _box(shape: Sequence[int], chunk: Sequence[int], radii: Sequence[int], most: int) -> list[int]:
    """Whole chunks, up to ``most`` elements, that grow along the axis of which the halo is the largest part."""
    size = [max(1, min(extent, stored)) for extent, stored in zip(shape, chunk)]
    growing = [axis for axis in range(len(shape)) if size[axis] < shape[axis]]
    while growing:
        axis = max(growing, key=lambda axis: (radii[axis] / size[axis], axis))
        wider = [*size[:axis], min(shape[axis], 2 * size[axis]), *size[axis + 1 :]]
        if math.prod(wider) <= most:
            size = wider
        if size[axis] == shape[axis] or size != wider:
            growing.remove(axis)
    return size


def _per_byte(bits: int) -> int:
    if bits not in (1, 2, 4):
        raise ValueError(f"`bits` is 1, 2 or 4, not {bits}")
    return 8 // bits


def pack(
    x: Any, bits: int = 2, *, table: Sequence[int] | None = None, missing: int | None = None, device: str | None = None,
    resources: dict[str, float] | None = None, compute: bool = False,
) -> Any:
    """Packs the last axis of a dask array, as :func:`teatime.pack`, block by block.

    Blocks along the last axis have to end at whole bytes: it is rechunked where they do not.

    >>> pack(da.from_array(np.array([[0, 1, 2, 3, 1]], "u1"), chunks=4)).compute()
    array([[228,   1]], dtype=uint8)
    """
    x, per = da.asarray(x), _per_byte(bits)
    if x.ndim == 0:
        raise ValueError("`x` has no axis")
    if any(extent % per for extent in x.chunks[-1][:-1]):
        x = x.rechunk({x.ndim - 1: max(per, max(x.chunks[-1]) // per * per)})
    chunks, name = (*x.chunks[:-1], tuple(-(-extent // per) for extent in x.chunks[-1])), device_name(device)
    with annotated(resources, compute):
        return finished(_mapped(x, _worker.packed, "pack", np.uint8, chunks, bits=bits, table=table, missing=missing, on=name), compute)


def unpack(
    packed: Any, n: int, bits: int = 2, *, table: Sequence[float] | None = None, dtype: Any = np.uint8, device: str | None = None,
    resources: dict[str, float] | None = None, compute: bool = False,
) -> Any:
    """Rows of ``n`` values of a packed dask array, as :func:`teatime.unpack`, block by block.

    >>> unpack(da.from_array(np.array([[228, 1]], "u1")), 5).compute()
    array([[0, 1, 2, 3, 1]], dtype=uint8)
    """
    x, per, dtype = da.asarray(packed), _per_byte(bits), np.dtype(dtype)
    if not (x.shape[-1] - 1) * per < n <= x.shape[-1] * per:
        raise ValueError(f"`n` of {n}: rows of {x.shape[-1]} bytes hold up to {x.shape[-1] * per} values")
    chunks, name = (*x.chunks[:-1], tuple(extent * per for extent in x.chunks[-1])), device_name(device)
    with annotated(resources, compute):
        rows = _mapped(x, _worker.unpacked, "unpack", dtype, chunks, bits=bits, table=table, becomes=str(dtype), on=name)
        return finished(rows[..., :n], compute)
