"""Estimators for scikit-learn: :class:`PCA` and :class:`TruncatedSVD`, with its parameters, attributes and signs.

The decomposition runs on a device, in the type of the data. Where the device has no float64 it runs in float32, and of float64 data what it
finds is then improved in float64 on the host: two products of the data with the components, and a decomposition of ``n_components`` rows.
All components have the accuracy of the type. Of some of them, singular values do, and the components have that of the iteration: ``tol``.
Sparse matrices are refused: they would have to become dense.

``fit`` and ``fit_transform`` also take the path or URL of a .npy file or a Zarr array, which need not fit memory.
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
    raise ImportError("teatime.sklearn needs scikit-learn 1.6 or newer: pip install 'teatime-gpu[sklearn]'") from error

from ._arrays import is_path
from ._device import opened_device, run_options
from ._linalg import stored_svd, svd, svd_options, truncated_svd

__all__ = ["PCA", "TruncatedSVD"]

_Array = NDArray[Any]
_FLOATS = (np.float64, np.float32)


class _Decomposition(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What both estimators share."""

    components_: _Array
    explained_variance_: _Array
    explained_variance_ratio_: _Array
    singular_values_: _Array

    def __init__(
        self, n_components: int | None = 2, *, n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4,
        random_state: Any = 0, device: Any = None, memory: Any = None, storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.n_components, self.n_iter, self.n_oversamples = n_components, n_iter, n_oversamples
        self.tol, self.random_state, self.device = tol, random_state, device
        self.memory, self.storage_options = memory, storage_options

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

    def transform(self, X: Any) -> _Array:
        """The coordinates of ``X`` along the components (n_samples, n_components)."""
        check_is_fitted(self)
        return self._along(self._centred(validate_data(self, X, dtype=_FLOATS, reset=False)))

    def _centred(self, x: _Array) -> _Array:
        return x

    def _along(self, centred: _Array) -> _Array:
        return centred @ self.components_.T

    def inverse_transform(self, X: Any) -> _Array:
        """The points (n_samples, n_features) whose coordinates are ``X`` (n_samples, n_components)."""
        check_is_fitted(self)
        return self._points(check_array(X, dtype=_FLOATS))

    def _points(self, x: _Array) -> _Array:
        return x @ self.components_

    def _checked(self, n_components: Any, most: int) -> int:
        """The number of components, of at most so many, once all arguments are checked."""
        if not isinstance(n_components, Integral) or isinstance(n_components, bool):
            raise TypeError(f"`n_components` is a whole number, not {n_components!r}")
        if not 1 <= n_components <= most:
            raise ValueError(f"`n_components` is {n_components}: it is at least 1, and at most min(n_samples, n_features) = {most}")
        for name, kind, optional in (("n_iter", Integral, True), ("n_oversamples", Integral, True), ("tol", Real, False)):
            value = getattr(self, name)
            if not (value is None and optional) and not (isinstance(value, kind) and value >= 0):
                whole = "whole " if kind is Integral else ""
                raise ValueError(f"`{name}` is {value!r}: it is a {whole}number, at least 0{', or None' * optional}")
        return int(n_components)

    def _decompose(self, x: _Array, k: int) -> None:
        """Finds the ``k`` largest singular values of ``x`` and their right vectors, to the accuracy of its type."""
        if k == min(x.shape):
            _, s, vt = svd(x, device=self.device)
        else:
            _, s, vt = truncated_svd(
                x, k, n_oversamples=self.n_oversamples, n_iter=self.n_iter, tol=self.tol, random_state=self._seed(), device=self.device
            )
        if x.dtype == np.float64 and not opened_device(self.device).f64:
            # These are the best components in float64 within the span of x @ vt.T (a step of subspace iteration: Halko et al. 2011).
            q, _ = np.linalg.qr(x @ vt.T)
            _, s, vt = np.linalg.svd(q.T @ x, full_matrices=False)
        largest = np.abs(vt).argmax(axis=1)
        signs = np.where(vt[np.arange(k), largest] < 0, -1, 1).astype(x.dtype)
        self.components_, self.singular_values_ = vt * signs[:, np.newaxis], s

    def _seed(self) -> int:
        seed = self.random_state
        if not (isinstance(seed, Integral) and seed >= 0):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        return int(seed)

    def _decompose_stored(self, path: Any, center: bool) -> tuple[_Array, dict[str, Any]]:
        """Finds the components of a stored matrix, and returns its coordinates along them, and what else is known of it."""
        # The shape is not known before the file is open, where too many components are refused.
        k = None if self.n_components is None else self._checked(self.n_components, np.iinfo(np.int64).max)
        options = svd_options(n_oversamples=self.n_oversamples, n_iter=self.n_iter, tol=self.tol, random_state=self._seed(), signs="v")
        run = run_options(self.device, memory=self.memory)
        (u, s, vt), known = stored_svd(path, k, options, center=center, run=run, storage_options=self.storage_options)
        self.components_, self.singular_values_, self.n_features_in_ = vt, s, vt.shape[1]
        return u * s, known

    def _explain(self, explained: _Array, total: float, dtype: np.dtype[Any]) -> None:
        """Keeps the variances along the components, and their shares of the total."""
        self.explained_variance_ = explained.astype(dtype)
        self.explained_variance_ratio_ = (explained / total if total > 0 else np.zeros_like(explained)).astype(dtype)


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
    memory, storage_options
        As in :func:`teatime.truncated_svd`, for data that are a path or a URL.

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
    noise_variance_: float
    n_components_: int
    n_samples_: int

    def __init__(
        self, n_components: int | None = None, *, whiten: bool = False, n_iter: int | None = None, n_oversamples: int | None = None,
        tol: float = 1e-4, random_state: Any = 0, device: Any = None, memory: Any = None, storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            n_components, n_iter=n_iter, n_oversamples=n_oversamples, tol=tol, random_state=random_state, device=device, memory=memory,
            storage_options=storage_options,
        )
        self.whiten = whiten

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        if is_path(X):
            along, known = self._decompose_stored(X, True)
            if len(along) < 2:
                raise ValueError(f"{X}: 1 sample, while a minimum of 2 is required")
            total = known["total"] / (len(along) - 1)
            self._found(known["means"].astype(along.dtype), len(along), total)
            return along / self._deviations() if self.whiten else along
        x = validate_data(self, X, dtype=_FLOATS, ensure_min_samples=2)
        most = min(x.shape)
        k = self._checked(most if self.n_components is None else self.n_components, most)
        mean = x.mean(axis=0, dtype=np.float64).astype(x.dtype)
        centred = x - mean
        self._decompose(centred, k)
        self._found(mean, len(x), float(np.einsum("ij,ij->", centred, centred, dtype=np.float64)) / (len(x) - 1))
        return self._along(centred)

    def _found(self, mean: _Array, samples: int, total: float) -> None:
        """Keeps the means, and the variances of so many samples, which have this variance in all."""
        self.mean_, self.n_samples_, self.n_components_ = mean, samples, len(self.components_)
        explained = self.singular_values_.astype(np.float64) ** 2 / (samples - 1)
        self._explain(explained, total, mean.dtype)
        left_out = min(samples, mean.size) - self.n_components_
        self.noise_variance_ = max(0.0, total - float(explained.sum())) / left_out if left_out else 0.0

    def _centred(self, x: _Array) -> _Array:
        return x - self.mean_

    def _along(self, centred: _Array) -> _Array:
        along = super()._along(centred)
        return along / self._deviations() if self.whiten else along

    def _points(self, x: _Array) -> _Array:
        return super()._points(x * self._deviations() if self.whiten else x) + self.mean_

    def _deviations(self) -> _Array:
        """Standard deviations along the components; of those without variance, what is nothing beside the largest, and not 0."""
        deviations = np.sqrt(self.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps * deviations[0] if deviations[0] > 0 else 1)


class TruncatedSVD(_Decomposition):
    """The largest singular values, as scikit-learn's ``TruncatedSVD``, of data that are not centred.

    Parameters
    ----------
    n_components
        How many.
    n_iter, n_oversamples, tol, random_state, device, memory, storage_options
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

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        if is_path(X):
            along, known = self._decompose_stored(X, False)
            self._explain(along.var(axis=0, dtype=np.float64), float(known["variances"].sum()), along.dtype)
            return along
        x = validate_data(self, X, dtype=_FLOATS, ensure_min_features=2)
        self._decompose(x, self._checked(self.n_components, min(x.shape)))
        along = self._along(x)
        self._explain(along.var(axis=0, dtype=np.float64), float(x.var(axis=0, dtype=np.float64).sum()), x.dtype)
        return along
