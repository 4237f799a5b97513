"""What tasks do on a worker: stateless functions of blocks or of row ranges of stores, importable by name."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _teatime
from ._arrays import as_array, c_order, either_order
from ._device import Device, told
from .genotype import Genotypes, genotypes_of, open_store


def device(name: str | None) -> Device:
    """The device of this worker, with as many threads as the worker has."""
    return _device(name, _threads(), os.getpid())


@functools.lru_cache(maxsize=None)
def _device(name: str | None, threads: int | None, _process: int) -> Device:
    return Device(name, threads=threads)


def _threads() -> int | None:
    """The worker's threads; None, all that the process may use, outside of a worker."""
    try:
        from distributed import get_worker

        return int(get_worker().state.nthreads)
    except (ImportError, ValueError, AttributeError):
        return None


def part_of_block(block: NDArray[Any], first: int, variants: int, ploidy: int | None, of: dict[str, Any], name: str | None) -> Any:
    """Counts and sums over a block of variants."""
    opened = genotypes_of(block, ploidy, "pca", first=first, variants=variants)
    return _teatime.Part(opened, (first, first + block.shape[0]), of, device(name), told())


def part_of_store(path: str, array: str | None, rows: tuple[int, int], ploidy: int | None, of: dict[str, Any], name: str | None) -> Any:
    """Counts and sums over a range of a store's variants."""
    return _teatime.Part(genotypes_of(_store(path, array), ploidy, "pca"), rows, of, device(name), told())


def _store(path: str, array: str | None) -> Genotypes:
    try:
        return open_store(path, array)
    except OSError as error:
        import socket

        raise OSError(f"{error} (seen from {socket.gethostname()}, process {os.getpid()}: every worker has to see the store)") from error


def merge(one: Any, other: Any) -> Any:
    """Both sums."""
    return one.merge(other)


def pca_of_part(part: Any, like: Any, ploidy: int | None, of: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The components of all variants' sums."""
    return _teatime.pca_of_part(_like(like, ploidy), part, of, device(name), told())


def grm_of_part(part: Any, like: Any, ploidy: int | None, of: dict[str, Any], name: str | None) -> tuple[Any, Any, Any]:
    """The relationship matrix of all variants' sums."""
    return _teatime.grm_of_part(_like(like, ploidy), part, of, device(name), told())


def _like(like: Any, ploidy: int | None) -> Genotypes:
    """Genotypes of which parts are: a store, or the shape and type of arrays, of which no row is here."""
    if isinstance(like[0], str):
        return genotypes_of(_store(*like), ploidy, "pca")
    shape, dtype = like
    none = np.empty((0, *shape[1:]), dtype)
    return genotypes_of(none, ploidy, "pca", first=0, variants=shape[0])


def item(found: Any, key: Any) -> Any:
    """One of several results."""
    return found[key]


def sums_of_blocks(x: NDArray[Any], y: NDArray[Any] | None, options: dict[str, Any], name: str | None) -> Any:
    """Sums over the features of blocks of observations, for each pair of these."""
    a = as_array(x, "x", "pairwise_distance")
    if y is None:
        a, columns = either_order(a)
        if columns and _is_dosage(a, options):
            opened = Genotypes.of_array(a, 0, None, False)
            return _teatime.DistanceSums.of_genotypes(opened, options, device(name), told())
        return _teatime.DistanceSums(a, None, {**options, "columns": columns}, device(name), told())
    b = as_array(y, "y", "pairwise_distance")
    common = np.result_type(a, b)
    a, b = (c_order(of.astype(common, copy=False)) for of in (a, b))
    return _teatime.DistanceSums(a, b, options, device(name), told())


def _is_dosage(features: NDArray[Any], options: dict[str, Any]) -> bool:
    """Whether two bits hold what there is: 0, 1, 2 and missing."""
    return (
        features.dtype == np.int8
        and features.shape[1] >= 64
        and options["metric"] in ("euclidean", "sqeuclidean", "cityblock")
        and options["missing"] == "ignore"
        and options["negative"]
        and int(features.max(initial=0)) <= 2
    )


def distances_of_sums(sums: Any, dtype: Any, transposed: bool) -> NDArray[Any]:
    """A tile of distances."""
    tile = sums.finish()[0].astype(dtype, copy=False)
    return tile.T if transposed else tile


def filtered(block: NDArray[Any], *, options: dict[str, Any], on: str | None) -> NDArray[Any]:
    """A block and its halo, filtered."""
    from ._filter import gaussian_filter

    if block.size == 0:
        return block.astype(options["output"])
    return gaussian_filter(block, device=device(on), **options)


def packed(block: NDArray[Any], *, bits: int, table: Any, missing: int | None, on: str | None) -> NDArray[np.uint8]:
    """A block whose rows are packed."""
    from ._bits import pack

    return pack(block, bits, table=table, missing=missing, device=device(on))


def unpacked(block: NDArray[np.uint8], *, bits: int, table: Any, dtype: Any, on: str | None) -> NDArray[Any]:
    """A block whose bytes are full."""
    from ._bits import unpack

    return unpack(block, block.shape[-1] * (8 // bits), bits, table=table, dtype=dtype, device=device(on))
