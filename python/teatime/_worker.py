"""What tasks do on a worker: stateless functions of blocks or of row ranges of stores, importable by name."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from . import _teatime
from ._arrays import WIDE, as_array, as_float32, c_order, either_order, of_one_type, on_card, on_host, scale_of, widened
from ._bits import pack, unpack
from ._cuda import CudaArray, device_of, given_array
from ._device import Device, run_options
from ._distance import operand
from ._filter import gaussian_filter, of_type
from ._genotypes import genotypes_of, open_store
from ._linalg import warn_unconverged
from ._teatime import Genotypes

_T = TypeVar("_T")
#: A store: its path, the array in it, whether absent chunks have the fill value, its options, and the ranges of its variants, if not all.
Place = tuple[str, Union[str, None], bool, Union[dict[str, Any], None], Union[list[tuple[int, int]], None]]


def device(name: str | None) -> Device:
    """The device of this worker, with as many threads as the worker has."""
    return _device(name, _here(lambda worker: int(worker.state.nthreads)), os.getpid())


@functools.lru_cache(maxsize=None)
def _device(name: str | None, threads: int | None, _process: int) -> Device:
    return Device(name, threads=threads)


def _here(read: Callable[[Any], _T]) -> _T | None:
    """The value that ``read`` takes from this worker of dask's; None outside of a worker, and where the worker does not have it."""
    try:
        from distributed import get_worker

        return read(get_worker())
    except (ImportError, ValueError, AttributeError):
        return None


def share(memory: int, threads: int) -> int:
    """A task's part of a worker's memory: half of what there is for each thread, since results wait beside it."""
    return memory // threads // 2


def _memory() -> int | None:
    """The :func:`share` of this worker's memory; None where it has no limit, and outside of a worker."""
    limit = _here(lambda worker: worker.memory_manager.memory_limit)
    return _here(lambda worker: share(limit, int(worker.state.nthreads))) if limit else None


def device_for(block: Any, name: str | None) -> Device | None:
    """The device for a block: None, where the block is, if that is the memory of a GPU and no device is named."""
    return None if name is None and on_card(block) else device(name)


def _genotypes(source: Any, ploidy: int | None, name: str, first: int = 0, variants: int | None = None) -> Genotypes:
    """Genotypes of a store, or of a block: as those from ``first`` on of so many variants."""
    if not isinstance(source, tuple):
        return genotypes_of(on_host(source, "genotypes", name), ploidy, name, first=first, variants=variants)
    path, array, fill, storage_options, rows = source
    with seen_here():
        opened = open_store(path, array, fill=fill, storage_options=storage_options)
    return genotypes_of(opened if rows is None else opened.select(rows), ploidy, name)


def part(source: Any, rows: tuple[int, int], variants: int, ploidy: int | None, options: dict[str, Any], name: str | None) -> Any:
    """Counts and sums over a range of a store's variants, or over a block of them."""
    return _teatime.Part(_genotypes(source, ploidy, "pca", rows[0], variants), rows, options, run_options(device(name)))


@contextlib.contextmanager
def seen_here() -> Iterator[None]:
    """Says from where a store was looked for, where it is not."""
    try:
        yield
    except OSError as error:
        import socket

        raise OSError(f"{error} (seen from {socket.gethostname()}, process {os.getpid()}: every worker has to see the store)") from error


def merge(one: Any, other: Any) -> Any:
    """Both sums."""
    return one.merge(other)


def pca_of_part(part: Any, like: Any, variants: int, ploidy: int | None, options: dict[str, Any], name: str | None) -> dict[str, Any]:
    """The components of all variants' sums."""
    pca, _ = _teatime.pca(_genotypes(like, ploidy, "pca", 0, variants), options, run_options(device(name)), part)
    return {**pca, "converged": np.array(pca["converged"])}


