"""sgkit on top of teatime: after :func:`install`, sgkit's ``pairwise_distance`` and ``pca`` run our kernels.

sgkit 0.10 needs dask up to 2024.8, numpy below 2.2 and zarr below 3.

- ``pairwise_distance``: the functions that sgkit maps over pairs of blocks are replaced. Chunks, the reduction and missing values (negative
  or NaN) stay sgkit's. Sums of whole numbers up to 255, of any type, are products of matrices, and exact; those of other float64 are made
  in float32 on devices without float64. ``device="gpu"`` is the same as ``"cpu"``: the device is what ``TEATIME_DEVICE`` names on the
  workers, or the fastest.
- ``pca`` of diploids: the decomposition is :func:`teatime.dask.pca`, exact for up to 5,000 samples whatever ``algorithm`` is, and lazy as
  sgkit's. Results have sgkit's signs and types. A variant that does not vary counts nothing, where sgkit fails. Of other
  ploidies sgkit's own code runs.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _worker
from ._distance import pairwise_distance

__all__ = ["correlation_map", "euclidean_map", "install", "uninstall"]

_Array = NDArray[Any]
#: Sums of squares of whole numbers up to this one are exact in float32.
_EXACT = 255
#: What was there before, by module and name.
_replaced: dict[tuple[str, str], Any] = {}


def install() -> None:
    """Lets sgkit run on teatime in this process: on the workers of a cluster too, since tasks carry the functions by name.

    Raises
    ------
    ImportError
        Where sgkit, or dask, is not installed.
    """
    if _replaced:
        return
    try:
        pca = importlib.import_module("sgkit.stats.pca")
        metrics = importlib.import_module("sgkit.distance.metrics")
    except ImportError as error:
        raise ImportError("teatime.sgkit needs sgkit: pip install sgkit") from error
    for device in ("cpu", "gpu"):
        _replace(metrics, f"euclidean_map_{device}", euclidean_map)
        _replace(metrics, f"correlation_map_{device}", correlation_map)
    _replace(pca, "pca_est", _estimators(pca.pca_est))


def uninstall() -> None:
    """Gives sgkit its own functions back."""
    for (module, name), before in _replaced.items():
        setattr(importlib.import_module(module), name, before)
    _replaced.clear()


def _replace(module: Any, name: str, by: Any) -> None:
    _replaced[module.__name__, name] = getattr(module, name)
    setattr(module, name, by)


def euclidean_map(f: _Array, g: _Array, _: Any = None) -> _Array:
    """Σ (x - y)² over the features that both have, of observations in blocks.

    Parameters
    ----------
    f : (m, features) or (m, 1, features)
        Negative numbers and NaN are missing.
    g : (n, features)

    Returns
    -------
    (m, n, 1)
        Of float32 for float32, else of float64.

    Examples
    --------
    >>> euclidean_map(np.array([[0, 1, -1]]), np.array([[2, 1, 1]]))
    array([[[4.]]])
    """
    x, y, dtype = _operands(f, g)
    if x.dtype.kind == "f":
        # Products would cancel between close ones.
        sums = pairwise_distance(x, y, "sqeuclidean", missing="ignore", negative=True, device=_worker.device(None))
        return sums[..., np.newaxis]
    # Large sums of nearly the same size are subtracted: rounded before, they would leave little of close observations.
    s = _Sums(x, y, np.dtype(np.float64))
    return (s.x_squares() - 2 * s.products() + s.y_squares()).astype(dtype)[..., np.newaxis]


def correlation_map(f: _Array, g: _Array, _: Any = None) -> _Array:
    """Σ x, Σ y, Σ x², Σ y², Σ x y and the number of features that both have, of observations in blocks.

    As of :func:`euclidean_map`, but (m, n, 6).

    >>> correlation_map(np.array([[0, 1, -1]]), np.array([[2, 1, 1]]))
    array([[[1., 3., 1., 5., 1., 2.]]])
    """
    s = _Sums(*_operands(f, g))
    return np.stack([s.x(), s.y(), s.x_squares(), s.y_squares(), s.products(), s.counts()], axis=-1)


def _operands(f: _Array, g: _Array) -> tuple[_Array, _Array, np.dtype[Any]]:
    """Both (observations, features), of int16 where they are small whole numbers, with -1 for missing ones; and the type of sums."""
    x = np.asarray(f)
    x, y = x.reshape(x.shape[0], x.shape[-1]), np.asarray(g)
    dtype = np.result_type(x, y)
    sums = np.dtype(np.float32 if dtype in (np.dtype("f4"), np.dtype("f2")) else np.float64)
    small = [_small(of) for of in (x, y)]
    if small[0] is not None and small[1] is not None:
        return small[0], small[1], sums
    return x.astype(sums, copy=False), y.astype(sums, copy=False), sums


def _small(x: _Array) -> NDArray[np.int16] | None:
    """Whole numbers up to the largest whose sums are exact, and -1 for what is missing; None where there are others."""
    present = x >= 0
    whole = np.where(present, x, 0)
    if whole.max(initial=0) > _EXACT or (x.dtype.kind == "f" and not np.array_equal(np.rint(whole), whole)):
        return None
    return np.where(present, whole, -1).astype(np.int16)


class _Sums:
    """Sums over the features that both have, as products of matrices in which missing numbers are 0."""

    def __init__(self, x: _Array, y: _Array, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.zeroed, self.present = zip(*(_without_missing(of) for of in (x, y)))

    def products(self) -> _Array:
        return self._product(*self.zeroed)

    def counts(self) -> _Array:
        return self._of_one(0, lambda x: np.ones_like(x))

    def x(self) -> _Array:
        return self._of_one(0, lambda x: x)

    def y(self) -> _Array:
        return self._of_one(1, lambda y: y).T

    def x_squares(self) -> _Array:
        return self._of_one(0, np.square)

    def y_squares(self) -> _Array:
        return self._of_one(1, np.square).T

    def _of_one(self, side: int, function: Any) -> _Array:
        """Sums of what ``function`` makes of one operand's numbers, over the features that both have."""
        values, other = function(self.zeroed[side]), self.present[1 - side]
        if self.present[side] is not None:
            values = values * self.present[side]
        if other is not None:
            return self._product(values, other)
        sums = values.sum(axis=1, dtype=np.float64).astype(self.dtype)
        return np.repeat(sums[:, np.newaxis], self.zeroed[1 - side].shape[0], axis=1)

    def _product(self, a: _Array, b: _Array) -> _Array:
        device = _worker.device(None)
        if a.dtype == np.float64 and device.backend == "cpu":
            return a @ b.T
        # Small whole numbers, which are exact in float32 too.
        narrow = True if a.dtype.kind in "iu" else None
        return pairwise_distance(a, b, "inner_product", narrow=narrow, device=device).astype(self.dtype, copy=False)


