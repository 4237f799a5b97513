"""How work becomes tasks of dask's: names and keys, the order in which sums are added up, and what genotypes are read from."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed, delayed
from dask.highlevelgraph import HighLevelGraph

from . import __version__, _worker
from ._arrays import folder, stamp
from ._device import Device
from ._teatime import part_step
from .genotype import Genotypes, open_store

#: Tasks of some samples and all variants take multiples of this number of samples.
_TILE = 64

#: The minimum bytes of genotypes of a task, some tenths of a second. In smaller ones, passing sums between workers takes longer.
_TASK_BYTES = 96 << 20


def named(function: Callable[..., Any], name: str, also: Any = None) -> Callable[..., Delayed]:
    """``function`` as tasks that dask shows as ``teatime-NAME``, with keys that follow from the arguments, ``also`` and our version."""

    def task(*args: Any) -> Delayed:
        key = f"teatime-{name}-{tokenize(__version__, also, *args)}"
        return delayed(function, pure=True)(*args, dask_key_name=key)

    return task


def array_of(task: Delayed, *shape: int, dtype: Any = "f8") -> da.Array:
    """The array that a task gives."""
    return da.from_delayed(task, shape, dtype=dtype, meta=np.empty((0,) * len(shape), dtype))


def finished(result: Any, compute: bool) -> Any:
    return dask.compute(result)[0] if compute else result


def device_name(device: Any) -> str | None:
    """A device's name, which each worker opens for itself."""
    if device is None or isinstance(device, str):
        return device
    if isinstance(device, Device):
        return device.name
    raise TypeError(f"`device` is the name of a device of the workers, not {type(device)}")


