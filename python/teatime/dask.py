"""The same on dask arrays and on Zarr stores, in tasks of dask's: on threads, on processes, or on a cluster.

Two modes behind one call. Of a **dask array**, tasks take its blocks: reading is dask's. Of the **path** of a store, each task reads a
range of it with teatime's own reader, which decodes while it computes; every worker has to see the path.

Nothing is computed until the result is, but with ``compute=True``. Results are the same bits for any number of workers of one kind,
and after a worker was lost: what is summed in which order follows from the shapes alone.

On a worker, functions use as many threads as the worker has. With ``device`` they run on the device of that name; with
``resources={"GPU": 1}`` no more of them at once than workers declare.
"""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

try:
    import dask
    import dask.array as da
    from dask.base import tokenize
    from dask.delayed import delayed
    from dask.highlevelgraph import HighLevelGraph
except ImportError as error:  # pragma: no cover
    raise ImportError("teatime.dask needs dask: pip install 'teatime-gpu[dask]'") from error

from . import _teatime, _worker
from ._arrays import float_type
from ._arrays import whole as whole_number
from ._dask_blocks import gaussian_filter, map_overlap, pack, unpack
from ._device import run_options
from ._distance import distance_options
from ._tasks import Source, annotated, array_of, device_name, finished, iterated, known, named, tree
from .genotype import GRM, PCA, Genotypes, pca_options

__all__ = ["GRM", "PCA", "gaussian_filter", "grm", "map_overlap", "pack", "pairwise_distance", "pca", "svd_compressed", "unpack"]


_OF_EACH_COMPONENT = ("singular_values", "explained_variance", "explained_variance_ratio", "residuals", "converged")
#: The maximum number of samples for the exact method, which sums over each pair. With more samples, the randomized one is chosen.
_MOST_EXACT = 5000


def pca(
    genotypes: Any, n_components: int = 10, *, scaler: str | None = "patterson", ploidy: int | None = None, method: str = "auto",
    min_maf: float = 0.0, max_missing: float = 1.0, n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4,
    random_state: int = 0, signs: str = "stable", array: str | None = None, fill: bool = False,
    storage_options: dict[str, Any] | None = None, contigs: str | Iterable[str] | None = None, n_autosomes: int | None = None,
    rows_per_task: int | None = None, device: str | None = None, resources: dict[str, float] | None = None, compute: bool = False,
) -> PCA[Any]:
    """Principal components of the samples, as :func:`teatime.genotype.pca`.

    Parameters
    ----------
    genotypes
        A dask array of calls (variants, samples, ploidy) or dosages (variants, samples), chunked in any way; or the path of a store.
    n_components, scaler, ploidy, min_maf, max_missing, signs
        As in :func:`teatime.genotype.pca`.
    method
        ``"exact"``: one pass, of which each task gives 4 samples² bytes of sums. ``"randomized"``: some tens of products, between which
        genotypes stay on the workers, two bits each; a task gives 8 samples (n_components + n_oversamples) bytes a product. ``"auto"``:
        exact for up to 5,000 samples, where the largest worker of the client holds three times the sums.
    n_iter, n_oversamples, tol, random_state
        As in :func:`teatime.genotype.pca`. Without ``compute=True`` there are tasks for 64 products, of which those that are not needed do
        nothing.
    array, fill, storage_options, contigs, n_autosomes
        Of a store: as in :func:`teatime.genotype.open_store`. All tasks take the variants that were chosen when this was called. ``storage_options`` are
        part of the tasks: leave secrets to the environment of the workers.
    rows_per_task
        Variants of a task. None: of an array, about its chunks; of a store, 96 MiB of genotypes, or more for many samples.
    device
        The name of a device of the workers.
    resources
        Such as ``{"GPU": 1}``: what a task takes of a worker's resources; with ``compute=True``. For what is computed later,
        ``dask.annotate(resources=...)`` stands around that ``compute``.
    compute
        Whether it is computed at once.

    Returns
    -------
    PCA
        Of dask arrays, or of NumPy's with ``compute=True``: the same bits for any number of workers of one kind. Those of the exact method
        are those of :func:`teatime.genotype.pca` to the bit, where dosages are 0, 1 and 2.

    Examples
    --------
    >>> dosages = da.random.default_rng(0).integers(0, 3, (4096, 6), dtype="i1")
    >>> pca(dosages, 2).scores.shape
    (6, 2)
    >>> type(pca(dosages, 2, compute=True).scores).__name__
    'ndarray'
    """
    if signs == "u":
        raise ValueError("`signs` of u need the left vectors, which is another pass: stable, v, dask or none")
    options = pca_options(
        n_components, scaler=scaler, method="exact", min_maf=min_maf, max_missing=max_missing, signs=signs,
        n_iter=n_iter, n_oversamples=n_oversamples, tol=tol, random_state=random_state,
    )
    _teatime.check(options)
    device = device_name(device)
    with annotated(resources, compute):
        source = Source.open(genotypes, array, fill, storage_options, (contigs, n_autosomes), rows_per_task)
        variants, samples = source.shape
        k = options["n_components"]
        if k > min(variants, samples):
            raise ValueError(f"`n_components` of {n_components}: {variants} variants of {samples} samples have fewer")
        if method not in ("auto", "exact", "randomized"):
            raise ValueError(f"`method` is auto, exact or randomized, not {method!r}")
        if method == "auto":
            held, most = source.pair_memory(4)
            method = "exact" if samples <= _MOST_EXACT and held <= most else "randomized"
        if method == "exact":
            source.check_pairs(4, "method='randomized' takes less")
            part = source.part(ploidy, options, device)
            results = named(_worker.pca_of_part, "pca")(part, source.like, variants, ploidy, options, device)
        else:
            bands = source.tasks(_worker.band, "band", ploidy, options, device)
            components = iterated(bands, source.shape, n_components, options["svd"], compute)
            totals = named(_worker.Band.totals, "totals")
            sums = tree([totals(band) for band in bands], "add-totals", _worker.add_products)
            results = named(_worker.pca_of_components, "pca")(components, sums)
        pick = named(_worker.item, "pca-result")
        result = {field.name: pick(results, field.name) for field in fields(PCA) if field.name != "names"}
        for key, *shape in (("scores", samples, k), ("vectors", samples, k), *((key, k) for key in _OF_EACH_COMPONENT)):
            result[key] = array_of(result[key], *shape, dtype=np.bool_ if key == "converged" else "f8")
        return finished(PCA(**result, names=source.names), compute)


