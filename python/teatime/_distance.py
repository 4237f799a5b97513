"""Distances of observations."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _teatime
from ._arrays import as_array, c_order, either_order, float_type, folder, host_array, is_path, of_one_type, on_host, text_options, whole
from ._cuda import as_given, device_of, given_array
from ._device import Device, check_narrow, opened_device, run_options
from ._teatime import CudaArray, StoredArray


class Neighbors(NamedTuple):
    """The nearest of each observation, nearest first: their indices and their distances."""

    indices: Any
    distances: Any


@dataclass(frozen=True, eq=False)
class RadiusNeighbors:
    """The observations within a radius of each, nearest first, and of equal distances the one with the lower index.

    Those of observation ``i`` are from ``indptr[i]`` to before ``indptr[i + 1]`` of ``indices`` and ``distances``, as in SciPy's CSR matrices.
    ``shape`` is that of a matrix of all distances.
    """

    indices: Any
    distances: Any
    indptr: Any
    shape: tuple[int, int]

    def split(self) -> Neighbors:
        """Arrays on the host of an array for each observation, as scikit-learn's ``radius_neighbors`` gives, with the indices first."""
        parts = Neighbors(np.empty(self.shape[0], object), np.empty(self.shape[0], object))
        indices, distances, ends = self._on_host()
        for i, (start, end) in enumerate(zip(ends[:-1], ends[1:])):
            parts.indices[i], parts.distances[i] = indices[start:end], distances[start:end]
        return parts

    def _on_host(self) -> list[NDArray[Any]]:
        return [on_host(a, "neighbors", "") for a in (self.indices, self.distances, self.indptr)]

    def to_scipy(self, mode: str = "distance") -> Any:
        """A ``scipy.sparse.csr_matrix`` on the host, as scikit-learn's ``radius_neighbors_graph`` gives.

        It has the distances, or ones with ``mode="connectivity"``. Rows are in the order of distances, as estimators with
        ``metric="precomputed"`` want them; the matrix's ``sort_indices`` orders them by index.
        """
        from scipy.sparse import csr_matrix

        if mode not in ("distance", "connectivity"):
            raise ValueError(f"`mode` is distance or connectivity, not {mode!r}")
        indices, distances, indptr = self._on_host()
        return csr_matrix((distances if mode == "distance" else np.ones_like(distances), indices, indptr), self.shape)


def distance_options(
    metric: str = "euclidean", *, p: float = 2.0, missing: str = "propagate", negative: bool = False, columns: bool = False,
    narrow: bool | None = None, expanded: bool = False,
) -> dict[str, Any]:
    """Options of distances, as the compiled part takes them."""
    metric = _teatime.metric_name(metric, float(p))
    return {
        "metric": metric, "p": float(p), "missing": missing, "negative": negative, "columns": columns, "narrow": narrow, "expanded": expanded,
    }


def operand(x: ArrayLike, name: str, narrow: bool | None, device: Device | str | None) -> NDArray[Any]:
    """One as :func:`as_array` has it, of which the device changes no integer."""
    given = given_array(x, name, "pairwise_distance")
    a = as_array(given, name, "pairwise_distance")
    check_narrow(given, name, narrow, device)
    if narrow is False and a.dtype.kind in "iu" and not (opened := opened_device(device)).f64:
        raise ValueError(f"`narrow` of False: {opened.name} has no float64, in which distances of {a.dtype} are computed")
    return a


def _check_axes(a: NDArray[Any] | None, name: str) -> None:
    if a is not None and a.ndim != 2:
        raise ValueError(f"`{name}` is (observations, features), and has {a.ndim} axes: {a.shape}")


def _operands(
    x: Any, y: Any, narrow: bool | None, device: Device | str | None, storage_options: dict[str, Any] | None
) -> tuple[Any, Any, bool, np.dtype[Any]]:
    """Both as stored arrays if one is a path, else of one type and in C order; whether observations are columns; the type of the result."""
    if is_path(x) or is_path(y):
        one, other = _stored(x, "x", storage_options), None if y is None else _stored(y, "y", storage_options)
        types = [array.dtype for array in (one, other) if array is not None]
        return one, other, False, float_type(np.empty(0, np.result_type(*types)))
    if storage_options is not None:
        raise TypeError("`storage_options` is for the URL of an array")
    a = operand(x, "x", narrow, device)
    b = None if y is None else operand(y, "y", narrow, device)
    _check_axes(a, "x")
    _check_axes(b, "y")
    if b is None:
        a, columns = either_order(a)
        return a, None, columns, float_type(a)
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"`x` has {a.shape[1]} features, `y` {b.shape[1]}")
    a, b = of_one_type(a, b)
    out = float_type(a)
    if isinstance(a, CudaArray) or isinstance(b, CudaArray):
        return a, b, False, out
    if a.flags.f_contiguous and b.flags.f_contiguous and not (a.flags.c_contiguous and b.flags.c_contiguous):
        return c_order(a.T), c_order(b.T), True, out
    return c_order(a), c_order(b), False, out


