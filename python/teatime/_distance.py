"""Distances of observations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _teatime
from ._arrays import as_array, c_order, either_order, float_type, of_one_type
from ._cuda import as_given, device_of, given_array
from ._device import Device, check_narrow, opened_device, run_options
from ._teatime import CudaArray


def distance_options(
    metric: str = "euclidean", *, p: float = 2.0, missing: str = "propagate", negative: bool = False, columns: bool = False,
    narrow: bool | None = None,
) -> dict[str, Any]:
    """Options of distances, as the compiled part takes them."""
    metric = _teatime.metric_name(metric, float(p))
    return {"metric": metric, "p": float(p), "missing": missing, "negative": negative, "columns": columns, "narrow": narrow}


def operand(x: ArrayLike, name: str, narrow: bool | None, device: Device | str | None) -> NDArray[Any]:
    """One as :func:`as_array` has it, of which the device changes no integer."""
    given = given_array(x, name, "pairwise_distance")
    a = as_array(given, name, "pairwise_distance")
    check_narrow(given, name, narrow, device)
    if narrow is False and a.dtype.kind in "iu" and not (opened := opened_device(device)).f64:
        raise ValueError(f"`narrow` of False: {opened.name} has no float64, in which distances of {a.dtype} are computed")
    return a


def operands(
    x: ArrayLike, y: ArrayLike | None, narrow: bool | None, device: Device | str | None
) -> tuple[NDArray[Any], NDArray[Any] | None, bool, np.dtype[Any]]:
    """Both of one type and in C order; whether observations are columns; and the type of the result."""
    a = operand(x, "x", narrow, device)
    b = None if y is None else operand(y, "y", narrow, device)
    for name, array in (("x", a), ("y", b)):
        if array is not None and array.ndim != 2:
            raise ValueError(f"`{name}` is (observations, features), and has {array.ndim} axes: {array.shape}")
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


def pairwise_distance(
    x: ArrayLike, y: ArrayLike | None = None, metric: str = "euclidean", *, p: float = 2.0, missing: str = "propagate",
    negative: bool = False, condensed: bool = False, return_shared: bool = False, narrow: bool | None = None,
    device: Device | str | None = None, progress: Any = None,
) -> Any:
    """Distances of observations from one another, or from those of ``y``: scipy's ``cdist`` and ``pdist``.

    Parameters
    ----------
    x : (m, features)
        Of float64 and integers all is computed in float64, but see ``narrow``; of 8 bits in float32 where sums in it are exact, as they are
        of most metrics. Of float16 and float32 all is computed in float32.
        Of an array in a GPU's memory the results are there too, and ``y`` is of the same type there.
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
    condensed
        Each pair of ``x`` once, in scipy's order, in place of the square.
    return_shared
        Whether the number of features that both have is returned too, where missing ones are ignored.
    narrow, device
        As in :func:`teatime.svd`.
    progress
        Called as ``progress(done, total)`` now and then, or a tqdm bar.

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
    a, b, columns, out = operands(x, y, narrow, device)
    device = device_of(device, x=a, y=b)
    card = a.device if isinstance(a, CudaArray) else None
    options = distance_options(metric, p=p, missing=missing, negative=negative, columns=columns, narrow=narrow)
    if condensed:
        if b is not None or return_shared:
            raise ValueError("`condensed` is of `x` alone, without `y` and `return_shared`")
        return as_given(_teatime.condensed(a, options, run_options(device, progress)).astype(out, copy=False), x, card)
    counted = return_shared and missing != "propagate"
    distances, shared = _teatime.pairwise(a, b, options, counted, run_options(device, progress))
    distances = as_given(distances.astype(out, copy=False), x, card)
    if not return_shared:
        return distances
    return distances, None if shared is None else as_given(shared, x, card)