def _without_missing(x: _Array) -> tuple[_Array, _Array | None]:
    """``x`` with 0 for what is missing, and where it is not, if anything is. Squares of small whole numbers are of 16 bits."""
    narrow = np.dtype(np.uint16) if x.dtype.kind == "i" else x.dtype
    present = x >= 0
    if present.all():
        return x.astype(narrow), None
    return np.where(present, x, 0).astype(narrow), present.astype(narrow)


def _estimators(theirs: Any) -> Any:
    """sgkit's ``pca_est``, whose estimators of diploids are ours."""

    def pca_est(*args: Any, **kwargs: Any) -> Any:
        pipeline = theirs(*args, **kwargs)
        return _pipeline()(pipeline.steps) if pipeline["scaler"].ploidy == 2 else pipeline

    pca_est.__doc__ = theirs.__doc__
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
            found = pca(X.T, svd.n_components, scaler="patterson", ploidy=2)
            components = (found.vectors / found.singular_values).T.astype(X.dtype) @ self._scaled(X)
            signs = da.where(components.sum(axis=1) < 0, -1, 1).astype(X.dtype)
            svd.components_ = components * signs[:, np.newaxis]
            svd.singular_values_ = found.singular_values.astype(X.dtype)
            svd.explained_variance_ = found.explained_variance.astype(X.dtype)
            svd.explained_variance_ratio_ = found.explained_variance_ratio.astype(X.dtype)
            svd.n_features_in_ = X.shape[1]
            self._fitted = X.name, found.scores.astype(X.dtype) * signs
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