def svd_compressed(
    a: Any, k: int, iterator: str = "power", n_power_iter: int = 0, n_oversamples: int = 10, seed: Any = None, compute: bool = False,
    coerce_signs: bool = True, *, device: str | None = None, resources: dict[str, float] | None = None,
) -> tuple[Any, Any, Any]:
    """The largest singular values and their vectors, u (m, k), s (k,) and v (k, n): dask's ``svd_compressed``, with its arguments.

    ``n_power_iter`` + 3 passes over ``a`` (one more for ``u`` with ``compute``), where dask's makes 2 ``n_power_iter`` + 2: what all
    iterations found is used, and not the last alone (a block Krylov method, Musco and Musco 2015), so that fewer are needed. The power
    iterations run on the device, in float32, or of float64 where the CPU computes by NumPy in float64; the QR decomposition and the
    projection after them by NumPy in float64.

    Parameters
    ----------
    a : (m, n)
        A dask array. It is rechunked where it is in several chunks along its columns.
    k
        How many.
    iterator
        Taken and not used: every step is orthogonalised.
    n_power_iter
        Power iterations.
    n_oversamples
        Columns of the random block beyond ``k``; at least 20 columns in all, as in dask.
    seed
        An integer; None is 0. The same random numbers for any chunks.
    compute
        Whether each pass is computed at once, which holds nothing of ``a`` between passes.
    coerce_signs
        Whether the sum of each row of ``v`` is made positive, as in dask.
    device, resources
        As in :func:`pca`.

    Examples
    --------
    >>> u, s, v = svd_compressed(da.ones((400, 9), chunks=(100, 9)), 1)
    >>> s.compute().round(6)
    array([60.])
    """
    if iterator not in ("power", "QR"):
        raise ValueError(f"`iterator` is power or QR, not {iterator!r}")
    x = da.asarray(a)
    if x.ndim != 2:
        raise ValueError(f"`a` is a matrix, and has {x.ndim} axes: {x.shape}")
    known(x, "a")
    m, n = x.shape
    k = min(whole_number(k, "k"), m, n)
    passes = whole_number(n_power_iter, "n_power_iter") + 1
    seed = 0 if seed is None else whole_number(seed, "seed", most=2**64 - 1)
    if len(x.chunks[1]) > 1:
        x = x.rechunk({1: -1})
    columns = min(max(20, k + whole_number(n_oversamples, "n_oversamples")), m, n)
    dtype = np.dtype("f4") if x.dtype == np.float32 else np.dtype("f8")
    device = device_name(device)
    with annotated(resources, compute):

        def settled(task: Any) -> Any:
            return delayed(task.compute(), pure=True) if compute else task

        blocks = list(x.to_delayed().reshape(-1))
        multiply, span = named(_worker.product_of_block, "product"), named(_worker.orthonormal, "orthonormal")
        basis = [named(_worker.random_vectors, "random-vectors")(n, columns, seed)]
        for _ in range(passes):
            product = tree([multiply(block, basis[-1], device) for block in blocks], "add-products", operator.add)
            basis.append(settled(span(product)))
        whole = settled(span(*basis))
        factor, pick = named(_worker.factored, "qr"), named(_worker.item, "svd-result")
        factors = [factor(block, whole) for block in blocks]
        root = settled(named(_worker.stacked, "qr-of-all")(*[pick(qr, 1) for qr in factors]))
        own = named(_worker.left_basis, "left-basis")
        bases = [own(pick(qr, 0), root, place) for place, qr in enumerate(factors)]
        project = named(_worker.projected, "projected")
        projection = tree([project(q, block) for q, block in zip(bases, blocks, strict=True)], "add-products", operator.add)
        svd = settled(named(_worker.svd_of_projection, "svd")(projection, k, coerce_signs))
        left = named(_worker.left_vectors, "left-vectors")
        rows = [array_of(left(q, svd, str(dtype)), extent, k, dtype=dtype) for q, extent in zip(bases, x.chunks[0], strict=True)]
        s, v = array_of(pick(svd, "s"), k), array_of(pick(svd, "vt"), k, n)
    return da.concatenate(rows), s.astype(dtype), v.astype(dtype)