def grm_of_part(part: Any, like: Any, variants: int, ploidy: int | None, options: dict[str, Any], name: str | None) -> tuple[Any, Any, Any]:
    """The relationship matrix of all variants' sums."""
    return _teatime.grm(_genotypes(like, ploidy, "pca", 0, variants), options, run_options(device(name)), part)


#: The names of the counts of variants: all, those used, and those left out for each reason.
COUNTS = ("total", "used", "above_missing", "all_missing", "below_maf", "zero_variance")


class Product(NamedTuple):
    """A product of some of the variants, or of all; or another sum over them."""

    values: NDArray[np.float64]
    #: A digest of each variant's sum of dosages and number of calls, modulo 2^64. If it differs, sums are of different genotypes.
    digest: int


class _Kept:
    """An object that stays on this worker's device between tasks, and is made again on another worker. It is made when it is first asked
    for and not in ``__init__``: an error while dask unpickles would never be told."""

    _make: Callable[..., Any]

    def __init__(self, *made_of: Any) -> None:
        self._made_of = made_of
        self._lock = threading.Lock()
        self._made: Any = None

    def __reduce__(self) -> Any:
        return type(self), self._made_of

    def loaded(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._make(*self._made_of)
            return self._made


class Band(_Kept):
    """Some of the variants: those of a block, or ``rows`` of a store."""

    def _make(self, source: Any, rows: tuple[int, int], ploidy: int | None, options: dict[str, Any], name: str | None) -> Any:
        opened = _genotypes(source, ploidy, "pca")
        if isinstance(source, tuple):
            opened = opened.select([rows])
        self._packed = opened.variants * opened.samples // 4
        # A band with fewer variants than components is no error, since other bands have more.
        few = {**options, "n_components": min(options["n_components"], opened.variants)}
        return _teatime.Loaded(opened, few, run_options(device(name)))

    def __sizeof__(self) -> int:
        source = self._made_of[0]
        return int((0 if self._made is None else self._packed) + (0 if isinstance(source, tuple) else source.nbytes))

    def product(self, x: NDArray[np.float64]) -> Product:
        """``Aᵀ (A x)`` of the standardised variants."""
        loaded = self.loaded()
        return Product(loaded.normal_product(c_order(x), run_options()), loaded.digest)

    def totals(self) -> Product:
        """The sum of squares of the standardised variants, and their counts, in the order of :data:`COUNTS`."""
        loaded = self.loaded()
        squares, counts = loaded.totals()
        return Product(np.array([squares, *(counts[name] for name in COUNTS)]), loaded.digest)


def band(source: Any, *made_of: Any) -> Band:
    """A range of a store's variants, or a block of them."""
    made = Band(source if isinstance(source, tuple) else on_host(source, "genotypes", "pca"), *made_of)
    made.loaded()
    return made


def product_of_band(band: Band, x: NDArray[np.float64] | None) -> Product | None:
    """A band's part of a product. The iteration may need none any more."""
    return None if x is None else band.product(x)


def add_products(one: Product | None, other: Product | None) -> Product | None:
    """Both."""
    if one is None or other is None:
        return None
    return Product(one.values + other.values, (one.digest + other.digest) % 2**64)


def _values(made: Sequence[Product | None]) -> list[NDArray[np.float64]]:
    """The sums of the products that were made."""
    done = [product for product in made if product is not None]
    if len({product.digest for product in done}) > 1:
        raise RuntimeError(
            "the genotypes changed between two products: their store was written meanwhile, or blocks differ where they are computed again"
        )
    return [c_order(product.values) for product in done]


def product_of_block(block: NDArray[Any], x: NDArray[np.float64], name: str | None) -> NDArray[np.float64]:
    """A block's part of ``Aᵀ (A x)``: of float64 and integers of 32 and 64 bits where the CPU computes, in float64."""
    # A GPU computes products in float32 only. Other types are copied to the host, and computed on the device that is asked for.
    given = (given_array if block.dtype == np.float32 else on_host)(block, "a", "svd_compressed")
    a = as_array(given, "a", "svd_compressed")
    on = device_of(device_for(given, name), a=a)
    wide = a.dtype in WIDE and isinstance(on, Device) and on.backend == "cpu"
    a, scale = (widened(a), scale_of(a)) if wide else as_float32(a, "a", integers=given.dtype.kind in "iu")
    if not 2.0**-500 <= scale <= 2.0**500:
        raise ValueError(f"`a`: a block of numbers up to about {scale:.0e}: above 2**500, and below 2**-500, their products leave float64")
    return a.T @ (a @ x) if wide else _teatime.normal_product(c_order(a), c_order(x), run_options(on)) * scale**2


def random_vectors(n: int, columns: int, seed: int) -> NDArray[np.float64]:
    """The first that are multiplied: orthonormal, (n, columns)."""
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, columns)))[0]


