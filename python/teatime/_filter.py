"""Gaussian filters, and total variation denoising, of arrays, and from the files of arrays and images to others."""

from __future__ import annotations

import functools
import operator
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from . import _teatime
from ._arrays import NATIVE, WIDE, as_array, c_order, host_array, is_long, is_path, on_card, whole
from ._cuda import as_given, device_of, given_array
from ._device import Device, check_narrow, narrows, opened_device, run_options
from ._overlap import Mapped, opened, target
from ._teatime import CudaArray


def per_axis(value: Any, name: str, count: int) -> list[Any]:
    """One value an axis that is filtered."""
    if isinstance(value, str) or np.ndim(value) == 0:
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise ValueError(f"`{name}` has {len(values)} values, and {count} axes are filtered")
    return values


def filtered_axes(axes: int | Sequence[int] | None, count: int) -> list[int]:
    """Those of ``count`` axes that ``axes`` names."""
    named = range(count) if axes is None else np.atleast_1d(axes)
    chosen = [operator.index(axis) for axis in named]
    beyond = [axis for axis in chosen if not -count <= axis < count]
    if beyond:
        raise ValueError(f"`axes`: {beyond[0]} is out of range for an array of {count} axes")
    chosen = [axis % count for axis in chosen]
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"axes must be unique: `axes` is {axes}")
    return chosen


def filter_options(
    axes: Sequence[int], sigma: float | Sequence[float], *, order: int | Sequence[int], mode: str | Sequence[str], cval: Any,
    truncate: float, radius: int | Sequence[int] | None, rounding: str, narrow: bool | None,
) -> dict[str, Any]:
    """Options of a filter along ``axes``, as the compiled part takes them."""
    count = len(axes)
    return {
        "axes": list(axes),
        "sigma": [float(value) for value in per_axis(sigma, "sigma", count)],
        "order": [whole(value, "order") for value in per_axis(order, "order", count)],
        "mode": per_axis(mode, "mode", count),
        "radius": None if radius is None else [whole(value, "radius") for value in per_axis(radius, "radius", count)],
        "cval": float(cval), "truncate": float(truncate), "rounding": rounding, "preserve_range": True, "narrow": narrow,
    }


def computed_type(given: np.dtype[Any], dtype: np.dtype[Any], rounding: str, name: str = "output") -> np.dtype[Any]:
    """The type in which an array of type ``given`` is filtered for a result of ``dtype``, into which that is put at last."""
    # Native types are taken as they are, bool as uint8, and 64-bit integers as float64.
    wide = is_long(given)
    taken = np.dtype("u1") if given.kind == "b" else np.dtype("f8") if wide else given
    computed = np.dtype("u1") if dtype.kind == "b" else dtype
    if is_long(dtype) and dtype == given:
        computed = np.dtype("f8")
    # Narrower types are summed in float32, whatever the type of the result.
    if computed == np.dtype("f8") and taken not in WIDE and rounding == "once":
        computed = np.dtype("f4")
    if computed not in NATIVE or (computed != taken and computed.kind != "f"):
        raise ValueError(f"`{name}` of {dtype} for an input of {given}: it is a float, or of the input's type")
    return computed


