"""Estimators for scikit-learn: :class:`PCA` and :class:`TruncatedSVD`, with its parameters, attributes and signs.

The decomposition runs on a device, in the type of the data. Where the device has no float64 it runs in float32, and of float64 data what it
finds is then improved in float64 on the host: two products of the data with the components, and a decomposition of ``n_components`` rows.
All components have the accuracy of the type. Of some of them, singular values do, and the components have that of the iteration: ``tol``.
Sparse matrices are refused: they would have to become dense.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # pragma: no cover
    raise ImportError("teatime.sklearn needs scikit-learn 1.6 or newer: pip install 'teatime[sklearn]'") from error

from ._device import opened_device
from ._linalg import SVD, svd, truncated_svd

__all__ = ["PCA", "TruncatedSVD"]

_Array = NDArray[Any]
_FLOATS = (np.float64, np.float32)


class _Decomposition(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both estimators share."""

    n_iter: int | None
    n_oversamples: int | None
    tol: float
    random_state: Any
    device: Any
    components_: _Array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def fit(self, X: Any, y: Any = None) -> Any:
        """Finds the components of ``X`` (samples, features). ``y`` is not used."""
        self.fit_transform(X)
        return self

    def _validated(self, X: Any, *, reset: bool = True, **least: int) -> _Array:
        return validate_data(self, X, dtype=_FLOATS, reset=reset, **least)

    def _wanted(self, n_components: Any, most: int) -> int:
        if not isinstance(n_components, Integral) or isinstance(n_components, bool):
            raise TypeError(f"`n_components` is a whole number, not {n_components!r}")
        if not 1 <= n_components <= most:
            raise ValueError(f"`n_components` is {n_components}: it is at least 1, and at most min(n_samples, n_features) = {most}")
        return int(n_components)

    def _decomposed(self, x: _Array, k: int) -> SVD:
        """The k largest singular values of ``x`` and their vectors, to the accuracy of its type."""
        _check("n_iter", self.n_iter, Integral, optional=True)
        _check("n_oversamples", self.n_oversamples, Integral, optional=True)
        _check("tol", self.tol, Real)
        if k == min(x.shape):
            u, s, vt = svd(x, device=self.device)
        else:
            u, s, vt = truncated_svd(
                x, k, n_oversamples=self.n_oversamples, n_iter=self.n_iter, tol=self.tol, random_state=_seed(self.random_state),
                device=self.device,
            )
        if x.dtype == np.float64 and not opened_device(self.device).f64:
            u, s, vt = _improved(x, vt)
        largest = np.abs(vt).argmax(axis=1)
        signs = np.where(vt[np.arange(k), largest] < 0, -1, 1).astype(x.dtype)
        return SVD(u * signs, s, vt * signs[:, np.newaxis])


def _check(name: str, value: Any, kind: type, *, optional: bool = False) -> None:
    if (value is None and optional) or (isinstance(value, kind) and value >= 0):
        return
    whole = "whole " if kind is Integral else ""
    raise ValueError(f"`{name}` is {value!r}: it is a {whole}number, at least 0{', or None' * optional}")


def _seed(random_state: Any) -> int:
    if isinstance(random_state, Integral) and random_state >= 0:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def _improved(x: _Array, vt: _Array) -> SVD:
    """The best that float64 finds of ``x`` within the span of ``x @ vt.T``: a step of subspace iteration (Halko, Martinsson, Tropp 2011)."""
    q, _ = np.linalg.qr(x @ vt.T)
    u, s, vt = np.linalg.svd(q.T @ x, full_matrices=False)
    return SVD(q @ u, s, vt)


def _share(part: _Array, whole: float) -> _Array:
    return part / whole if whole > 0 else np.zeros_like(part)


