"""Arrays in the memory of a GPU: those of CuPy, PyTorch, Numba and others that have ``__cuda_array_interface__`` or DLPack, and our own."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from numpy.typing import ArrayLike

from ._arrays import as_array, c_order, host_array, library, on_card
from ._device import Device, run_options
from ._teatime import CudaArray
from ._teatime import to_cuda as _to_cuda

__all__ = ["CudaArray", "as_given", "cupy_array", "device_of", "given_array", "on_card", "to_cuda"]


def cupy_array(x: Any, device: str) -> Any:
    """``x`` as CuPy has it, on the GPU of that name."""
    cupy = import_module("cupy")
    # CuPy copies an array of another GPU than the current one.
    with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
        return cupy.asarray(x)


#: Functions that make a library's array of one of ours. The array keeps the memory.
_ARRAYS: dict[str, Callable[[CudaArray], Any]] = {
    "cupy": lambda card: cupy_array(card, card.device),
    "torch": lambda card: import_module("torch").as_tensor(card, device=card.device),
    "numba": lambda card: import_module("numba.cuda").as_cuda_array(card),
    "jax": lambda card: import_module("jax.dlpack").from_dlpack(card),
    "jaxlib": lambda card: import_module("jax.dlpack").from_dlpack(card),
}


def given_array(x: Any, name: str, instead: str) -> Any:
    """``x`` as NumPy has it; or where it is, if that is the memory of a GPU. TypeError as of :func:`host_array`."""
    if isinstance(x, CudaArray):
        return x
    if not on_card(x):
        return host_array(x, name, instead)
    if library(x) == "cupy":
        cupy = import_module("cupy")
        with cupy.cuda.Device(x.device.id):
            x = cupy.ascontiguousarray(x)
    elif library(x) == "torch":
        x = x.detach().contiguous()
        # The tensor's interface does not say which stream fills it.
        import_module("torch").cuda.current_stream(x.device).synchronize()
    return CudaArray._of(x, name)


def device_of(device: Device | str | None, **arrays: Any) -> Device | str | None:
    """Where arrays are computed: where they are, if that is the memory of a GPU. ValueError where ``device`` is another one."""
    cards = {name: a.device for name, a in arrays.items() if isinstance(a, CudaArray)}
    if not cards:
        return device
    name, card = next(iter(cards.items()))
    others = [other for other, a in arrays.items() if a is not None and cards.get(other) != card]
    if others:
        raise ValueError(f"`{name}` is in the memory of {card}, and `{others[0]}` is not")
    if device is None:
        return card
    opened = device if isinstance(device, Device) else Device(device)
    if opened.name != card:
        raise ValueError(f"`{name}` is in the memory of {card}, and `device` is {opened.name}")
    return opened


def as_given(result: Any, like: Any, on: Device | str | None = None) -> Any:
    """A result where the argument ``like`` is: on its GPU, which is ``on``, as an array of its library, or on the host."""
    if not on_card(like):
        return result
    card = result if isinstance(result, CudaArray) else _to_cuda(c_order(result), run_options(on or given_array(like, "output", "").device))
    of_library = _ARRAYS.get(library(like))
    return of_library(card) if of_library else card


def to_cuda(x: ArrayLike, device: Device | str = "cuda:0") -> CudaArray:
    """Copies an array to the memory of a CUDA GPU, where other functions then take it from.

    What they give for it is there too: arrays that stay on the GPU between calls are not copied to it again.
    Arrays of CuPy, PyTorch and Numba are taken where they are, without this.

    Parameters
    ----------
    x
        Of floats, integers, of which those of 64 bits become float64, or bool, which becomes uint8.
    device
        A :class:`Device`, or its name. ValueError where it is no CUDA GPU.

    Returns
    -------
    CudaArray
        ``get()`` gives NumPy's; it has ``__cuda_array_interface__`` and DLPack for other libraries, ``shape``, ``dtype``, ``ndim`` and ``device``.

    Examples
    --------
    >>> import numpy as np, teatime
    >>> x = teatime.to_cuda(np.eye(3, dtype="f4"))
    >>> teatime.pairwise_distance(x, metric="cityblock")
    teatime.CudaArray((3, 3), float32, "cuda:0")
    >>> teatime.pairwise_distance(x, metric="cityblock").get()
    array([[0., 2., 2.],
           [2., 0., 2.],
           [2., 2., 0.]], dtype=float32)
    """
    opened = device if isinstance(device, Device) else Device(device)
    if opened.backend != "cuda":
        raise ValueError(f"`device` is {opened.name}, which is no CUDA GPU")
    return _to_cuda(c_order(as_array(x, "x", "to_cuda")), run_options(opened))
