"""The same on dask arrays and on Zarr stores, in tasks of dask's: on threads, on processes, or on a cluster.

Two modes behind one call. Of a **dask array**, tasks take its blocks: reading is dask's. Of the **path** of a store, each task reads a
range of it with teatime's own reader, which decodes while it computes; every worker has to see the path.

Nothing is computed until the result is, but with ``compute=True``. Results are the same bits for any number of workers, and after a
worker was lost: what is summed in which order follows from the shapes alone.

On a worker, functions use as many threads as the worker has. With ``device`` they run on the device of that name; with
``resources={"GPU": 1}`` no more of them at once than workers declare.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

try:
    import dask
    import dask.array as da
    from dask.base import tokenize
    from dask.delayed import Delayed, delayed
except ImportError as error:  # pragma: no cover
    raise ImportError("teatime.dask needs dask: pip install 'teatime[dask]'") from error

from . import __version__, _worker
from ._distance import distance_options
from ._filter import per_axis
from .genotype import grm_options, open_store, pca_options
from ._teatime import part_step

__all__ = ["GRM", "PCA", "gaussian_filter", "grm", "pack", "pairwise_distance", "pca", "unpack"]

#: Bytes of genotypes that a task takes at least: less is dominated by what dask takes for a task.
_TASK_BYTES = 32 << 20


@dataclass(frozen=True)
class PCA:
    """Principal components of samples: dask arrays, or NumPy's where they were computed."""

    #: (samples, n_components)
    scores: Any
    #: (samples, n_components), of unit length.
    vectors: Any
    singular_values: Any
    #: s² / samples, scikit-allel's.
    explained_variance: Any
    explained_variance_ratio: Any


@dataclass(frozen=True)
class GRM:
    """A relationship matrix."""

    #: (samples, samples)
    matrix: Any


def _named(function: Callable[..., Any], name: str, also: Any = None) -> Callable[..., Delayed]:
    """``function`` as tasks that dask shows as ``teatime-NAME``, with keys that follow from the arguments, ``also`` and our version."""

    def task(*args: Any) -> Delayed:
        key = f"teatime-{name}-{tokenize(__version__, also, *args)}"
        return delayed(function, pure=True)(*args, dask_key_name=key)

    return task


