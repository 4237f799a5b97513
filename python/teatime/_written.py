"""Filters of arrays and images that need not fit memory, from the files of one to those of another."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ._arrays import NATIVE, host_array, is_path, whole
from ._device import Device, opened_device, run_options
from ._filter import WIDE, computed_type, filter_options, filtered_axes, is_long, warn_of_sign
from ._overlap import Mapped, opened, target


def write_gaussian_filter(
    input: Any, out: str | os.PathLike[str], sigma: float | Sequence[float], order: int | Sequence[int] = 0,
    mode: str | Sequence[str] = "reflect", cval: float = 0.0, truncate: float = 4.0, *, dtype: DTypeLike = None,
    radius: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None, chunks: int | Sequence[int] | None = None,
    resume: bool = False, fill: bool = False, level: int | None = None, physical: bool = False, pyramid: bool = False,
    narrow: bool | None = None, device: Device | str | None = None, progress: Any = None, memory: int | str | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Mapped:
    """Writes :func:`gaussian_filter` of an array to a Zarr array, or of an OME-Zarr image to another, box by box: neither has to fit memory.

    Values are those of the whole array, to the last bit, however it is cut.

    Parameters
    ----------
    input
        The path or URL of a Zarr array, of an OME-Zarr image of version 0.1 to 0.5, or of a .npy file; or an array in memory, which may be a
        :class:`numpy.memmap`.
    out
        As in :func:`map_overlap`.
    sigma, order, mode, cval, truncate, radius, narrow, device
        As in :func:`gaussian_filter`.
    axes
        The axes that are filtered. None: all, and of an image those along space.
    dtype
        The type of the result: float16, float32, float64, or that of ``input`` if this has at most 32 bits and is not boolean. None: that of
        ``input``; of booleans uint8, and of integers of 64 bits float64. A result of float64 is computed in it.
    chunks, resume, fill, level, pyramid, progress, memory
        As in :func:`map_overlap`.
    physical
        True: ``sigma`` is in the units of an image's axes, such as micrometers, and not in pixels: one, or one for each axis along space.
    storage_options
        Of a URL: as in :func:`teatime.genotype.open_store`.

    Examples
    --------
    >>> import numpy as np, tempfile, teatime
    >>> x = np.zeros((9, 9), "f4")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     teatime.write_gaussian_filter(x, folder + "/blurred.zarr", 1).boxes
    1
    """
    stored, given, files = opened(input, fill, level, storage_options, "input", "gaussian_filter")
    native = np.dtype("u1" if given.kind == "b" else "f8" if is_long(given) else given).newbyteorder("=")
    made = native if dtype is None else np.dtype(dtype).newbyteorder("=")
    if made != native:
        computed_type(native, made, "once", "dtype")
    if made not in NATIVE:
        raise ValueError(f"`dtype` of {made}: it is a float, or of the input's type")
    if physical:
        if axes is not None:
            raise ValueError("with `physical` the axes along space are filtered, and `axes` is None")
        sigma = stored.in_pixels([float(value) for value in np.atleast_1d(sigma)])
    chosen = stored.spatial_axes if axes is None else filtered_axes(axes, len(stored.shape))
    options = filter_options(
        chosen, sigma, order=order, mode=mode, cval=cval, truncate=truncate, radius=radius, rounding="once", narrow=narrow
    )
    warn_of_sign(options["order"], made, "dtype")
    to = target(out, stored, chunks, resume, files, pyramid)
    return Mapped(*stored.write_gaussian(options, str(made), to, run_options(device, progress, memory)))


def write_denoise_tv_chambolle(
    image: Any, out: str | os.PathLike[str], weight: float = 0.1, eps: float = 2e-4, max_num_iter: int = 200, *,
    channel_axis: int | None = None, chunks: int | Sequence[int] | None = None, resume: bool = False, fill: bool = False,
    level: int | None = None, pyramid: bool = False, narrow: bool | None = None, device: Device | str | None = None, progress: Any = None,
    memory: int | str | None = None, storage_options: dict[str, Any] | None = None,
) -> Mapped:
    """Writes :func:`denoise_tv_chambolle` of an array to a Zarr array of float32 or float64, or of an OME-Zarr image to another, box by box:
    neither has to fit memory. Axes of an image that are not along space are taken as those of channels.

    Parameters
    ----------
    image, out
        As in :func:`write_gaussian_filter`.
    weight, eps, max_num_iter, channel_axis, device
        As in :func:`denoise_tv_chambolle`.
    narrow
        Whether what is computed in float64 is rounded to float32. None: where the device has no float64.
    chunks, resume, fill, level, pyramid, progress, memory, storage_options
        As in :func:`write_gaussian_filter`.

    Examples
    --------
    >>> import numpy as np, tempfile, teatime
    >>> x = np.zeros((9, 9), "f4")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     teatime.write_denoise_tv_chambolle(x, folder + "/denoised.zarr").boxes
    1
    """
    if not is_path(image):
        image = host_array(image, "image", "denoise_tv_chambolle")
        # They are stored as bytes and float64, in which the range of their type is lost.
        if image.dtype.kind == "b":
            image = image.astype(np.float32)
        elif is_long(image.dtype):
            image = image / np.iinfo(image.dtype).max
    stored, given, files = opened(image, fill, level, storage_options, "image", "denoise_tv_chambolle")
    channels = filtered_axes(channel_axis, len(stored.shape)) if channel_axis is not None else []
    axes = [axis for axis in stored.spatial_axes if axis not in channels]
    options = (axes, float(weight), float(eps), whole(max_num_iter, "max_num_iter"))
    wide = given.newbyteorder("=") in WIDE or is_long(given)
    in_f64 = wide and not (not opened_device(device).f64 if narrow is None else narrow)
    to = target(out, stored, chunks, resume, files, pyramid)
    dtype = "float64" if in_f64 else "float32"
    return Mapped(*stored.write_denoise_tv(options, dtype, to, run_options(device, progress, memory)))
