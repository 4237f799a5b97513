"""Singular values and vectors, principal components."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _teatime
from ._arrays import WIDE, as_array, as_float32, either_order, float_type, folder, host_array, is_path, scale_of, text_options, whole, widened
from ._cuda import as_given, device_of, given_array
from ._device import Device, narrows, run_options
from ._teatime import CudaArray

_Array = NDArray[Any]


class SVD(NamedTuple):
    """``a ≈ u @ diag(s) @ vt``."""

    u: _Array
    s: _Array
    vt: _Array


class PCA(NamedTuple):
    """Principal components of observations."""

    #: The observations in coordinates of the components, (observations, n_components).
    scores: _Array
    #: (n_components, features), orthonormal.
    components: _Array
    #: s² / (observations - 1), as in scikit-learn.
    explained_variance: _Array
    explained_variance_ratio: _Array
    singular_values: _Array
    #: The mean of each feature, which was subtracted.
    mean: _Array


def _matrix(a: ArrayLike, narrow: bool | None, device: Device | str | None) -> tuple[_Array, float, bool, np.dtype[Any]]:
    """A matrix in C order but for a factor, that factor, whether it is the transposed, and the type of results."""
    given = given_array(a, "a", "svd_compressed")
    x = as_array(given, "a", "svd_compressed")
    if x.ndim != 2:
        raise ValueError(f"`a` is a matrix, and has {x.ndim} axes: {x.shape}")
    if x.dtype in WIDE and not narrows("a", x, narrow, device):
        made, scale = widened(x), 1.0
    else:
        made, scale = as_float32(widened(x) if narrow else x, "a", integers=given.dtype.kind in "iu" and not narrow, why=". narrow=True rounds them")
    made, transposed = either_order(made)
    return made, scale, transposed, float_type(x)


def svd(
    a: ArrayLike | str | os.PathLike[str], *, narrow: bool | None = None, device: Device | str | None = None, progress: Any = None,
    memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> SVD:
    """The thin singular value decomposition, as ``numpy.linalg.svd(a, full_matrices=False)``.

    Parameters
    ----------
    a : (m, n)
        float64 and integers of 32 and 64 bits are computed in float64, but see ``narrow``; others in float32.
        Of an array of float32 or float64 in a GPU's memory, the results are there too; where singular values of float32 leave 2^-40 to 2^40,
        a copy is divided by a power of two on the host.
        Or a path, as in :func:`truncated_svd`, of which all components are found by QR or by the Gram matrix where these fit, else by iteration.
    narrow
        Whether what is computed in float64 is computed in float32. None: where the device has no float64 (:attr:`Device.f64`), which
        refuses integers that float32 would change. With False such a device is an error.
    device
        A :class:`Device`, its name, or None for the fastest.
    progress, memory, storage_options
        As in :func:`truncated_svd`.

    Returns
    -------
    SVD
        ``u`` (m, r), ``s`` (r,) descending, ``vt`` (r, n), with r = min(m, n), at most 16,384: of float32 for float32 and float16, else
        of float64. Singular values are right to 1e-6 of the largest, in float64 to 1e-13.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> u, s, vt = teatime.svd(np.array([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]))
    >>> np.round(s, 5)
    array([4., 3.])
    """
    if is_path(a):
        run = run_options(device, progress, memory)
        return stored_svd(a, None, svd_options(), run=run, narrow=narrow, storage_options=storage_options)[0]
    _without_path(memory, storage_options)
    x, scale, transposed, out = _matrix(a, narrow, device)
    u, s, vt = _teatime.svd(x, run_options(device_of(device, a=x), progress))
    if _beyond(x, s):
        return _on_card(svd(x.get(), device=device), a, x)
    return _svd((u, s * scale, vt), transposed, out, a, x)


def _without_path(memory: Any, storage_options: Any) -> None:
    if memory is not None or storage_options is not None:
        raise TypeError("`memory` and `storage_options` are for the path of an array")


def _svd(parts: tuple[_Array, _Array, _Array], transposed: bool, out: np.dtype[Any], a: ArrayLike, x: Any) -> SVD:
    """U, values and Vᵀ as the caller of a decomposition of ``a``, which is ``x``, gets them."""
    u, s, vt = parts
    if transposed:
        u, vt = vt.T, u.T
    return _on_card(SVD(*(part.astype(out, copy=False) for part in (u, s, vt))), a, x)


def _on_card(svd: SVD, a: ArrayLike, x: Any) -> SVD:
    return SVD(*(as_given(part, a, x.device) for part in svd)) if isinstance(x, CudaArray) else svd


def _beyond(x: Any, s: _Array) -> bool:
    """Whether the numbers of ``x``, which are scaled on the host alone, have squares that float32 may have lost."""
    return isinstance(x, CudaArray) and x.dtype == np.float32 and s.size > 0 and not 2.0**-40 < s[0] < 2.0**40


def truncated_svd(
    a: ArrayLike | str | os.PathLike[str], n_components: int = 6, *, n_oversamples: int | None = None, n_iter: int | None = None,
    tol: float = 1e-4, random_state: int = 0, signs: str = "stable", narrow: bool | None = None, device: Device | str | None = None,
    progress: Any = None, memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> SVD:
    """The largest singular values and their vectors, by a randomized block Krylov iteration.

    Parameters
    ----------
    a : (m, n)
        As in :func:`svd`; or the path or URL of a .npy file or a Zarr array, which need not fit memory: it is decomposed by the cheapest method, as
        by the command ``teatime svd``, and only the results are in memory.
    n_components
        How many.
    n_oversamples
        Columns of the random block beyond these. None: what suits the rule by which the iteration stops.
    n_iter
        Power iterations. None: until the residuals are at most ``tol``.
    tol
        ‖AᵀA v - s² v‖ / (s s₁) of all components. A warning has those that are above after 64 passes.
    random_state
        Seed of the random block.
    signs
        Which of the two signs a pair of vectors gets: ``"stable"``; ``"u"`` as scikit-learn's ``randomized_svd``, ``"v"`` as its ``PCA``,
        ``"dask"`` as dask's ``svd_compressed``; ``"none"``.
    narrow, device
        As in :func:`svd`.
    progress
        Called as ``progress(done, total)`` now and then, or a tqdm bar.
    memory
        Of a path: the most host memory to plan with, in bytes or as ``"2G"``. None: half of what is free.
    storage_options
        Of a URL: as in :func:`teatime.genotype.open_store`.

    Returns
    -------
    SVD
        ``u`` (m, k), ``s`` (k,) descending, ``vt`` (k, n), of the types that :func:`svd` gives. ValueError for NaN or infinite numbers, and
        for more components than min(m, n).

    Examples
    --------
    >>> import numpy as np, teatime
    >>> a = np.outer(np.arange(5.0), np.arange(4.0)).astype("f4")
    >>> u, s, vt = teatime.truncated_svd(a, 1)
    >>> bool(np.allclose(u * s @ vt, a, atol=1e-5))
    True
    """
    if is_path(a):
        options = svd_options(n_oversamples=n_oversamples, n_iter=n_iter, tol=tol, random_state=random_state, signs=signs)
        return stored_svd(a, n_components, options, narrow=narrow, run=run_options(device, progress, memory), storage_options=storage_options)[0]
    _without_path(memory, storage_options)
    x, scale, transposed, out = _matrix(a, narrow, device)
    options = svd_options(n_oversamples=n_oversamples, n_iter=n_iter, tol=tol, random_state=random_state, signs=signs)
    k = whole(n_components, "n_components")
    u, s, vt, *reached = _teatime.truncated_svd(x, k, options, transposed, run_options(device_of(device, a=x), progress))
    if _beyond(x, s):
        again = truncated_svd(
            x.get(), k, n_oversamples=n_oversamples, n_iter=n_iter, tol=tol, random_state=random_state, signs=signs, device=device, progress=progress
        )
        return _on_card(again, a, x)
    if n_iter is None:
        warn_unconverged(*reached[:2], options)
    return _svd((u, s * scale, vt), transposed, out, a, x)


def stored_svd(
    path: str | os.PathLike[str], n_components: int | None, options: dict[str, Any], *, run: dict[str, Any], center: bool = False,
    narrow: bool | None = None, storage_options: dict[str, Any] | None = None,
) -> tuple[SVD, dict[str, Any]]:
    """The decomposition of a stored matrix, of whose components None wants all, and what else is known of the matrix."""
    stored = _teatime.StoredArray(folder(path), None, False, text_options(storage_options))
    k = min(stored.shape) if n_components is None else whole(n_components, "n_components")
    u, s, vt, known = _teatime.stored_svd(stored, k, options, center, narrow, run)
    if options["n_iter"] is None:
        warn_unconverged(known["residuals"], known["converged"], options)
    out = float_type(np.empty(0, stored.dtype))
    return SVD(*(part.astype(out, copy=False) for part in (u, s, vt))), known


def warn_unconverged(residuals: _Array, converged: Sequence[bool], svd: dict[str, Any]) -> None:
    """Warns where the iteration stopped before all components had converged: on a worker of dask's, its clients too."""
    left = np.asarray(residuals)[~np.asarray(converged, bool)]
    if not left.size:
        return
    by_tol = f"after {svd['max_passes']} passes, above `tol` of {svd['tol']:g}"
    stopped = by_tol if svd["n_iter"] is None else f"with `n_iter` of {svd['n_iter']}, above 0.0001"
    shown = ", ".join(f"{residual:.1e}" for residual in left[:10])
    message = f"teatime: {left.size} of {len(residuals)} components have not converged: {stopped} their residuals are {shown}"
    # distributed is not imported here, which takes some tenths of a second: a worker has imported it.
    worker = getattr(sys.modules.get("distributed"), "worker", None)
    # Releases of distributed before 2022 have no `warn`.
    getattr(worker, "warn", warnings.warn)(message + ", ..." * (left.size > 10), stacklevel=3)