def orthonormal(*parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the columns of all span."""
    return np.linalg.qr(np.concatenate(parts, axis=1))[0]


def factored(block: NDArray[Any], basis: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Q and R of a block's product with a basis: a leaf of a QR decomposition of all (Demmel, Grigori, Hoemmen, Langou 2012)."""
    q, r = np.linalg.qr(_float64(block) @ basis)
    return q, r


def stacked(*triangles: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int]]:
    """The orthonormal rows that each block's Q is multiplied with, and where they begin."""
    return np.linalg.qr(np.concatenate(triangles))[0], [0, *np.cumsum([len(triangle) for triangle in triangles]).tolist()]


def left_basis(own: NDArray[np.float64], root: tuple[NDArray[np.float64], list[int]], place: int) -> NDArray[np.float64]:
    """A block's rows of the Q of all."""
    q, starts = root
    return own @ q[starts[place] : starts[place + 1]]


def projected(q: NDArray[np.float64], block: NDArray[Any]) -> NDArray[np.float64]:
    """A block's part of ``Qᵀ A``."""
    return q.T @ _float64(block)


def _float64(block: Any) -> NDArray[np.float64]:
    return on_host(block, "a", "svd_compressed").astype(np.float64, copy=False)


def svd_of_projection(b: NDArray[np.float64], k: int, coerce_signs: bool) -> dict[str, Any]:
    """The k largest singular values of ``Qᵀ A``, and their vectors."""
    u, s, vt = np.linalg.svd(b, full_matrices=False)
    signs = np.where(vt[:k].sum(axis=1) < 0, -1.0, 1.0) if coerce_signs else np.ones(k)
    return {"u": u[:, :k] * signs, "s": s[:k], "vt": vt[:k] * signs[:, np.newaxis]}


def left_vectors(q: NDArray[np.float64], svd: dict[str, Any], dtype: str) -> NDArray[Any]:
    """A block's rows of the left singular vectors."""
    return (q @ svd["u"]).astype(dtype, copy=False)


class Iteration(_Kept):
    """The randomized iteration for the ``k`` largest singular values of a matrix, with the options ``svd``, of which others make the
    products. It knows those that it was given, and on another worker is given them again."""

    def _make(self, shape: tuple[int, int], k: int, svd: dict[str, Any]) -> Any:
        return _teatime.Iteration(shape, k, svd)

    def step(self, made: Sequence[Product | None]) -> tuple[Any, Any]:
        """The next vectors to multiply, or what the iteration has found."""
        return self.loaded().step(_values(made), run_options())


def next_vectors(iteration: Iteration, made: Sequence[Product | None]) -> Any:
    """The iteration's next vectors to multiply; None where it has converged."""
    return None if any(product is None for product in made) else iteration.step(made)[0]


def components(iteration: Iteration, made: Sequence[Product | None], svd: dict[str, Any]) -> dict[str, Any]:
    """The singular values and right vectors that the iteration has found."""
    _, result = iteration.step(made)
    if result is None:
        raise RuntimeError("the iteration needs more products than it was given")
    s, v, residuals, converged = result
    passes = 1 + sum(product is not None for product in made)
    warn_unconverged(residuals, converged, svd)
    return {"s": s, "v": v, "residuals": residuals, "converged": converged, "passes": passes, "made": made[:1]}