class PCA(_Decomposition):
    """Principal components, as scikit-learn's ``PCA``.

    Parameters
    ----------
    n_components
        How many; None: min(n_samples, n_features), which is exact and at most 16,384.
    whiten
        Whether :meth:`transform` divides each coordinate by its standard deviation.
    n_iter, n_oversamples, tol
        As in :func:`teatime.truncated_svd`.
    random_state
        Seed of the random block: a number, a ``RandomState``, or None for another one each time.
    device
        A :class:`teatime.Device`, its name, or None for the fastest.

    Attributes
    ----------
    components_ : (n_components, n_features)
        Orthonormal, sorted by variance. The largest number of each is positive.
    explained_variance_ : (n_components,)
        s² / (n_samples - 1).
    explained_variance_ratio_, singular_values_ : (n_components,)
    mean_ : (n_features,)
    noise_variance_ : float
        Mean variance of the directions that were left out.
    n_components_, n_samples_, n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from teatime.sklearn import PCA
    >>> x = np.array([[-1.0, -1.0], [-2.0, -1.0], [-3.0, -2.0], [1.0, 1.0], [2.0, 1.0], [3.0, 2.0]])
    >>> PCA(n_components=2).fit(x).singular_values_.round(4)
    array([6.3006, 0.5498])
    """

    mean_: _Array
    explained_variance_: _Array
    explained_variance_ratio_: _Array
    singular_values_: _Array
    noise_variance_: float
    n_components_: int
    n_samples_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: bool = False,
        n_iter: int | None = None,
        n_oversamples: int | None = None,
        tol: float = 1e-4,
        random_state: Any = 0,
        device: Any = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.n_iter = n_iter
        self.n_oversamples = n_oversamples
        self.tol = tol
        self.random_state = random_state
        self.device = device

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        x = self._validated(X, ensure_min_samples=2)
        most = min(x.shape)
        k = most if self.n_components is None else self._wanted(self.n_components, most)
        mean = x.mean(axis=0, dtype=np.float64)
        centred = x - mean.astype(x.dtype)
        _, s, vt = self._decomposed(centred, k)
        wide = s.astype(np.float64)
        explained = wide**2 / (x.shape[0] - 1)
        total = float(np.einsum("ij,ij->", centred, centred, dtype=np.float64)) / (x.shape[0] - 1)
        self.mean_ = mean.astype(x.dtype)
        self.components_, self.singular_values_ = vt, s
        self.explained_variance_ = explained.astype(x.dtype)
        self.explained_variance_ratio_ = _share(explained, total).astype(x.dtype)
        self.noise_variance_ = max(0.0, total - float(explained.sum())) / (most - k) if k < most else 0.0
        self.n_components_, self.n_samples_ = k, x.shape[0]
        return self._along(centred)

    def transform(self, X: Any) -> _Array:
        """The coordinates of ``X`` along the components (n_samples, n_components)."""
        check_is_fitted(self)
        return self._along(self._validated(X, reset=False) - self.mean_)

    def _along(self, centred: _Array) -> _Array:
        """Coordinates of what the means were subtracted from."""
        found = centred @ self.components_.T
        return found / self._deviations() if self.whiten else found

    def inverse_transform(self, X: Any) -> _Array:
        """The points (n_samples, n_features) whose coordinates are ``X`` (n_samples, n_components)."""
        check_is_fitted(self)
        x = check_array(X, dtype=_FLOATS)
        return (x * self._deviations() if self.whiten else x) @ self.components_ + self.mean_

    def _deviations(self) -> _Array:
        """Standard deviations along the components; of those without variance, what is nothing beside the largest, and not 0."""
        found = np.sqrt(self.explained_variance_)
        return np.maximum(found, np.finfo(found.dtype).eps * found[0] if found[0] > 0 else 1)


class TruncatedSVD(_Decomposition):
    """The largest singular values, as scikit-learn's ``TruncatedSVD``, of data that are not centred.

    Parameters
    ----------
    n_components
        How many.
    n_iter, n_oversamples, tol, random_state, device
        As of :class:`PCA`.

    Attributes
    ----------
    components_ : (n_components, n_features)
        Right singular vectors. The largest number of each is positive.
    singular_values_ : (n_components,)
    explained_variance_ : (n_components,)
        Variances of the coordinates, divided by n_samples as scikit-learn's.
    explained_variance_ratio_ : (n_components,)
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from teatime.sklearn import TruncatedSVD
    >>> x = np.outer([1.0, 2.0, 2.0], [3.0, 0.0, 4.0])
    >>> TruncatedSVD(n_components=1).fit(x).singular_values_.round(4)
    array([15.])
    """

    explained_variance_: _Array
    explained_variance_ratio_: _Array
    singular_values_: _Array

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_iter: int | None = None,
        n_oversamples: int | None = None,
        tol: float = 1e-4,
        random_state: Any = 0,
        device: Any = None,
    ) -> None:
        self.n_components = n_components
        self.n_iter = n_iter
        self.n_oversamples = n_oversamples
        self.tol = tol
        self.random_state = random_state
        self.device = device

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        x = self._validated(X, ensure_min_features=2)
        _, s, vt = self._decomposed(x, self._wanted(self.n_components, min(x.shape)))
        found = x @ vt.T
        explained = found.var(axis=0, dtype=np.float64)
        total = float(x.var(axis=0, dtype=np.float64).sum())
        self.components_, self.singular_values_ = vt, s
        self.explained_variance_ = explained.astype(x.dtype)
        self.explained_variance_ratio_ = _share(explained, total).astype(x.dtype)
        return found

    def transform(self, X: Any) -> _Array:
        """The coordinates of ``X`` along the components (n_samples, n_components)."""
        check_is_fitted(self)
        return self._validated(X, reset=False) @ self.components_.T

    def inverse_transform(self, X: Any) -> _Array:
        """The points (n_samples, n_features) whose coordinates are ``X`` (n_samples, n_components)."""
        check_is_fitted(self)
        return check_array(X, dtype=_FLOATS) @ self.components_