def svd_options(
    *, n_oversamples: int | None = None, n_iter: int | None = None, tol: float = 1e-4, max_passes: int = 64, random_state: int = 0,
    signs: str = "stable",
) -> dict[str, Any]:
    """Options of the iteration, as the compiled part takes them."""
    return {
        "n_oversamples": None if n_oversamples is None else whole(n_oversamples, "n_oversamples"),
        "n_iter": None if n_iter is None else whole(n_iter, "n_iter"),
        "seed": whole(random_state, "random_state", most=2**64 - 1), "tol": tol, "max_passes": max_passes, "signs": signs,
    }


def pca(
    x: ArrayLike | str | os.PathLike[str], n_components: int = 10, *, n_iter: int | None = None, tol: float = 1e-4, random_state: int = 0,
    narrow: bool | None = None, device: Device | str | None = None, progress: Any = None, memory: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> PCA:
    """Principal components of the rows of a matrix, as scikit-learn's ``PCA``.

    Of genotypes, :func:`teatime.genotype.pca`.

    Parameters
    ----------
    x : (observations, features)
        The means of the features are subtracted in float64, and the rest is computed in the type that :func:`svd` computes in: ``x`` is
        read in blocks of rows, and one copy of it in that type is made. Or a path, as in :func:`truncated_svd`.
    n_components
        How many.
    n_iter, tol, random_state, narrow, device, progress, memory, storage_options
        As in :func:`truncated_svd`. Signs are those of scikit-learn's ``PCA``.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> found = teatime.pca(np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]), 1)
    >>> np.round(found.explained_variance, 4)
    array([5.])
    """
    options = svd_options(n_iter=n_iter, tol=tol, random_state=random_state, signs="v")
    if is_path(x):
        run = run_options(device, progress, memory)
        (u, s, vt), known = stored_svd(x, n_components, options, run=run, center=True, narrow=narrow, storage_options=storage_options)
        _enough(len(u))
        return _pca(u, s, vt, known["means"], known["total"] / (len(u) - 1), u.dtype)
    _without_path(memory, storage_options)
    a = host_array(x, "x", "pca")
    if a.ndim != 2:
        raise ValueError(f"`x` is a matrix, and has {a.ndim} axes: {a.shape}")
    _enough(a.shape[0])
    first = as_array(a[:0], "x", "pca")
    out, wide = float_type(first), first.dtype in WIDE and not narrows("x", a, narrow, device)
    k = whole(n_components, "n_components")
    centred, scale, mean, squares = _centred(a, np.float64 if wide else np.float32)
    u, s, vt, *reached = _teatime.truncated_svd(centred, k, options, False, run_options(device, progress))
    if n_iter is None:
        warn_unconverged(*reached[:2], options)
    return _pca(u, s * scale, vt, mean, squares / (a.shape[0] - 1), out)


def _enough(observations: int) -> None:
    if observations < 2:
        raise ValueError(f"`x` has {observations} observations: at least two are needed")


def _pca(u: _Array, s: _Array, vt: _Array, mean: _Array, variance: float, out: np.dtype[Any]) -> PCA:
    """The components from the decomposition of centred observations, whose variances add up to ``variance``."""
    explained = s**2 / (len(u) - 1)
    ratio = explained / variance if variance > 0 else np.zeros_like(explained)
    return PCA(*(part.astype(out, copy=False) for part in (u * s, vt, explained, ratio, s, mean)))


#: The bytes of float64 of the rows that are centred at once.
_BLOCK = 8 << 20


def _centred(a: _Array, dtype: Any) -> tuple[_Array, float, _Array, float]:
    """A matrix less the means of its columns, of a type and in float32 but for a factor, that factor, the means, and the sum of squares.
    It is read in blocks of rows, twice, so that nothing but the result is as large as it is."""
    rows = max(1, _BLOCK // (8 * max(1, a.shape[1])))
    blocks = [slice(first, first + rows) for first in range(0, a.shape[0], rows)]
    total, most, least = np.zeros(a.shape[1]), np.full(a.shape[1], -np.inf), np.full(a.shape[1], np.inf)
    for block in blocks:
        x = as_array(a[block], "x", "pca")
        total += x.sum(axis=0, dtype=np.float64)
        most, least = np.maximum(most, x.max(axis=0)), np.minimum(least, x.min(axis=0))
    mean = total / a.shape[0]
    scale = 1.0 if dtype == np.float64 else scale_of(np.concatenate([most - mean, least - mean]))
    centred, squares = np.empty(a.shape, dtype), 0.0
    for block in blocks:
        x = as_array(a[block], "x", "pca") - mean
        squares += float(np.einsum("ij,ij->", x, x))
        with np.errstate(over="ignore", under="ignore"):
            np.divide(x, scale, out=centred[block], casting="same_kind")
    return centred, scale, mean, squares