def _stored(a: Any, name: str, storage_options: dict[str, Any] | None) -> StoredArray:
    if is_path(a):
        return StoredArray(folder(a), None, False, text_options(storage_options))
    array = as_array(host_array(a, name, "pairwise_distance"), name, "pairwise_distance")
    _check_axes(array, name)
    return StoredArray.of_array(c_order(array))


def pairwise_distance(
    x: ArrayLike | str | os.PathLike[str], y: ArrayLike | str | os.PathLike[str] | None = None, metric: str = "euclidean", *,
    p: float = 2.0, missing: str = "propagate", negative: bool = False, expanded: bool = False, condensed: bool = False,
    return_shared: bool = False, narrow: bool | None = None, device: Device | str | None = None, progress: Any = None,
    memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> Any:
    """Distances of observations from one another, or from those of ``y``: scipy's ``cdist`` and ``pdist``.

    Parameters
    ----------
    x : (m, features)
        Of float64 and integers all is computed in float64, but see ``narrow``; of 8 bits in float32 where sums in it are exact, as they are
        of most metrics. Of float16 and float32 all is computed in float32.
        Of an array in a GPU's memory the results are there too, and ``y`` is of the same type there.
        Or the path or URL of a .npy file or a Zarr array, which need not fit memory: the distances do. Then ``y`` may be one, too.
    y : (n, features), optional
        Of another type than ``x``, both are promoted as NumPy does.
    metric
        euclidean, sqeuclidean, cityblock, chebyshev, minkowski, cosine, correlation, inner_product, canberra, braycurtis, hamming,
        jaccard, dice, russellrao, jensenshannon, hellinger, kl_divergence; manhattan and l1 are cityblock, l2 is euclidean.
    p
        Minkowski's exponent; of an infinite one it is chebyshev.
    missing
        What NaN does: ``"propagate"``; ``"ignore"``: a feature counts nothing for a pair unless both have it, as in sgkit;
        ``"rescale"``: and sums are scaled up to all features, as scikit-learn's ``nan_euclidean_distances``;
        ``"rescale-or-zero"``: and pairs that share no feature are 0.
    negative
        Whether negative numbers are missing too.
    expanded
        Computes squared differences as |x|² + |y|² - 2 x·y by a product of matrices, as PyTorch and cuVS do: in half the operations. Squared
        differences are then off by up to 2⁻¹² of |x|² + |y|², by 2⁻²⁰ in the mean of our tests, with lengths after the mean of ``y`` was subtracted: close
        observations lose digits. For euclidean, sqeuclidean, cosine and correlation of arrays in float32, without missing numbers.
    condensed
        Each pair of ``x`` once, in scipy's order, in place of the square.
    return_shared
        Whether the number of features that both have is returned too, where missing ones are ignored.
    narrow, device
        As in :func:`teatime.svd`.
    progress, memory, storage_options
        As in :func:`teatime.truncated_svd`; ``memory`` is of arrays in memory too.

    Returns
    -------
    (m, m), (m, n) or condensed
        Of float32 for float32 and float16, and where ``x`` and ``y`` are promoted to these, else of float64.

    Examples
    --------
    >>> import teatime
    >>> teatime.pairwise_distance([[0.0, 0.0], [3.0, 4.0]])
    array([[0., 5.],
           [5., 0.]])
    >>> teatime.pairwise_distance([[0], [1], [3]], metric="cityblock", condensed=True)
    array([1., 3., 2.])
    """
    if expanded and (is_path(x) or is_path(y)):
        raise ValueError("`expanded` is of arrays in memory")
    a, b, columns, out = _operands(x, y, narrow, device, storage_options)
    if condensed and isinstance(a, StoredArray):
        raise ValueError("`condensed` is of an array in memory; the command `teatime pairwise` writes the distances of a file")
    device = device_of(device, x=a, y=b)
    if expanded and columns:
        a, b, columns = c_order(a.T), None if b is None else c_order(b.T), False
    options = distance_options(metric, p=p, missing=missing, negative=negative, columns=columns, narrow=narrow, expanded=expanded)
    if condensed:
        if b is not None or return_shared:
            raise ValueError("`condensed` is of `x` alone, without `y` and `return_shared`")
        return as_given(_teatime.condensed(a, options, run_options(device, progress, memory)).astype(out, copy=False), x, device)
    counted = return_shared and missing != "propagate"
    distances, shared = _teatime.pairwise(a, b, options, counted, run_options(device, progress, memory))
    distances = as_given(distances.astype(out, copy=False), x, device)
    if not return_shared:
        return distances
    return distances, None if shared is None else as_given(shared, x, device)


def neighbors(
    x: ArrayLike | str | os.PathLike[str], n_neighbors: int = 5, y: ArrayLike | str | os.PathLike[str] | None = None,
    metric: str = "euclidean", *, p: float = 2.0, missing: str = "propagate", negative: bool = False, narrow: bool | None = None,
    device: Device | str | None = None, progress: Any = None, memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> Neighbors:
    """The nearest of the other observations of ``x``, or of those of ``y``, for each of ``x``, without a matrix of all distances.

    They are those of scikit-learn's ``NearestNeighbors(algorithm="brute")``. The nearest comes first, and of equal distances the one with the
    lower index. ``inner_product`` is a similarity, so its nearest have the largest values. Distances that are NaN come last.

    Parameters
    ----------
    x, y, metric, p, missing, negative, narrow, device, progress, memory, storage_options
        As in :func:`pairwise_distance`. Paths are read once if the device holds all elements, otherwise in shares within ``memory``.
    n_neighbors
        The number of neighbors: from 1 to the number of observations of ``y``, or of the others of ``x``.

    Returns
    -------
    Neighbors
        ``indices`` (m, n_neighbors), int64, and ``distances`` of the same shape, of the type that :func:`pairwise_distance` gives. Of an
        array in a GPU's memory both are there too, indices as int32.

    Examples
    --------
    >>> import teatime
    >>> found = teatime.neighbors([[0], [1], [3], [7]], 2)
    >>> found.indices
    array([[1, 2],
           [0, 2],
           [1, 0],
           [2, 1]])
    >>> found.distances[3]
    array([4., 6.])
    """
    options = {"metric": metric, "p": p, "missing": missing, "negative": negative, "narrow": narrow}
    wanted = whole(n_neighbors, "n_neighbors")
    found, _ = _near(_teatime.neighbors, wanted, (x, y, storage_options), options, (device, progress, memory))
    return Neighbors(*found)


def radius_neighbors(
    x: ArrayLike | str | os.PathLike[str], radius: float = 1.0, y: ArrayLike | str | os.PathLike[str] | None = None,
    metric: str = "euclidean", *, p: float = 2.0, missing: str = "propagate", negative: bool = False, narrow: bool | None = None,
    device: Device | str | None = None, progress: Any = None, memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> RadiusNeighbors:
    """The other observations of ``x``, or those of ``y``, that are within a radius of each of ``x``, without a matrix of all distances.

    They are those of scikit-learn's ``NearestNeighbors(algorithm="brute").radius_neighbors``, at a distance of ``radius`` or less.
    ``inner_product`` is a similarity, so that they are those of values of ``radius`` or more. Distances that are NaN are within no radius.

    Parameters
    ----------
    x, y, metric, p, missing, negative, narrow, device, progress, storage_options
        As in :func:`neighbors`.
    radius
        From 0 on; of ``inner_product`` and ``kl_divergence`` any number. Of an infinite one (of ``inner_product``, ``-inf``) all are within
        but those at a distance of NaN. Distances are compared in float64, before they are rounded to the type of the result.
    memory
        As in :func:`neighbors`. The neighbors may take half of it, at 32 to 34 bytes each: MemoryError where they do not fit, which names
        their number.

    Returns
    -------
    RadiusNeighbors
        ``indices``, int64, ``distances``, of the type that :func:`pairwise_distance` gives, and ``indptr``, int64. Methods give scikit-learn's
        arrays of arrays and SciPy's matrix. Of an array in a GPU's memory all three are there too, whole numbers as int32.

    Examples
    --------
    >>> import teatime
    >>> found = teatime.radius_neighbors([[0], [1], [3], [7]], 3)
    >>> found.indptr, found.indices
    (array([0, 2, 4, 6, 6]), array([1, 2, 0, 2, 1, 0]))
    >>> found.split().distances[1]
    array([1., 2.])
    >>> found.to_scipy().toarray()
    array([[0., 1., 3., 0.],
           [1., 0., 2., 0.],
           [3., 2., 0., 0.],
           [0., 0., 0., 0.]])
    """
    options = {"metric": metric, "p": p, "missing": missing, "negative": negative, "narrow": narrow}
    given = x, y, storage_options
    (indptr, indices, distances), shape = _near(_teatime.radius_neighbors, float(radius), given, options, (device, progress, memory))
    return RadiusNeighbors(indices, distances, indptr, shape)


def _near(
    find: Callable[..., Any], wanted: float, given: tuple[Any, Any, Any], options: dict[str, Any], run: tuple[Any, Any, Any]
) -> tuple[list[Any], tuple[int, int]]:
    """The results of a compiled function, where ``x`` is, whole numbers and then distances; and the numbers of observations."""
    x, y, storage_options = given
    device, progress, memory = run
    a, b, columns, out = _operands(x, y, options["narrow"], device, storage_options)
    device = device_of(device, x=a, y=b)
    options = distance_options(columns=columns, **options)
    *numbers, distances = find(a, b, wanted, options, run_options(device, progress, memory))
    found = [*(number.view(np.int64) for number in numbers), distances.astype(out, copy=False)]
    if isinstance(a, CudaArray):
        found = [as_given(_narrowed(part), x, device) for part in found]
    axis = int(columns)
    return found, (a.shape[axis], (a if b is None else b).shape[axis])


def _narrowed(part: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as int32, since arrays in a GPU's memory are not of int64."""
    if part.dtype != np.int64:
        return part
    if part.max(initial=0) > np.iinfo(np.int32).max:
        raise ValueError("more neighbors than int32 can count: hand over arrays on the host")
    return part.astype(np.int32)
