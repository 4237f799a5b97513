"""Values of 1, 2 and 4 bits in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _teatime
from ._arrays import as_array, c_order, whole
from ._cuda import as_given, device_of, given_array
from ._device import Device, run_options


def pack(
    x: ArrayLike, bits: int = 2, *, table: Sequence[int] | None = None, missing: int | None = None, device: Device | str | None = None
) -> NDArray[np.uint8]:
    """Packs the last axis, each row by itself, the first value in the lowest bits of a byte.

    Parameters
    ----------
    x : (..., n)
        Of int8, uint8 or bool, on the host or in a GPU's memory, where the result is too: values below ``2**bits``.
    bits
        1, 2 or 4.
    table
        What each value is packed as; values that it does not have are refused.
    missing
        What negative values are packed as. None: they are refused.
    device
        A :class:`Device`, its name, or None for the fastest.

    Returns
    -------
    (..., ceil(n * bits / 8)) of uint8
        The bits behind a row's values are 0. ValueError for values that do not fit: it says how many, and where the first is.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> teatime.pack(np.array([0, 1, 2, 3, 1], "u1"))
    array([228,   1], dtype=uint8)
    """
    given = given_array(x, "x", "pack")
    a = as_array(given, "x", "pack")
    if a.dtype not in (np.dtype("i1"), np.dtype("u1")):
        raise TypeError(f"`x` has the type {given.dtype}: int8, uint8 and bool are packed")
    entries = None if table is None else [whole(value, "table", most=255) for value in table]
    missing = None if missing is None else whole(missing, "missing", most=255)
    packed = _teatime.pack(c_order(a), whole(bits, "bits"), entries, missing, run_options(device_of(device, x=a)))
    return as_given(packed, x)  # type: ignore[no-any-return]


def unpack(
    packed: ArrayLike, n: int, bits: int = 2, *, table: Sequence[float] | None = None, dtype: DTypeLike = np.uint8,
    device: Device | str | None = None,
) -> NDArray[Any]:
    """Rows of ``n`` values, of what :func:`pack` packed.

    Parameters
    ----------
    packed : (..., bytes of a row) of uint8
    n
        Values of a row.
    table
        What each of the ``2**bits`` codes becomes.
    dtype
        uint8, int8, float16 or float32.
    bits, device
        As in :func:`pack`.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> teatime.unpack(np.array([228, 1], "u1"), 5)
    array([0, 1, 2, 3, 1], dtype=uint8)
    """
    a = as_array(given_array(packed, "packed", "unpack"), "packed", "unpack")
    if a.dtype != np.dtype("u1"):
        raise TypeError(f"`packed` has the type {a.dtype}: it is of uint8")
    entries = None if table is None else [float(value) for value in table]
    n = whole(n, "n", most=2**63 - 1)
    run = run_options(device_of(device, packed=a))
    values = _teatime.unpack(c_order(a), n, whole(bits, "bits"), entries, str(np.dtype(dtype)), run)
    return as_given(values, packed)  # type: ignore[no-any-return]
