"""sgkit on top of teatime: after :func:`install`, sgkit's ``pairwise_distance`` and ``pca`` run our kernels.

sgkit 0.10 needs dask up to 2024.8, numpy below 2.2 and zarr below 3.

- ``pairwise_distance``: the functions that sgkit maps over pairs of blocks are replaced. Chunks, the reduction and missing values (negative
  or NaN) stay sgkit's. Sums of whole numbers up to 255, of any type, are exact; those of other float64 are made in float32 on devices
  without float64. ``device="gpu"`` is the same as ``"cpu"``: the device is what ``TEATIME_DEVICE`` names on the workers, or the fastest.
- ``pca`` of diploids: the decomposition is :func:`teatime.dask.pca`, exact for up to 5,000 samples whatever ``algorithm`` is, and lazy as
  sgkit's. Results have sgkit's signs and types. A variant that does not vary counts nothing, where sgkit fails. Of other
  ploidies sgkit's own code runs.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _worker
from ._arrays import float_type
from ._distance import pairwise_distance

__all__ = ["correlation_map", "euclidean_map", "install", "uninstall"]

_Array = NDArray[Any]
#: The functions of sgkit that are replaced: module, name, function.
_replaced: list[tuple[Any, str, Any]] = []


def install() -> None:
    """Lets sgkit run on teatime in this process: on the workers of a cluster too, since tasks carry the functions by name. ImportError
    where sgkit, or dask, is not installed."""
    if _replaced:
        return
    try:
        pca = importlib.import_module("sgkit.stats.pca")
        metrics = importlib.import_module("sgkit.distance.metrics")
    except ImportError as error:
        raise ImportError("teatime.sgkit needs sgkit: pip install sgkit") from error
    ours = [(metrics, f"{ours.__name__}_{device}", ours) for ours in (euclidean_map, correlation_map) for device in ("cpu", "gpu")]
    for module, name, function in (*ours, (pca, "pca_est", _estimators(pca.pca_est))):
        _replaced.append((module, name, getattr(module, name)))
        setattr(module, name, function)


def uninstall() -> None:
    """Gives sgkit its own functions back."""
    while _replaced:
        setattr(*_replaced.pop())


def euclidean_map(f: _Array, g: _Array, _: Any = None) -> _Array:
    """Σ (x - y)² over the features that both have, of observations in blocks: (m, n, 1), of float32 for float32, else of float64.

    ``f`` is (m, features) or (m, 1, features), ``g`` (n, features). Negative numbers and NaN are missing.

    >>> euclidean_map(np.array([[0, 1, -1]]), np.array([[2, 1, 1]]))
    array([[[4.]]])
    """
    x, y, dtype = _operands(f, g)
    if x.dtype.kind == "f":
        # Products would cancel if two rows are close.
        sums = pairwise_distance(x, y, "sqeuclidean", missing="ignore", negative=True, device=_worker.device(None))
    else:
        xx, xy, yy = _sums(x, y, "xx", "xy", "yy")
        sums = (xx - 2 * xy + yy).astype(dtype)
    return sums[..., np.newaxis]


def correlation_map(f: _Array, g: _Array, _: Any = None) -> _Array:
    """Σ x, Σ y, Σ x², Σ y², Σ x y and the number of features that both have, of observations in blocks.

    As of :func:`euclidean_map`, but (m, n, 6).

    >>> correlation_map(np.array([[0, 1, -1]]), np.array([[2, 1, 1]]))
    array([[[1., 3., 1., 5., 1., 2.]]])
    """
    x, y, dtype = _operands(f, g)
    return np.stack(_sums(x, y, "x", "y", "xx", "yy", "xy", "n"), axis=-1).astype(dtype, copy=False)


def _operands(f: _Array, g: _Array) -> tuple[_Array, _Array, np.dtype[Any]]:
    """Both (observations, features), of int16 where they are small whole numbers, with -1 for missing ones; and the type of sums."""
    f = np.asarray(f)
    x, y = f.reshape(f.shape[0], f.shape[-1]), np.asarray(g)
    dtype = float_type(np.empty(0, np.result_type(x, y)))
    numbers = [z if z.dtype.kind in "bu" else np.where(z >= 0, z, -1) for z in (x, y)]
    # The sums of these numbers, and of their squares, are exact in float32.
    if all(z.max(initial=0) <= 255 and (z.dtype.kind != "f" or np.array_equal(np.rint(z), z)) for z in numbers):
        return numbers[0].astype(np.int16), numbers[1].astype(np.int16), dtype
    return x.astype(dtype, copy=False), y.astype(dtype, copy=False), dtype


def _sums(x: _Array, y: _Array, *names: str) -> list[_Array]:
    """Sums over the features that both have, as products of matrices in which missing numbers are 0."""
    # Squares of small whole numbers fit in 16 bits.
    kind = np.uint16 if x.dtype.kind == "i" else x.dtype
    (x, in_x), (y, in_y) = ((np.where(z >= 0, z, 0).astype(kind), (z >= 0).astype(kind)) for z in (x, y))
    factors = {"x": (x, in_y), "y": (in_x, y), "xx": (x * x, in_y), "yy": (in_x, y * y), "xy": (x, y), "n": (in_x, in_y)}
    return [_product(*factors[name]) for name in names]


def _product(a: _Array, b: _Array) -> _Array:
    shape, device = (len(a), len(b)), _worker.device(None)
    # With a factor of ones, products are sums of each observation.
    if (b == 1).all():
        return np.broadcast_to(a.sum(axis=1, dtype=np.float64)[:, np.newaxis], shape)
    if (a == 1).all():
        return np.broadcast_to(b.sum(axis=1, dtype=np.float64), shape)
    if a.dtype == np.float64 and device.backend == "cpu":
        return a @ b.T
    # Small whole numbers are exact in float32 too.
    return pairwise_distance(a, b, "inner_product", narrow=True if a.dtype.kind == "u" else None, device=device)


def _estimators(theirs: Any) -> Any:
    """sgkit's ``pca_est``, whose estimators of diploids are ours."""

    @functools.wraps(theirs)
    def pca_est(*args: Any, **kwargs: Any) -> Any:
        pipeline = theirs(*args, **kwargs)
        return _pipeline()(pipeline.steps) if pipeline["scaler"].ploidy == 2 else pipeline

    return pca_est