def tree(items: Sequence[Delayed], name: str, merge: Callable[..., Any] = _worker.merge) -> Delayed:
    """All merged, neighbours first: the order follows from their number alone."""
    merge = named(merge, name)
    level = list(items)
    while len(level) > 1:
        pairs = [merge(*level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(level) - len(level) % 2 :]
    return level[0]


def workers() -> list[dict[str, Any]] | None:
    """What is known of a cluster's workers; None where there is no client, or one that can only be asked by ``await``."""
    # distributed is not imported here, which takes some tenths of a second: whoever has a client has imported it.
    distributed = sys.modules.get("distributed")
    try:
        client = distributed.get_client() if distributed else None
    except ValueError:
        return None
    if client is None or client.asynchronous:
        return None
    try:
        info = client.scheduler_info(n_workers=-1)
    except TypeError:  # an older distributed, which tells of all workers
        info = client.scheduler_info()
    return list(info["workers"].values())


def task_memory() -> int | None:
    """Bytes that a task may hold: half of its thread's share of the smallest worker that is known. None: what its machine gives."""
    limits = [(worker.get("memory_limit"), worker.get("nthreads", 1)) for worker in workers() or ()]
    return min((_worker.share(limit, threads) for limit, threads in limits if limit), default=None)


@contextlib.contextmanager
def annotated(resources: dict[str, float] | None, compute: bool) -> Iterator[None]:
    """Tasks with ``resources``, which one of the workers that are known has to have: dask would wait for it for ever."""
    if not resources:
        yield
        return
    if not compute:
        raise ValueError(
            "`resources` hold while tasks are submitted: with compute=True, or put dask.annotate(resources=...) around what computes"
        )
    joined = workers()
    if joined == []:
        warnings.warn(f"teatime: no worker has joined yet: tasks wait for one with resources {resources}", stacklevel=4)
    for name, amount in resources.items():
        if joined and not any(worker.get("resources", {}).get(name, 0) >= amount for worker in joined):
            raise ValueError(
                f"`resources`: no worker has {amount} of {name!r}: start workers with --resources {name}={amount}, or leave it out"
            )
    with dask.annotate(resources=resources):
        yield


@dataclass(frozen=True)
class Source:
    """Genotypes in tasks: ranges of a store, or blocks of an array."""

    #: (variants, samples)
    shape: tuple[int, int]
    #: A store's path, its array, whether absent chunks are filled, its options, and the ranges of its chosen variants, if there is a choice;
    #: or an array without variants.
    like: Any
    #: The range of variants of each task, and its block if there is no store.
    ranges: list[tuple[int, int]]
    blocks: list[Any] | None
    #: A token that distinguishes stores of the same path.
    stamp: Any
    #: The names of a store's samples.
    names: list[str] | None = None

    @classmethod
    def open(
        cls, genotypes: Any, array: str | None, fill: bool, storage_options: dict[str, Any] | None, chosen: tuple[Any, int | None],
        rows_per_task: int | None, pair_bytes: int = 4, name: str = "genotypes",
    ) -> Source:
        """``chosen`` are the contigs of a store, and the number of autosomes. ``pair_bytes`` is what a task of a store gives for each two
        samples."""
        if isinstance(genotypes, Genotypes):
            raise TypeError(f"`{name}` is a store that is open here: hand over its path, which each task opens")
        if not isinstance(genotypes, (str, os.PathLike)):
            if fill or any(given is not None for given in (array, storage_options, *chosen)):
                raise TypeError("`array`, `fill`, `storage_options`, `contigs` and `n_autosomes` are for the path of a store")
            return cls._blocks_of(genotypes, rows_per_task)
        path, (contigs, n_autosomes) = folder(genotypes), chosen
        options: dict[str, Any] = {"fill": fill, "storage_options": storage_options}
        opened = open_store(path, array, contigs=contigs, n_autosomes=n_autosomes, **options)
        samples, variants = opened.samples, opened.variants
        if variants == 0 or samples == 0:
            raise ValueError(f"{path}: {variants} variants of {samples} samples")
        rows = _rows(rows_per_task, samples * opened.ploidy, samples, pair_bytes)
        ranges = opened.part_ranges(max(1, -(-variants // rows)))
        # Tasks do not read the names of contigs again.
        rows = None if contigs is None else opened.selected
        return cls((variants, samples), (path, array, fill, storage_options, rows), ranges, None, stamp(path), opened.names)

    @classmethod
    def _blocks_of(cls, genotypes: Any, rows_per_task: int | None) -> Source:
        x = da.asarray(genotypes)
        if x.ndim not in (2, 3):
            raise ValueError(f"`genotypes` are (variants, samples) or (variants, samples, ploidy), not {x.shape}")
        known(x, "genotypes")
        variants, samples = x.shape[:2]
        if variants == 0:
            raise ValueError(f"`genotypes` have no variant: {x.shape}")
        step = part_step(samples)
        rows = rows_per_task or max(x.chunks[0], default=step)
        rows = max(step, round(rows / step) * step)
        wanted = (tuple(min(rows, variants - first) for first in range(0, variants, rows)), *((extent,) for extent in x.shape[1:]))
        if x.chunks != wanted:
            if any(len(chunks) > 1 for chunks in x.chunks[1:]):
                why = "each task takes all samples of its variants"
            else:
                why = f"tasks start at multiples of {step} variants"
            message = f"teatime: rechunked from {x.chunksize} to {(rows, *x.shape[1:])}: {why}; the path of a store needs none"
            warnings.warn(message, da.PerformanceWarning, stacklevel=4)
            x = x.rechunk(wanted)
        firsts = [0, *np.cumsum(x.chunks[0]).tolist()]
        like = np.empty((0, *x.shape[1:]), x.dtype)
        return cls((variants, samples), like, list(zip(firsts, firsts[1:])), list(x.to_delayed().reshape(-1)), None)

    def pair_memory(self, pair_bytes: int) -> tuple[int, float]:
        """Bytes of sums of each pair of samples, two and what they add up to; and of the largest worker that is known."""
        most = max((worker.get("memory_limit") or math.inf for worker in workers() or ()), default=math.inf)
        return 3 * pair_bytes * self.shape[1] ** 2, most

    def check_pairs(self, pair_bytes: int, instead: str) -> None:
        """MemoryError where no worker that is known holds sums of each pair of samples."""
        held, most = self.pair_memory(pair_bytes)
        if held > most:
            raise MemoryError(
                f"{self.shape[1]} samples: a task that adds up sums of each pair holds {held / 1e9:.3g} GB, and the largest worker "
                f"{most / 1e9:.3g} GB: {instead}"
            )

    def band(self, samples_per_task: int | None, pair_bytes: int) -> tuple[int, int | None]:
        """Samples of a task that takes all variants, ``pair_bytes`` for each pair with others, and the memory it has, as
        :func:`task_memory` says, half of which is for pairs. MemoryError where that does not do."""
        memory = task_memory()
        if samples_per_task is None:
            samples_per_task = (memory or 0) // 2 // (pair_bytes * self.shape[1])
        elif samples_per_task < 1:
            raise ValueError(f"`samples_per_task` of {samples_per_task}: a task takes samples")
        samples = max(_TILE, min(samples_per_task, self.shape[1] + _TILE - 1) // _TILE * _TILE)
        held = pair_bytes * self.shape[1] * min(samples, self.shape[1])
        if memory is not None and held > memory:
            raise MemoryError(
                f"{self.shape[1]} samples: a task of the pairs of {samples} of them holds {held / 1e9:.3g} GB, and may take "
                f"{memory / 1e9:.3g} GB of the smallest worker: take fewer samples, or fewer threads a worker"
            )
        return samples, memory

    def tasks(self, function: Callable[..., Any], name: str, *options: Any) -> list[Delayed]:
        """A task for each range: ``function`` of the store or the block, the range and ``options``."""
        task = named(function, f"{name}-of-{'store' if self.blocks is None else 'block'}", self.stamp)
        return [task(source, rows, *options) for source, rows in zip(self.blocks or [self.like] * len(self.ranges), self.ranges)]

    def part(self, *options: Any) -> Delayed:
        """The sums over all variants."""
        return tree(self.tasks(_worker.part, "part", self.shape[0], *options), "merge-parts")


def known(x: Any, name: str) -> None:
    if any(np.isnan(extent) for extent in x.shape):
        raise ValueError(f"`{name}` has an unknown shape: call compute_chunk_sizes() on it")


def iterated(bands: Sequence[Delayed], shape: tuple[int, int], k: int, svd: dict[str, Any], compute: bool) -> Delayed:
    """Singular values and right vectors of a matrix in bands, which give parts of ``Aᵀ (A x)``. With ``compute`` and without ``n_iter``,
    products are computed one after the other until no more is wanted. Else there are tasks for as many as may be wanted: those that come
    after the last have nothing to do."""
    start = functools.partial(_worker.Iteration, shape, k, svd)
    if compute and svd["n_iter"] is None:
        bands = list(dask.persist(*bands))
        multiply = named(_worker.product_of_band, "product")
        iteration, done = start(), list[Any]()
        while (x := _worker.next_vectors(iteration, done)) is not None:
            parts = [multiply(band, delayed(x, pure=True)) for band in bands]
            done.append(tree(parts, "add-products", _worker.add_products).compute())
        return delayed(_worker.components(iteration, done, svd), pure=True)
    # The graph has one layer: there may be many thousands of tasks, and dask merges each layer with all earlier ones.
    token = tokenize(__version__, shape, k, svd, [band.key for band in bands])
    iteration, result = (f"teatime-{name}-{token}" for name in ("iteration", "components"))
    graph: dict[Any, Any] = {iteration: (start,)}
    made: list[Any] = []
    for number in range(svd["max_passes"] if svd["n_iter"] is None else svd["n_iter"] + 2):
        x = (f"teatime-next-vectors-{token}", number)
        graph[x] = (_worker.next_vectors, iteration, list(made))
        level = [(f"teatime-product-{token}", number, i) for i in range(len(bands))]
        graph.update((part, (_worker.product_of_band, band.key, x)) for part, band in zip(level, bands))
        # Neighbours are added first, as in `tree`.
        while len(level) > 1:
            sums = [(f"teatime-add-products-{token}", number, len(level), i) for i in range(len(level) // 2)]
            graph.update((key, (_worker.add_products, *level[2 * i : 2 * i + 2])) for i, key in enumerate(sums))
            level = sums + level[2 * len(sums) :]
        made += level
    graph[result] = (functools.partial(_worker.components, svd=svd), iteration, made)
    return Delayed(result, HighLevelGraph.from_collections(result, graph, list(bands)))


def _rows(rows_per_task: int | None, row: int, samples: int, pair_bytes: int) -> int:
    """Variants of a task: enough that the sums for each pair of samples, which travel, are little beside what is read."""
    step = part_step(samples)
    rows = rows_per_task or max(_TASK_BYTES, 4 * pair_bytes * samples * samples) // max(1, row)
    return max(step, rows // step * step)