def grm(
    genotypes: Any, method: str = "gcta", *, missing: str = "pairwise", ploidy: int | None = None, min_maf: float = 0.0,
    max_missing: float = 1.0, array: str | None = None, fill: bool = False, storage_options: dict[str, Any] | None = None,
    contigs: str | Iterable[str] | None = None, n_autosomes: int | None = None, rows_per_task: int | None = None, device: str | None = None,
    resources: dict[str, float] | None = None, compute: bool = False,
) -> GRM[Any]:
    """The genomic relationship matrix of the samples, as :func:`teatime.genotype.grm`.

    MemoryError where the largest worker of the client holds less than three times the sums of all pairs, 4 samples² bytes each, 8 where
    missing calls count by pairs.

    Parameters
    ----------
    method, missing, ploidy, min_maf, max_missing
        As there.
    genotypes, array, fill, storage_options, contigs, n_autosomes, rows_per_task, device, resources, compute
        As in :func:`pca`.

    Examples
    --------
    >>> dosages = da.random.default_rng(0).integers(0, 3, (4096, 6), dtype="i1")
    >>> grm(dosages, compute=True).matrix.shape
    (6, 6)
    """
    options = {"method": method, "missing": missing, "min_maf": min_maf, "max_missing": max_missing}
    _teatime.check(options)
    device = device_name(device)
    with annotated(resources, compute):
        source = Source.open(genotypes, array, fill, storage_options, (contigs, n_autosomes), rows_per_task)
        pairwise = missing == "pairwise"
        source.check_pairs(8 if pairwise else 4, "take fewer samples")
        variants, samples = source.shape
        results = named(_worker.grm_of_part, "grm")(source.part(ploidy, options, device), source.like, variants, ploidy, options, device)
        pick = named(_worker.item, "grm-result")
        matrix, shared = (array_of(pick(results, place), samples, samples) for place in (0, 1))
        return finished(GRM(matrix, shared if pairwise else None, pick(results, 2), source.names), compute)


#: The number of sums for each pair, of metrics that have more than others.
_TERMS = {"cosine": 4, "correlation": 6}