def pca_of_components(svd: dict[str, Any], totals: Product) -> dict[str, Any]:
    """A PCA's results."""
    s, v = svd["s"], svd["v"]
    _values([*svd["made"], totals])
    squares, counts = totals.values[0], dict(zip(COUNTS, totals.values[1:].astype(int).tolist(), strict=True))
    if counts["used"] == 0:
        raise ValueError("no variant is left that varies")
    return {
        "scores": v * s, "vectors": v, "singular_values": s, "explained_variance": s**2 / v.shape[0],
        "explained_variance_ratio": s**2 / (squares if squares > 0 else 1.0), "residuals": svd["residuals"],
        "converged": np.array(svd["converged"]), "passes": svd["passes"], "counts": counts,
    }


def item(results: Any, key: Any) -> Any:
    """One of several results."""
    return results[key]


def sums_of_blocks(x: NDArray[Any], y: NDArray[Any] | None, options: dict[str, Any], name: str | None, other: str) -> Any:
    """Sums over the features of blocks of observations, for each pair of these. ``y`` is of the array that ``other`` names."""
    on: Device | str | None = device_for(x, name)
    narrow = options["narrow"]
    a = operand(x, "x", narrow, on)
    b = None if y is None else operand(y, other, narrow, on)
    on = device_of(on, x=a, y=b)
    if b is None:
        a, columns = either_order(a)
        if columns and _is_dosage(a, options):
            opened = Genotypes.of_array(a, 0, None, False)
            return _teatime.DistanceSums.of_genotypes(opened, options, run_options(on))
        return _teatime.DistanceSums(a, None, {**options, "columns": columns}, run_options(on))
    a, b = (c_order(block) for block in of_one_type(a, b))
    return _teatime.DistanceSums(a, b, options, run_options(on))


#: Metrics with sums that are computed from packed dosages.
OF_DOSAGES = frozenset(("euclidean", "sqeuclidean", "cityblock", "hamming", "inner_product", "cosine", "correlation"))


def _is_dosage(features: NDArray[Any], options: dict[str, Any]) -> bool:
    """Whether two bits hold what there is: 0, 1, 2 and missing."""
    if isinstance(features, CudaArray) or features.dtype != np.int8 or features.shape[1] < 64 or options["metric"] not in OF_DOSAGES:
        return False
    negatives_are_missing = options["negative"] and options["missing"] != "propagate"
    return int(features.max(initial=0)) <= 2 and (negatives_are_missing or int(features.min(initial=0)) >= 0)


def sums_of_store(store: Place, rows: tuple[int, int], ploidy: int | None, options: dict[str, Any], name: str | None) -> Any:
    """Sums over a range of a store's variants, for each pair of samples."""
    opened = _genotypes(store, ploidy, "pairwise_distance").select([rows])
    return _teatime.DistanceSums.of_genotypes(opened, options, run_options(device(name)))


class SampleBands(_Kept):
    """Distances of a store's samples, a tile of them at a time, of all variants: the counts of these stay on this worker, and they
    themselves where memory holds them. Another worker reads the store again, and fails where that has changed."""

    def _make(
        self, source: Place, ploidy: int | None, options: dict[str, Any], side: int, memory: int | None, name: str | None,
        digest: int | None = None,
    ) -> Any:
        opened = _genotypes(source, ploidy, "pairwise_distance")
        made = _teatime.DistanceBands(opened, options, side, run_options(device(name), memory=memory))
        if digest not in (None, made.digest):
            raise RuntimeError(f"the genotypes changed between two tasks: {source[0]} was written meanwhile")
        self._made_of = (source, ploidy, options, side, memory, name, made.digest)
        return made