def of_type(result: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """What was computed, as ``dtype``: as narrower integers to the nearest, and to the ends of the type."""
    if result.dtype != dtype and not isinstance(result, CudaArray) and dtype.kind in "iu":
        ends = np.iinfo(dtype)
        result = np.rint(result)
        np.clip(result, ends.min, np.nextafter(float(ends.max), 0) if is_long(dtype) else None, out=result)
    return result.astype(dtype, copy=False)


def warn_of_sign(order: Sequence[int], dtype: np.dtype[Any], name: str = "output", stacklevel: int = 3) -> None:
    """Warns of a derivative whose negative half the type of the result does not have."""
    if dtype.kind == "u" and any(order):
        text = f"teatime: what is negative of a derivative is 0 in {dtype}: give a float or signed `{name}`"
        warnings.warn(text, stacklevel=stacklevel)


def axis_by_axis(options: dict[str, Any]) -> list[dict[str, Any]]:
    """The options of a filter along each axis alone, in the order in which a filter takes its axes."""
    lists = ("axes", "sigma", "order", "mode", *(["radius"] if options["radius"] is not None else []))
    places = sorted(range(len(options["axes"])), key=options["axes"].__getitem__)
    return [{**options, **{name: [options[name][place]] for name in lists}} for place in places]


def gaussian_filter(
    input: ArrayLike, sigma: float | Sequence[float], order: int | Sequence[int] = 0, output: DTypeLike | NDArray[Any] | None = None,
    mode: str | Sequence[str] = "reflect", cval: Any = 0.0, truncate: float = 4.0, *, radius: int | Sequence[int] | None = None,
    axes: int | Sequence[int] | None = None, rounding: str = "once", narrow: bool | None = None, device: Device | str | None = None,
) -> NDArray[Any]:
    """A Gaussian filter, or a derivative of one: :func:`scipy.ndimage.gaussian_filter` with its arguments.

    Parameters
    ----------
    input
        One to five axes. float64 and integers of 32 and 64 bits are computed in float64, but see ``narrow``; others in float32. Of complex
        numbers both parts are filtered. Of an array in a GPU's memory, the result is there too.
    sigma
        Standard deviation, for all filtered axes or for each.
    order
        0 for the Gaussian, 1 for its derivative, and so on. Of unsigned integers, what is negative of a derivative is 0, with a warning,
        unless ``output`` is another type.
    output
        The type of the result, or an array that takes it: float16, float32, float64, or the type of ``input``, which is the default.
    mode, cval
        What stands beyond the ends: reflect, constant (``cval``), nearest, mirror, wrap.
    truncate
        How far weights reach, in standard deviations.
    radius
        How far weights reach, in elements, in place of ``truncate``.
    axes
        Those that are filtered. None: all.
    rounding
        ``"once"``: integers are rounded to the nearest at the end. ``"scipy"``: towards 0 after each axis, as scipy does, those of 64 bits
        in as many calls as there are axes; in float32, as on devices without float64, results of 8 and 16 bits may be one off. Floats are
        added in scipy's order too, and far from 0 are less exact so.
    narrow, device
        As in :func:`teatime.svd`.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> teatime.gaussian_filter(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 1.0, radius=1).round(4)
    array([0.    , 0.2741, 0.4519, 0.2741, 0.    ])
    """
    return _filtered(
        "filter", input, sigma, output, order=order, mode=mode, cval=cval, truncate=truncate, radius=radius, axes=axes, rounding=rounding,
        narrow=narrow, device=device,
    )


def gaussian_laplace(
    input: ArrayLike, sigma: float | Sequence[float], output: DTypeLike | NDArray[Any] | None = None,
    mode: str | Sequence[str] = "reflect", cval: Any = 0.0, *, axes: int | Sequence[int] | None = None, truncate: float = 4.0,
    radius: int | Sequence[int] | None = None, narrow: bool | None = None, device: Device | str | None = None,
) -> NDArray[Any]:
    """The Laplacian of the Gaussian, the sum of its second derivatives: :func:`scipy.ndimage.gaussian_laplace` with its arguments.

    Arguments and types are those of :func:`gaussian_filter`. Integers are rounded once, at the end; of unsigned ones, what is negative is
    0, with a warning.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> teatime.gaussian_laplace(np.array([0.0, 0.0, 1.0, 0.0, 0.0]), 1.0, radius=2).round(3)
    array([ 0.163,  0.   , -0.403,  0.   ,  0.163])
    """
    return _filtered(
        "laplace", input, sigma, output, order=0, mode=mode, cval=cval, truncate=truncate, radius=radius, axes=axes, rounding="once",
        narrow=narrow, device=device,
    )


def gaussian_gradient_magnitude(
    input: ArrayLike, sigma: float | Sequence[float], output: DTypeLike | NDArray[Any] | None = None,
    mode: str | Sequence[str] = "reflect", cval: Any = 0.0, *, axes: int | Sequence[int] | None = None, truncate: float = 4.0,
    radius: int | Sequence[int] | None = None, narrow: bool | None = None, device: Device | str | None = None,
) -> NDArray[Any]:
    """The length of the Gaussian's gradient: :func:`scipy.ndimage.gaussian_gradient_magnitude` with its arguments.

    Arguments and types are those of :func:`gaussian_filter`, and numbers are real. Integers are rounded once, at the end. Axes that are not
    named are not filtered, as scipy documents it; scipy 1.17 smooths along them too.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> teatime.gaussian_gradient_magnitude(np.arange(0.0, 18.0, 2.0), 1.0).round(2)
    array([0.73, 1.7 , 1.97, 2.  , 2.  , 2.  , 1.97, 1.7 , 0.73])
    """
    return _filtered(
        "gradient_magnitude", input, sigma, output, order=0, mode=mode, cval=cval, truncate=truncate, radius=radius, axes=axes,
        rounding="once", narrow=narrow, device=device,
    )


def _filtered(
    kind: str, input: ArrayLike, sigma: float | Sequence[float], output: DTypeLike | NDArray[Any] | None = None, *, cval: Any,
    axes: int | Sequence[int] | None, narrow: bool | None, device: Device | str | None, **options: Any,
) -> NDArray[Any]:
    """The filter whose name in scipy ends with ``kind``. ``options`` are the others of :func:`filter_options`."""
    name = f"gaussian_{kind}"
    given = given_array(input, "input", name)
    if given.dtype.kind == "c" and kind != "gradient_magnitude":
        each = functools.partial(_filtered, kind, sigma=sigma, narrow=narrow, device=device, axes=axes, **options)
        return _of_parts(each, given, output, cval)
    x = as_array(given, "input", name)
    check_narrow(given, "input", narrow, device)
    device = device_of(device, input=x)
    chosen = filtered_axes(axes, x.ndim)
    into: Any = output if isinstance(output, np.ndarray) or on_card(output) else None
    if into is not None and not (hasattr(into, "__setitem__") and isinstance(into.dtype, np.dtype)):
        raise TypeError(f"`output` is {type(into)}: a type, or an array of NumPy's or CuPy's")
    dtype = np.dtype(into.dtype if into is not None else given.dtype if output is None else output).newbyteorder("=")
    rounding = options["rounding"]
    computed = computed_type(given.dtype.newbyteorder("="), dtype, rounding)
    if into is not None and into.shape != x.shape:
        raise ValueError(f"`output` has the shape {into.shape}, `input` {x.shape}")
    each_axis = filter_options(chosen, sigma, cval=cval, narrow=narrow, **options)
    if x.ndim == 0:
        raise ValueError("`input` has no axis")
    warn_of_sign([2] if kind == "laplace" else each_axis["order"], dtype, stacklevel=4)
    for part in [each_axis] if rounding != "scipy" or not is_long(dtype) else axis_by_axis(each_axis):
        # The array is in C order, since axes are filtered in turn and another order would round differently.
        x = _teatime.gaussian(c_order(x), kind, part, str(computed) if computed != x.dtype else "same", run_options(device))
        if part is not each_axis:
            np.trunc(x, out=x)
    result = of_type(x, dtype)
    if into is None:
        return as_given(result, input)  # type: ignore[no-any-return]
    into[...] = as_given(result, into) if on_card(into) else result.get() if isinstance(result, CudaArray) else result
    return into  # type: ignore[no-any-return]


def denoise_tv_chambolle(
    image: ArrayLike, weight: float = 0.1, eps: float = 2e-4, max_num_iter: int = 200, *, channel_axis: int | None = None,
    narrow: bool | None = None, device: Device | str | None = None,
) -> NDArray[Any]:
    """Removes noise and keeps edges, by total variation: :func:`skimage.restoration.denoise_tv_chambolle` with its arguments.

    Parameters
    ----------
    image
        One to three axes, besides that of channels. Integers are divided by the maximum of their type, as skimage does. float64 and
        integers of 32 and 64 bits are computed in float64, but see ``narrow``, and give float64; others are computed in float32, and give it
        (skimage's result for integers is float64). The result for an array in a GPU's memory is there too.
    weight
        The larger it is, the smoother is the result.
    eps, max_num_iter
        The iteration ends when the energy changes by less than ``eps`` of its first value, or after ``max_num_iter`` iterations. With an
        ``eps`` of 0 it always takes ``max_num_iter``.
    channel_axis
        The axis of channels, each of which is an image of its own.
    narrow, device
        As in :func:`teatime.svd`.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> noisy = np.array([0.1, -0.1, 0.1, -0.1, 1.1, 0.9, 1.1, 0.9])
    >>> teatime.denoise_tv_chambolle(noisy, weight=0.2).round(1)
    array([0. , 0. , 0.1, 0.1, 0.9, 0.9, 1. , 1. ])
    """
    given = given_array(image, "image", "denoise_tv_chambolle")
    x = as_array(given, "image", "denoise_tv_chambolle")
    if given.dtype.kind == "b":
        x = x.astype(np.float32)
    elif is_long(given.dtype):
        x = x / np.iinfo(given.dtype).max
    check_narrow(given, "image", narrow, device)
    device = device_of(device, image=x)
    channels = filtered_axes(channel_axis, x.ndim) if channel_axis is not None else []
    options = ([axis for axis in range(x.ndim) if axis not in channels], float(weight), float(eps), whole(max_num_iter, "max_num_iter"))
    in_f64 = x.dtype in WIDE and not narrows("image", x, narrow, device)
    result, _ = _teatime.denoise_tv(c_order(x), options, "float64" if in_f64 else "float32", run_options(device))
    if x.dtype in WIDE and not in_f64:
        result = result.astype(np.float64)
    return as_given(result, image)  # type: ignore[no-any-return]


def _of_parts(each: Callable[..., NDArray[Any]], x: NDArray[Any], output: Any, cval: complex) -> NDArray[Any]:
    """What ``each`` makes of the real and of the imaginary parts."""
    into = output if isinstance(output, np.ndarray) else np.empty(x.shape, x.dtype if output is None else output)
    if into.dtype.kind != "c" or into.shape != x.shape:
        kinds = f"{into.dtype} and {into.shape} for an input of {x.dtype} and {x.shape}"
        raise ValueError(f"`output` of {kinds}: it is complex, and of one shape")
    real = each(x.real, cval=np.real(cval))
    into.imag = each(x.imag, cval=np.imag(cval))
    into.real = real
    return into


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