def _pipeline() -> Any:
    """The class of a pipeline of sgkit's scaler and decomposition, which teatime fits."""
    import dask.array as da
    from sklearn.pipeline import Pipeline

    from .dask import pca

    class TeatimePCA(Pipeline):  # type: ignore[misc]
        def fit(self, X: Any, y: Any = None) -> Any:
            X = da.asarray(X)
            self["scaler"].fit(X)
            svd = self["pca"]
            fitted = pca(X.T, svd.n_components, scaler="patterson", ploidy=2)
            components = (fitted.vectors / fitted.singular_values).T.astype(X.dtype) @ self._scaled(X)
            signs = da.where(components.sum(axis=1) < 0, -1, 1).astype(X.dtype)
            svd.components_, svd.n_features_in_ = components * signs[:, np.newaxis], X.shape[1]
            for name in ("singular_values", "explained_variance", "explained_variance_ratio"):
                setattr(svd, f"{name}_", getattr(fitted, name).astype(X.dtype))
            self._fitted = X.name, fitted.scores.astype(X.dtype) * signs
            return self

        def transform(self, X: Any) -> Any:
            X = da.asarray(X)
            name, scores = self._fitted
            return scores if X.name == name else self["pca"].transform(self._scaled(X))

        def _scaled(self, X: Any) -> Any:
            """As the scaler does it, but missing calls and variants that do not vary are 0."""
            mean, scale = self["scaler"].mean_, self["scaler"].scale_
            return da.where(X >= 0, X - mean, X.dtype.type(0)) / da.where(scale > 0, scale, scale.dtype.type(1))

    return TeatimePCA