def bands_of_store(*made_of: Any) -> SampleBands:
    """Distances of a store's samples, yet to be made."""
    bands = SampleBands(*made_of)
    bands.loaded()
    return bands


def tiles_of_band(bands: SampleBands, tile: int, side: int) -> list[NDArray[np.float64]]:
    """The distances of a tile of samples from themselves, and from each tile that follows: (others, own)."""
    band = bands.loaded().band(tile, run_options())
    return [band[first : first + side] for first in range(0, len(band), side)]


def above_diagonal(*tiles: NDArray[Any]) -> NDArray[Any]:
    """The entries right of the diagonal of some rows of a square, whose first tile has the diagonal."""
    rows = np.concatenate(tiles, axis=1)
    return rows[np.arange(rows.shape[0])[:, np.newaxis] < np.arange(rows.shape[1])]


def distances_of_sums(sums: Any, dtype: Any) -> NDArray[Any]:
    """A tile of distances."""
    return sums.finish()[0].astype(dtype, copy=False)


def filtered(block: NDArray[Any], *, options: dict[str, Any], before: Any, becomes: str, on: str | None, block_info: Any) -> NDArray[Any]:
    """A block that is filtered, without its halo, of which so much is ``before`` a first block and others, along each axis."""
    given = {key: value for key, value in options.items() if key != "preserve_range"}
    result = gaussian_filter(block, output=becomes, device=device_for(block, on), **given) if block.size else block.astype(becomes)
    kept = zip(before, block_info[None]["chunk-location"], block_info[None]["chunk-shape"])
    return result[tuple(slice(halos[at > 0], halos[at > 0] + extent) for halos, at, extent in kept)]


def filtered_box(
    path: str, array: str | None, fill: bool, options: dict[str, Any], computed: str, becomes: str, on: str | None, *, block_info: Any
) -> NDArray[Any]:
    """A box of a stored array, filtered."""
    # The result is held twice: in the type in which it is computed, and in that in which it is returned.
    held = {np.dtype(computed), np.dtype(becomes)}
    within, memory = _box(block_info, sum(dtype.itemsize for dtype in held))
    with seen_here():
        stored = _teatime.StoredArray(path, array, fill)
    return of_type(stored.gaussian(within, options, computed, run_options(device(on), memory=memory)), np.dtype(becomes))


def mapped_box(path: str, array: str | None, fill: bool, overlap: Any, on: str, *, block_info: Any) -> NDArray[Any]:
    """Returns a box of what a function makes of a stored array."""
    within, memory = _box(block_info, overlap.dtype.itemsize)
    with seen_here():
        stored = _teatime.StoredArray(path, array, fill)
    return _teatime.map_box(stored, overlap.compiled(), within, run_options(device(on), memory=memory))


def _box(block_info: Any, item: int) -> tuple[list[tuple[int, int]], int | None]:
    """Returns the box of a task, and the bytes that it may hold besides its result, of which an element takes ``item`` bytes."""
    within = [(int(start), int(end)) for start, end in block_info[None]["array-location"]]
    memory = _memory()
    if memory is None:
        return within, None
    held = math.prod(end - start for start, end in within) * item
    if held >= memory:
        raise MemoryError(
            f"a box of {[end - start for start, end in within]} takes {held / 1e9:.3g} GB, and a task may hold {memory / 1e9:.3g} GB of "
            "this worker: take smaller `chunks`, or fewer threads a worker"
        )
    return within, memory - held


def packed(block: NDArray[Any], *, bits: int, table: Any, missing: int | None, on: str | None) -> NDArray[np.uint8]:
    """A block whose rows are packed."""
    return pack(block, bits, table=table, missing=missing, device=device_for(block, on))


def unpacked(block: NDArray[np.uint8], *, bits: int, table: Any, becomes: str, on: str | None) -> NDArray[Any]:
    """A block whose bytes are full."""
    return unpack(block, block.shape[-1] * (8 // bits), bits, table=table, dtype=becomes, device=device_for(block, on))
