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
    from sklearn import decomposition
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
#: The solvers that find all components, of which the first are kept. Others find some, by iteration.
_EXACT = ("full", "covariance_eigh")
#: The residuals at which arpack ends. In float32, where products are less exact, the iteration ends at their rounding.
_LEAST = 1e-12


class _Decomposition(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The part that both estimators share."""

    #: The names of the parameters that choose the solver, and that limit the iterations, with what leaves the limit to ``tol``.
    _solver: str
    _iterations: tuple[str, Any]
    components_: _Array
    explained_variance_: _Array
    explained_variance_ratio_: _Array
    singular_values_: _Array

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = tags.array_api_support = False
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

    def _check(self, X: Any, solvers: tuple[str, ...]) -> None:
        """Checks the parameters but ``n_components``. Of a path, the method with the least cost is the only one, and the first of these."""
        solver = getattr(self, self._solver)
        if solver not in solvers:
            raise ValueError(f"`{self._solver}` is one of {', '.join(solvers)}, not {solver!r}")
        if is_path(X) and solver != solvers[0]:
            raise ValueError(f"`{self._solver}` of {solver!r}: of a path it is {solvers[0]!r}, which takes the method that costs least")
        for (name, unset), kind in ((self._iterations, Integral), (("n_oversamples", None), Integral), (("tol", None), Real)):
            value = getattr(self, name)
            if value != unset and not (isinstance(value, kind) and value >= 0):
                whole = "whole " if kind is Integral else ""
                raise ValueError(f"`{name}` is {value!r}: it is a {whole}number, at least 0, or {unset!r}")

    def _number(self, k: Any, solver: str, most: int | None) -> int:
        """The number of components ``k``, once it is checked to be a number that ``solver`` finds, of at most so many; None: of a path,
        whose shape is not known before the file is open, where too many are refused."""
        if not isinstance(k, Integral) or isinstance(k, bool):
            fraction = ", or a fraction above 0 and below 1" * (solver in _EXACT or solver == "auto")
            raise TypeError(f"`n_components` is a whole number{fraction}, not {k!r}")
        if most is None:
            if k < 1:
                raise ValueError(f"n_components={k} must be at least 1 of a path")
            return int(k)
        least, by = int(solver not in _EXACT), f"with {self._solver}={solver!r}"
        if not least <= k <= most:
            raise ValueError(f"n_components={k} must be between {least} and min(n_samples, n_features)={most} {by}")
        if solver == "arpack" and k == most:
            raise ValueError(f"n_components={k} must be strictly less than min(n_samples, n_features)={most} {by}")
        return int(k)

    def _iteration(self) -> dict[str, Any]:
        """The arguments of the iteration."""
        seed, (name, unset) = self.random_state, self._iterations
        if not (isinstance(seed, Integral) and seed >= 0):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        tol = self.tol
        if tol is None:
            tol = 0 if getattr(self, self._solver) == "arpack" else 1e-4
        n_iter = getattr(self, name)
        return {
            "n_iter": None if n_iter == unset else n_iter, "n_oversamples": self.n_oversamples, "tol": float(tol) or _LEAST,
            "random_state": int(seed),
        }

    def _decompose(self, x: _Array, k: int | None, solver: str) -> tuple[_Array, _Array]:
        """The ``k`` largest singular values of ``x`` and their right vectors, or all, to the accuracy of its type."""
        if k in (None, min(x.shape)):
            _, s, vt = svd(x, device=self.device)
        else:
            iteration = self._iteration()
            if solver == "arpack":
                iteration["n_iter"] = None
            _, s, vt = truncated_svd(x, k, **iteration, device=self.device)
        if x.dtype == np.float64 and not opened_device(self.device).f64:
            # These are the best components in float64 within the span of x @ vt.T (a step of subspace iteration: Halko et al. 2011).
            q, _ = np.linalg.qr(x @ vt.T)
            _, s, vt = np.linalg.svd(q.T @ x, full_matrices=False)
        largest = np.abs(vt).argmax(axis=1)
        signs = np.where(vt[np.arange(len(vt)), largest] < 0, -1, 1).astype(x.dtype)
        return s, vt * signs[:, np.newaxis]

    def _decompose_stored(self, path: Any, k: int | None, center: bool) -> tuple[_Array, _Array, _Array, dict[str, Any]]:
        """The left vectors of a stored matrix times its ``k`` largest singular values, or all; these; the right vectors; and what else is
        known of the matrix."""
        options = svd_options(**self._iteration(), signs="v")
        run = run_options(self.device, memory=self.memory)
        (u, s, vt), known = stored_svd(path, k, options, center=center, run=run, storage_options=self.storage_options)
        self.n_features_in_ = vt.shape[1]
        return u * s, s, vt, known

    def _explain(self, explained: _Array, total: float, dtype: np.dtype[Any]) -> None:
        """Keeps the variances along the components, and their shares of the total."""
        self.explained_variance_ = explained.astype(dtype)
        self.explained_variance_ratio_ = (explained / total if total > 0 else np.zeros_like(explained)).astype(dtype)


class PCA(_Decomposition, decomposition.PCA):
    """Principal components, as scikit-learn's ``PCA``, of which ``score``, ``score_samples``, ``get_covariance`` and ``get_precision`` are.

    Parameters
    ----------
    n_components
        How many; or the share of the variance, above 0 and below 1, that they explain at least, by a solver that finds all; or None:
        min(n_samples, n_features), by ``arpack`` one less. ``"mle"`` is refused. A solver that finds all finds at most 16,384.
    whiten
        Whether :meth:`transform` divides each coordinate by its standard deviation.
    svd_solver
        ``"full"`` and ``"covariance_eigh"``, which are one here: all components by QR, of which the first are kept. ``"randomized"``: some,
        by iteration. ``"arpack"``: the same, to a ``tol`` of 0. ``"auto"``: all, where there are at most 500 samples and features, or a
        share of the variance or 80 % of the components are asked for, else ``"randomized"``. Of a path it is ``"auto"``, and the method is
        that which costs least.
    tol
        As in :func:`teatime.truncated_svd`; 0: 1e-12, or in float32 what rounding leaves. None: 1e-4, and 0 by ``arpack``.
    iterated_power, n_oversamples
        As ``n_iter`` and ``n_oversamples`` in :func:`teatime.truncated_svd`; ``arpack`` makes at most 64 iterations,
        and warns where they do not reach ``tol``.
    random_state
        Seed of the random block: a number, a ``RandomState``, or None for another one each time.
    copy, power_iteration_normalizer
        Taken and not used: data are never overwritten, and every step is orthogonalised.
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
    >>> PCA(n_components=0.9).fit(x).n_components_
    1
    """

    mean_: _Array
    noise_variance_: float
    n_components_: int
    n_samples_: int
    _solver, _iterations = "svd_solver", ("iterated_power", "auto")

    def __init__(
        self, n_components: float | str | None = None, *, copy: bool = True, whiten: bool = False, svd_solver: str = "auto",
        tol: float | None = None, iterated_power: int | str = "auto", n_oversamples: int | None = None,
        power_iteration_normalizer: str = "auto", random_state: Any = 0, device: Any = None, memory: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.n_components, self.copy, self.whiten, self.svd_solver, self.tol = n_components, copy, whiten, svd_solver, tol
        self.iterated_power, self.n_oversamples, self.power_iteration_normalizer = iterated_power, n_oversamples, power_iteration_normalizer
        self.random_state, self.device, self.memory, self.storage_options = random_state, device, memory, storage_options

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        self._check(X, ("auto", "full", "covariance_eigh", "arpack", "randomized"))
        share = isinstance(self.n_components, Real) and 0 < self.n_components < 1
        if is_path(X):
            k = None if share or self.n_components is None else self._number(self.n_components, self.svd_solver, None)
            along, s, vt, known = self._decompose_stored(X, k, True)
            if len(along) < 2:
                raise ValueError(f"{X}: 1 sample, while a minimum of 2 is required")
            self._found(known["means"].astype(along.dtype), len(along), known["total"] / (len(along) - 1), s, vt, k)
            along = along[:, : self.n_components_]
            return along / self._deviations() if self.whiten else along
        x = validate_data(self, X, dtype=_FLOATS, ensure_min_samples=2)
        solver = self._fit_svd_solver = self._chosen(x.shape)
        most = min(x.shape)
        k = None if share and solver in _EXACT else most - (solver == "arpack") if self.n_components is None else self.n_components
        if isinstance(k, str):
            why = "is not there: a share of the variance is" if solver in _EXACT else f"cannot be a string with svd_solver={solver!r}"
            raise ValueError(f"n_components={k!r} {why}")
        if k is not None:
            k = self._number(k, solver, most)
        mean = x.mean(axis=0, dtype=np.float64).astype(x.dtype)
        centred = x - mean
        s, vt = self._decompose(centred, None if solver in _EXACT else k, solver)
        self._found(mean, len(x), float(np.einsum("ij,ij->", centred, centred, dtype=np.float64)) / (len(x) - 1), s, vt, k)
        return self._along(centred)

    def _chosen(self, shape: tuple[int, int]) -> str:
        """The solver, which ``auto`` chooses as scikit-learn does, but does not find all components of tall data for a few."""
        if self.svd_solver != "auto":
            return self.svd_solver
        k = min(shape) if self.n_components is None else self.n_components
        few = isinstance(k, Integral) and 1 <= k < 0.8 * min(shape)
        if max(shape) > 500 and few:
            return "randomized"
        return "covariance_eigh" if shape[0] >= 10 * shape[1] and shape[1] <= 1000 else "full"

    def _found(self, mean: _Array, samples: int, total: float, s: _Array, vt: _Array, k: int | None) -> None:
        """Keeps the first ``k`` components of so many samples; None keeps all, or those that explain the share that is asked for of ``total``."""
        explained = s.astype(np.float64) ** 2 / (samples - 1)
        if k is None:
            k = len(s)
            if self.n_components is not None:
                k = min(k, 1 + int(np.searchsorted(np.cumsum(explained / (total or 1)), self.n_components, side="right")))
        self.mean_, self.n_samples_, self.n_components_ = mean, samples, k
        self.components_, self.singular_values_ = vt[:k].copy(), s[:k].copy()
        self._explain(explained[:k], total, mean.dtype)
        rank = min(samples, mean.size)
        left_out = float(explained[k:].sum()) if len(s) == rank else max(0.0, total - float(explained.sum()))
        self.noise_variance_ = left_out / (rank - k) if rank > k else 0.0

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
        largest = deviations.max(initial=0)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps * largest if largest > 0 else 1)


class TruncatedSVD(_Decomposition):
    """The largest singular values, as scikit-learn's ``TruncatedSVD``, of data that are not centred.

    Parameters
    ----------
    n_components
        How many.
    algorithm
        ``"randomized"`` or ``"arpack"``, as ``svd_solver`` of :class:`PCA`. Of a path it is ``"randomized"``, and the method is that which
        costs least.
    n_iter
        As ``iterated_power`` of :class:`PCA`; None is its ``"auto"``.
    n_oversamples, power_iteration_normalizer, random_state, tol, device, memory, storage_options
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

    _solver, _iterations = "algorithm", ("n_iter", None)

    def __init__(
        self, n_components: int = 2, *, algorithm: str = "randomized", n_iter: int | None = None, n_oversamples: int | None = None,
        power_iteration_normalizer: str = "auto", random_state: Any = 0, tol: float | None = None, device: Any = None, memory: Any = None,
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        self.n_components, self.algorithm, self.n_iter, self.n_oversamples = n_components, algorithm, n_iter, n_oversamples
        self.power_iteration_normalizer, self.random_state, self.tol = power_iteration_normalizer, random_state, tol
        self.device, self.memory, self.storage_options = device, memory, storage_options

    def fit_transform(self, X: Any, y: Any = None) -> _Array:
        """Finds the components of ``X``, and its coordinates along them (n_samples, n_components)."""
        self._check(X, ("randomized", "arpack"))
        if is_path(X):
            k = self._number(self.n_components, self.algorithm, None)
            along, self.singular_values_, self.components_, known = self._decompose_stored(X, k, False)
            self._explain(along.var(axis=0, dtype=np.float64), float(known["variances"].sum()), along.dtype)
            return along
        x = validate_data(self, X, dtype=_FLOATS, ensure_min_features=2)
        k = self._number(self.n_components, self.algorithm, min(x.shape))
        self.singular_values_, self.components_ = self._decompose(x, k, self.algorithm)
        along = self._along(x)
        self._explain(along.var(axis=0, dtype=np.float64), float(x.var(axis=0, dtype=np.float64).sum()), x.dtype)
        return along