def _tree(items: Sequence[Delayed], name: str) -> Delayed:
    """All merged, neighbours first: the order follows from their number alone."""
    merge = _named(_worker.merge, name)
    level = list(items)
    while len(level) > 1:
        pairs = [merge(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


@contextlib.contextmanager
def _annotated(resources: dict[str, float] | None) -> Iterator[None]:
    """Tasks with ``resources``, which a worker of the client, if there is one, has to have: dask would wait for it for ever."""
    if not resources:
        yield
        return
    try:
        from distributed import get_client

        workers = get_client().scheduler_info(n_workers=-1)["workers"].values()
    except (ImportError, ValueError):
        workers = None
    except TypeError:  # an older distributed, which tells of all workers
        workers = get_client().scheduler_info()["workers"].values()
    if workers is not None:
        for name, amount in resources.items():
            if not any(worker.get("resources", {}).get(name, 0) >= amount for worker in workers):
                raise ValueError(
                    f"`resources`: no worker has {amount} of {name!r}: start workers with --resources {name}={amount}, or leave it out"
                )
    with dask.annotate(resources=resources):
        yield


def _finished(result: Any, compute: bool) -> Any:
    return dask.compute(result)[0] if compute else result


def _is_store(x: Any) -> bool:
    return isinstance(x, (str, os.PathLike))


def _parts(
    genotypes: Any, array: str | None, ploidy: int | None, of: dict[str, Any], rows_per_task: int | None, device: str | None
) -> tuple[Delayed, Any, int]:
    """The sums over all variants, what they are of, and how many samples there are."""
    if _is_store(genotypes):
        path = os.fspath(genotypes)
        opened = open_store(path, array)
        samples, variants = opened.samples, opened.variants
        rows = _rows(rows_per_task, samples * opened.ploidy, samples)
        ranges = opened.part_ranges(max(1, -(-variants // rows)))
        # A store that was written anew has other keys.
        task = _named(_worker.part_of_store, "part-of-store", _stamp(path))
        parts = [task(path, array, rows, ploidy, of, device) for rows in ranges]
        return _tree(parts, "merge-parts"), (path, array), samples
    x = genotypes if isinstance(genotypes, da.Array) else da.asarray(genotypes)
    if x.ndim not in (2, 3):
        raise ValueError(f"`genotypes` are (variants, samples) or (variants, samples, ploidy), not {x.shape}")
    if any(np.isnan(extent) for extent in x.shape):
        raise ValueError("`genotypes` have an unknown shape: call compute_chunk_sizes() on them")
    variants, samples = x.shape[:2]
    step = part_step(samples)
    rows = rows_per_task or max(x.chunks[0], default=step)
    rows = max(step, round(rows / step) * step)
    wanted = (*_even(variants, rows), *((extent,) for extent in x.shape[1:]))
    if x.chunks != wanted:
        if any(len(chunks) > 1 for chunks in x.chunks[1:]):
            why = "each task takes all samples of its variants"
        else:
            why = f"tasks start at multiples of {step} variants"
        message = f"teatime: rechunked from {x.chunksize} to {(rows, *x.shape[1:])}: {why}; the path of a store needs none"
        warnings.warn(message, da.PerformanceWarning, stacklevel=4)
        x = x.rechunk(wanted)
    task = _named(_worker.part_of_block, "part-of-block")
    firsts = np.cumsum((0, *x.chunks[0][:-1])).tolist()
    blocks = x.to_delayed().reshape(-1)
    parts = [task(block, first, variants, ploidy, of, device) for block, first in zip(blocks, firsts)]
    return _tree(parts, "merge-parts"), (x.shape, x.dtype), samples


def _even(extent: int, step: int) -> tuple[tuple[int, ...]]:
    return (tuple(min(step, extent - first) for first in range(0, extent, step)),)


def _rows(rows_per_task: int | None, row: int, samples: int) -> int:
    """Variants of a task: enough that the sums for each pair of samples, which travel, are little beside what is read."""
    step = part_step(samples)
    rows = rows_per_task or max(_TASK_BYTES, 16 * samples * samples) // max(1, row)
    return max(step, rows // step * step)


def _stamp(path: str) -> tuple[Any, ...]:
    """What tells that a store was written anew."""
    names = ["", "zarr.json", ".zgroup", ".zmetadata", ".zattrs"]
    found = []
    for name in names:
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(path, name) if name else path)
            found.append((name, status.st_mtime_ns, status.st_size))
    return tuple(found)


def pca(
    genotypes: Any,
    n_components: int = 10,
    *,
    scaler: str | None = "patterson",
    ploidy: int | None = None,
    min_maf: float = 0.0,
    max_missing: float = 1.0,
    signs: str = "stable",
    array: str | None = None,
    rows_per_task: int | None = None,
    device: str | None = None,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> PCA:
    """Principal components of the samples, as :func:`teatime.genotype.pca`, by the exact method in one pass.

    Parameters
    ----------
    genotypes
        A dask array of calls (variants, samples, ploidy) or dosages (variants, samples), chunked in any way; or the path of a store.
    n_components, scaler, ploidy, min_maf, max_missing, signs
        As in :func:`teatime.genotype.pca`.
    array
        The array of a Zarr store, where it is not the one that is found.
    rows_per_task
        Variants of a task. None: of an array, about its chunks; of a store, 32 MiB of genotypes, or more for many samples.
    device
        The name of a device of the workers.
    resources
        Such as ``{"GPU": 1}``: what a task takes of a worker's resources.
    compute
        Whether it is computed at once.

    Notes
    -----
    Each task gives 4 samples² bytes of sums, which are added up two by two: 400 MB for 10,000 samples.
    """
    of = pca_options(
        n_components, scaler=scaler, method="exact", min_maf=min_maf, max_missing=max_missing, signs=signs
    )
    with _annotated(resources):
        part, like, samples = _parts(genotypes, array, ploidy, of, rows_per_task, device)
        found = _named(_worker.pca_of_part, "pca")(part, like, ploidy, of, device)
        pick = _named(_worker.item, "pca-result")

        def of_key(key: str, *shape: int) -> Any:
            return da.from_delayed(pick(found, key), shape, dtype=np.float64, meta=np.empty((0,) * len(shape)))

        k = n_components
        result = PCA(
            scores=of_key("scores", samples, k),
            vectors=of_key("vectors", samples, k),
            singular_values=of_key("singular_values", k),
            explained_variance=of_key("explained_variance", k),
            explained_variance_ratio=of_key("explained_variance_ratio", k),
        )
    return _computed(result, compute)


def _computed(result: Any, compute: bool) -> Any:
    if not compute:
        return result
    names = list(vars(result))
    return type(result)(**dict(zip(names, dask.compute(*(getattr(result, name) for name in names)))))


def grm(
    genotypes: Any,
    method: str = "gcta",
    *,
    missing: str = "pairwise",
    ploidy: int | None = None,
    min_maf: float = 0.0,
    max_missing: float = 1.0,
    array: str | None = None,
    rows_per_task: int | None = None,
    device: str | None = None,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> GRM:
    """The genomic relationship matrix of the samples, as :func:`teatime.genotype.grm`.

    Parameters
    ----------
    method, missing, ploidy, min_maf, max_missing
        As there.
    genotypes, array, rows_per_task, device, resources, compute
        As in :func:`pca`.
    """
    of = grm_options(method, missing=missing, min_maf=min_maf, max_missing=max_missing)
    with _annotated(resources):
        part, like, samples = _parts(genotypes, array, ploidy, of, rows_per_task, device)
        found = _named(_worker.grm_of_part, "grm")(part, like, ploidy, of, device)
        matrix = _named(_worker.item, "grm-result")(found, 0)
        result = GRM(da.from_delayed(matrix, (samples, samples), dtype=np.float64, meta=np.empty((0, 0))))
    return _computed(result, compute)


def pairwise_distance(
    x: Any,
    metric: str = "euclidean",
    split_every: int | None = None,
    target: str | None = None,
    device: str | None = None,
    *,
    p: float = 2.0,
    missing: str = "ignore",
    negative: bool = True,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> Any:
    """Distances of observations from one another: sgkit's ``pairwise_distance``, with its arguments.

    Parameters
    ----------
    x : (observations, features)
        A dask array, chunked in any way along both. Each pair of blocks of observations is a task for each block of features; their sums
        are added up two by two.
    metric
        One of :func:`teatime.pairwise_distance`, but jensenshannon, whose sums are of all features.
    split_every, target
        Taken and not used.
    device
        The name of a device of the workers; sgkit's ``"gpu"`` is the fastest.
    p, missing, negative
        As in :func:`teatime.pairwise_distance`: NaN and negative numbers are missing, and count nothing for a pair, as in sgkit.
    resources, compute
        As in :func:`pca`.

    Returns
    -------
    (observations, observations)
        Of float32 for float32 and float16, else of float64.
    """
    del split_every, target
    name = None if device in ("gpu", None) else device
    x = x if isinstance(x, da.Array) else da.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"`x` is (observations, features), and has {x.ndim} axes: {x.shape}")
    if metric == "jensenshannon":
        raise NotImplementedError("jensenshannon needs whole observations: teatime.pairwise_distance")
    options = distance_options(metric, p=p, missing=missing, negative=negative)
    _teatime_check(options)
    out = np.dtype("f4") if x.dtype in (np.dtype("f4"), np.dtype("f2")) else np.dtype("f8")
    symmetric = options["metric"] != "kl_divergence"
    with _annotated(resources):
        blocks = x.to_delayed()
        sums, finish = _named(_worker.sums_of_blocks, "distance-sums"), _named(_worker.distances_of_sums, "distances")
        rows = x.chunks[0]
        tiles: list[list[Any]] = [[None] * len(rows) for _ in rows]
        for i in range(len(rows)):
            for j in range(len(rows)):
                if symmetric and j < i:
                    continue
                parts = [sums(left, None if i == j else right, options, name) for left, right in zip(blocks[i], blocks[j])]
                whole = _tree(parts, "merge-distances")
                tiles[i][j] = da.from_delayed(
                    finish(whole, out, False), (rows[i], rows[j]), dtype=out, meta=np.empty((0, 0), out)
                )
                if symmetric and i != j:
                    tiles[j][i] = tiles[i][j].T
        result = da.block(tiles)
    return _finished(result, compute)


def _teatime_check(options: dict[str, Any]) -> None:
    """Refuses a metric or rule that there is not, before anything is submitted."""
    from . import _teatime

    none = np.empty((0, 1), np.float32)
    _teatime.pairwise(none, None, options, False, "cpu", {"progress": None, "memory": None, "device_memory": None})


_BOUNDARIES = {"reflect": "none", "nearest": "none", "mirror": "none", "constant": "none", "wrap": "periodic"}


def gaussian_filter(
    image: Any,
    sigma: float | Sequence[float],
    order: int | Sequence[int] = 0,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    truncate: float = 4.0,
    *,
    radius: int | Sequence[int] | None = None,
    output: Any = None,
    rounding: str = "once",
    narrow: bool = False,
    device: str | None = None,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> Any:
    """A Gaussian filter of a dask array: ``dask_image.ndfilters.gaussian_filter``, with scipy's other arguments.

    The same bits as of the whole array, however it is chunked.

    Parameters
    ----------
    image
        A dask array of one to five axes.
    sigma, order, mode, cval, truncate, radius, output, rounding, narrow
        As in :func:`teatime.gaussian_filter`.
    device, resources, compute
        As in :func:`pca`.
    """
    x = image if isinstance(image, da.Array) else da.asarray(image)
    count = x.ndim
    sigmas = [float(value) for value in per_axis(sigma, "sigma", count)]
    modes = per_axis(mode, "mode", count)
    unknown = [name for name in modes if name not in _BOUNDARIES]
    if unknown:
        raise ValueError(f"`mode` is one of {', '.join(_BOUNDARIES)}, not {unknown[0]!r}")
    radii = [int(truncate * s + 0.5) if s > 1e-15 else 0 for s in sigmas]
    if radius is not None:
        radii = [int(r) if s > 1e-15 else 0 for r, s in zip(per_axis(radius, "radius", count), sigmas)]
    dtype = np.dtype(x.dtype if output is None else output)
    # An axis in one chunk, or one that weights reach over, needs no neighbours.
    whole = {axis: -1 for axis in range(count) if x.numblocks[axis] > 1 and radii[axis] >= x.shape[axis]}
    x = x.rechunk(whole) if whole else x
    depth = {axis: radii[axis] if x.numblocks[axis] > 1 else 0 for axis in range(count)}
    boundary = {axis: _BOUNDARIES[modes[axis]] if depth[axis] else "none" for axis in range(count)}
    options = {
        "sigma": sigmas,
        "order": per_axis(order, "order", count),
        "mode": list(modes),
        "cval": cval,
        "truncate": truncate,
        "radius": None if radius is None else per_axis(radius, "radius", count),
        "output": str(dtype),
        "rounding": rounding,
        "narrow": narrow,
    }
    with _annotated(resources):
        haloed = da.overlap.overlap(x, depth, boundary) if any(depth.values()) else x
        result = haloed.map_blocks(
            _worker.filtered,
            name="teatime-gaussian-" + tokenize(__version__, x, options, device),
            dtype=dtype,
            meta=np.empty((0,) * count, dtype),
            options=options,
            on=device,
        )
        if any(depth.values()):
            result = da.overlap.trim_internal(result, depth, boundary)
    return _finished(result, compute)


def pack(
    x: Any,
    bits: int = 2,
    *,
    table: Sequence[int] | None = None,
    missing: int | None = None,
    device: str | None = None,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> Any:
    """Packs the last axis of a dask array, as :func:`teatime.pack`, block by block.

    Blocks along the last axis have to end at whole bytes: it is rechunked where they do not.
    """
    x = x if isinstance(x, da.Array) else da.asarray(x)
    per = 8 // bits
    if any(extent % per for extent in x.chunks[-1][:-1]):
        x = x.rechunk({x.ndim - 1: max(per, max(x.chunks[-1]) // per * per)})
    chunks = (*x.chunks[:-1], tuple(-(-extent // per) for extent in x.chunks[-1]))
    with _annotated(resources):
        result = x.map_blocks(
            _worker.packed, dtype=np.uint8, chunks=chunks, meta=np.empty((0,) * x.ndim, np.uint8), bits=bits,
            table=table, missing=missing, on=device, name="teatime-pack-" + tokenize(__version__, x, bits, table, missing, device),
        )
    return _finished(result, compute)


def unpack(
    packed: Any,
    n: int,
    bits: int = 2,
    *,
    table: Sequence[float] | None = None,
    dtype: Any = np.uint8,
    device: str | None = None,
    resources: dict[str, float] | None = None,
    compute: bool = False,
) -> Any:
    """Rows of ``n`` values of a packed dask array, as :func:`teatime.unpack`, block by block."""
    x = packed if isinstance(packed, da.Array) else da.asarray(packed)
    per = 8 // bits
    if not (x.shape[-1] - 1) * per < n <= x.shape[-1] * per:
        raise ValueError(f"`n` of {n}: rows of {x.shape[-1]} bytes hold up to {x.shape[-1] * per} values")
    chunks = (*x.chunks[:-1], tuple(extent * per for extent in x.chunks[-1]))
    with _annotated(resources):
        result = x.map_blocks(
            _worker.unpacked, dtype=np.dtype(dtype), chunks=chunks, meta=np.empty((0,) * x.ndim, dtype), bits=bits,
            table=table, on=device, name="teatime-unpack-" + tokenize(__version__, x, n, bits, table, str(dtype), device),
        )[..., :n]
    return _finished(result, compute)