def pairwise_distance(
    x: Any, metric: str = "euclidean", split_every: int | None = None, target: str | None = None, device: str | None = None, *,
    y: Any = None, p: float = 2.0, missing: str | None = None, negative: bool = False, condensed: bool = False, narrow: bool | None = None,
    ploidy: int | None = None, array: str | None = None, fill: bool = False, storage_options: dict[str, Any] | None = None,
    contigs: str | Iterable[str] | None = None, n_autosomes: int | None = None, rows_per_task: int | None = None,
    samples_per_task: int | None = None, resources: dict[str, float] | None = None, compute: bool = False,
) -> Any:
    """Distances of observations from one another, or from those of ``y``, as :func:`teatime.pairwise_distance`, with the arguments of
    sgkit's too.

    Of dosages in which negative numbers are missing, sgkit's result is that with ``missing="ignore", negative=True``.

    Parameters
    ----------
    x : (observations, features)
        A dask array, chunked in any way along both. Each pair of blocks of observations is a task for each block of features; their sums
        are added up two by two. Or the path of a store of genotypes, whose samples are the observations, as in
        :func:`teatime.genotype.distances`: its missing calls are missing whatever ``negative`` says, and dosages above 2 are an error
        for euclidean, sqeuclidean, cityblock, hamming, inner_product, cosine and correlation. At variants of more than two alleles different
        ones differ as there; in tiles such a store is refused, and by other metrics all but the reference count as one.
    metric
        One of :func:`teatime.pairwise_distance`, but jensenshannon, whose sums are of all features; of a store, nor kl_divergence.
    split_every, target
        Taken and not used.
    device
        The name of a device of the workers; sgkit's ``"gpu"`` is the fastest.
    y : (others, features), optional
        A dask array, if ``x`` is one: each pair of a block of ``x`` and a block of ``y`` is a task. It is rechunked where its blocks of
        features are not those of ``x``.
    condensed
        Each pair of ``x`` once, in scipy's order, in place of the square: a chunk for each block of observations. The task that makes a
        chunk holds the distances of the block from all observations that follow.
    p, negative, narrow
        As in :func:`teatime.pairwise_distance`.
    missing
        As there. None: ``"propagate"`` of an array, as there; ``"rescale"`` of a store, as in :func:`teatime.genotype.distances`.
    ploidy, array, fill, storage_options, contigs, n_autosomes, rows_per_task
        Of a store, as in :func:`pca`.
    samples_per_task
        Of a store, for the metrics that are named above: tasks of so many samples, rounded down to a multiple of 64, and all variants give
        the result in tiles. Each worker counts once over the store, and keeps the genotypes where it has memory for them. None: tasks of
        some variants and all pairs, where the largest worker of the client holds three times their sums, 4 samples² bytes for each sum of
        the metric; else tiles, by the memory of the smallest.
    resources, compute
        As in :func:`pca`.

    Returns
    -------
    (observations, observations), (observations, others) or condensed
        Of float32 for float32 and float16, else of float64. Of a store, a MemoryError where no worker holds the sums of all pairs, and for
        other metrics or where the smallest holds no tile of 64 samples.

    Examples
    --------
    >>> x = da.from_array(np.array([[0, 0], [3, 4]], "f4"), chunks=1)
    >>> pairwise_distance(x).compute()
    array([[0., 5.],
           [5., 0.]], dtype=float32)
    """
    del split_every, target
    name = None if isinstance(device, str) and device == "gpu" else device_name(device)
    if metric == "jensenshannon":
        raise NotImplementedError("jensenshannon needs whole observations: teatime.pairwise_distance")
    of_store = isinstance(x, (str, os.PathLike, Genotypes))
    missing = missing or ("rescale" if of_store else "propagate")
    if y is not None and (of_store or condensed):
        raise ValueError("`y` is for a dask array `x`, without `condensed`: teatime.genotype.distances_between compares two stores")
    options = distance_options(metric, p=p, missing=missing, negative=negative, narrow=narrow)
    # An unknown metric or rule is refused before anything is submitted.
    _teatime.pairwise(np.empty((0, 1), np.float32), None, options, False, run_options("cpu"))
    symmetric = options["metric"] != "kl_divergence"
    if condensed and not symmetric:
        raise ValueError(f"`metric`: {metric} is not symmetric: there is no condensed form")
    finish = named(_worker.distances_of_sums, "distances")
    if of_store:
        if not symmetric:
            raise NotImplementedError(f"{metric} of a store: its distances are not symmetric")
        with annotated(resources, compute):
            pair_bytes = 4 * _TERMS.get(options["metric"], 3)
            chosen = contigs, n_autosomes
            source = Source.open(x, array, fill, storage_options, chosen, rows_per_task, pair_bytes, "x")
            held, most = source.pair_memory(pair_bytes)
            in_tiles = options["metric"] in _worker.OF_DOSAGES
            if samples_per_task is not None or (held > most and in_tiles):
                if not in_tiles:
                    raise NotImplementedError(f"`samples_per_task` of {metric}: tiles are of {', '.join(sorted(_worker.OF_DOSAGES))}")
                tiled = _tiles_of_store(source, ploidy, options, name, samples_per_task)
                return finished(_condensed(tiled) if condensed else tiled, compute)
            source.check_pairs(pair_bytes, "of a dask array of dosages, a task holds the pairs of two blocks")
            whole = tree(source.tasks(_worker.sums_of_store, "pair-sums", ploidy, options, name), "merge-distances")
            square = array_of(finish(whole, np.dtype("f8")), source.shape[1], source.shape[1])
            return finished(_condensed(square) if condensed else square, compute)
    if fill or any(given is not None for given in (ploidy, array, storage_options, contigs, n_autosomes, rows_per_task, samples_per_task)):
        raise TypeError(
            "`ploidy`, `array`, `fill`, `storage_options`, `contigs`, `n_autosomes`, `rows_per_task` and `samples_per_task` are for the path "
            "of a store"
        )
    x, y = _observations(x, "x"), None if y is None else _observations(y, "y")
    if y is not None and y.shape[1] != x.shape[1]:
        raise ValueError(f"`x` has {x.shape[1]} features, `y` {y.shape[1]}")
    out = float_type(np.empty(0, x.dtype if y is None else np.result_type(x.dtype, y.dtype)))
    with annotated(resources, compute):
        sums, name_of_other = named(_worker.sums_of_blocks, "pair-sums"), "x" if y is None else "y"
        others = x if y is None else y.rechunk({1: x.chunks[1]})
        rows, columns = x.to_delayed(), others.to_delayed()
        tiles: dict[tuple[int, int], Any] = {}
        for i, j in itertools.product(range(len(rows)), range(len(columns))):
            if y is None and symmetric and j < i:
                tiles[i, j] = tiles[j, i].T
                continue
            right = itertools.repeat(None) if y is None and i == j else columns[j]
            parts = [sums(block, other, options, name, name_of_other) for block, other in zip(rows[i], right)]
            tiles[i, j] = array_of(finish(tree(parts, "merge-distances"), out), x.chunks[0][i], others.chunks[0][j], dtype=out)
        matrix = da.block([[tiles[i, j] for j in range(len(columns))] for i in range(len(rows))])
        return finished(_condensed(matrix) if condensed else matrix, compute)


def _observations(x: Any, name: str) -> Any:
    """A dask array of two axes, and of a known shape."""
    if isinstance(x, (str, os.PathLike)):
        raise TypeError(f"`{name}` is a dask array, not the path {str(x)!r}")
    x = da.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"`{name}` is (observations, features), and has {x.ndim} axes: {x.shape}")
    known(x, name)
    return x


def _condensed(square: Any) -> Any:
    """The entries of a square above its diagonal, row by row. Tiles below it are not computed."""
    rows, tiles = named(_worker.above_diagonal, "condensed"), square.to_delayed(optimize_graph=False)
    chunks, rest = [], square.shape[0]
    for i, extent in enumerate(square.chunks[0]):
        length = extent * rest - extent * (extent + 1) // 2
        chunks.append(array_of(rows(*tiles[i, i:]), length, dtype=square.dtype))
        rest -= extent
    return da.concatenate(chunks)


#: The bytes of a task for each pair of samples, sums and their copies included, of metrics that take more than others.
_PAIR_BYTES = {"cosine": 128, "correlation": 128}


def _tiles_of_store(source: Source, ploidy: int | None, options: dict[str, Any], name: str | None, samples_per_task: int | None) -> Any:
    """Distances in tiles, of which those above the diagonal are those below it, transposed."""
    side, memory = source.band(samples_per_task, _PAIR_BYTES.get(options["metric"], 64))
    bands = named(_worker.bands_of_store, "bands-of-store", source.stamp)(source.like, ploidy, options, side, memory, name)
    extents = tuple(min(side, source.shape[1] - first) for first in range(0, source.shape[1], side))
    # The graph has one layer, since there may be many thousands of tiles. dask keeps some layers of one task that nothing asks for.
    token = tokenize(bands.key)
    tile = f"teatime-tile-{token}"
    graph: dict[Any, Any] = {}
    for i in range(len(extents)):
        band = (f"teatime-tiles-{token}", i)
        graph[band] = (_worker.tiles_of_band, bands.key, i, side)
        for j in range(i, len(extents)):
            graph[tile, j, i] = (_worker.item, band, j - i)
            if i != j:
                graph[tile, i, j] = (np.transpose, (tile, j, i))
    return da.Array(HighLevelGraph.from_collections(tile, graph, [bands]), tile, (extents, extents), meta=np.empty((0, 0)))
