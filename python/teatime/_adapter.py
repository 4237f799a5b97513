"""Functions of pipelines that choose where they run by arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from ._arrays import NATIVE, on_card, on_host, parameters
from ._cuda import cupy_array
from ._filter import gaussian_filter

_F = TypeVar("_F", bound=Callable[..., Any])


def _kernel(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Our function that takes the place of another, if one does."""
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__name__", "")
    if name != "gaussian_filter" or not module.startswith(("scipy.ndimage", "cupyx.scipy.ndimage")):
        return None
    # Integers are rounded like those of the function that is replaced.
    return functools.partial(gaussian_filter, rounding="scipy")


def adapter(input_device: str | None = None, output_device: str | None = None) -> Callable[[_F], _F]:
    """Makes a function run on one device and give its results on another.

    Array arguments, in lists, tuples and dictionaries too, move to ``input_device``, or stay where they are if it is None. Arrays among
    the results come out on ``output_device``, or where the function leaves them if it is None. An array that the caller hands over as
    ``output`` is filled, wherever it is. Everything else is untouched. A function that teatime has a kernel of
    (``scipy.ndimage.gaussian_filter``) runs as that, on the input device; another runs as it is.

    Parameters
    ----------
    input_device, output_device
        ``"cpu"`` for NumPy arrays, ``"cuda"`` or ``"cuda:N"`` for CuPy arrays.

    Examples
    --------
    >>> import numpy as np, scipy.ndimage, teatime
    >>> blur = teatime.adapter(input_device="cpu", output_device="cpu")(scipy.ndimage.gaussian_filter)
    >>> blur(np.array([0.0, 4.0, 0.0]), sigma=1, radius=1).round(2)
    array([1.1 , 1.81, 1.1 ])
    """

    def wrap(function: _F) -> _F:
        kernel = _kernel(function)
        on_cards = (getattr(function, "__module__", "") or "").startswith("cupyx")
        names = parameters(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            output = _output(args, kwargs, names)
            # A function without a kernel runs as it is, and so does one that fills an array of a GPU.
            if kernel is None or _card(output) is not None:
                on, named = _moved(args, input_device), _moved(kwargs, input_device)
                result, filled = function(*on, **named), _output(on, named, names)
                if (isinstance(output, np.ndarray) or on_card(output)) and filled is not output:
                    _fill(output, filled)
                    result = output if result is filled else result
                return _moved(result, output_device)
            # Kernels compute on the device if arrays are in the host's memory. Arrays of a GPU stay there, or move to another GPU.
            device = {} if input_device is None else {"device": input_device}
            # Kernels take some types, such as bool, from the host alone. Their arrays move to the host and back.
            others = (leaf.dtype for leaf in _leaves([args, kwargs]) if on_card(leaf))
            to = input_device if all(not isinstance(dtype, np.dtype) or dtype in NATIVE for dtype in others) else "cpu"
            on, named = _moved(args, to, arrays=False), _moved(kwargs, to, arrays=False)
            result = kernel(*on, **named, **device)
            stays = (input_device or _card([args, kwargs])) if on_cards or to != input_device else None
            return _moved(result, output_device or stays)

        return call  # type: ignore[return-value]

    return wrap


def _output(args: Any, kwargs: dict[str, Any], names: list[str]) -> Any:
    """The argument `output` of a function whose parameters have these names, if there is one."""
    return {**kwargs, **dict(zip(names, args))}.get("output")


def _fill(output: Any, filled: Any) -> None:
    """Copies an array into another, on whatever devices they are."""
    card = _card(output)
    if card is None:
        output[...] = _moved(filled, "cpu")
        return
    import cupy

    with cupy.cuda.Device(int(card.partition(":")[2])):
        output[...] = cupy.asarray(filled)


def sync(*arrays: Any) -> None:
    """Waits until what computes these arrays has ended. NumPy arrays are always there."""
    for array in arrays:
        if on_card(array) and hasattr(array.device, "synchronize"):
            array.device.synchronize()


def _leaves(value: Any) -> Iterator[Any]:
    """The values in lists, tuples and dictionaries."""
    if not isinstance(value, (list, tuple, dict)):
        yield value
        return
    for item in value.values() if isinstance(value, dict) else value:
        yield from _leaves(item)


def _card(value: Any) -> str | None:
    """The GPU that the first array in ``value`` is on, if one is."""
    array = next((leaf for leaf in _leaves(value) if on_card(leaf)), None)
    device = getattr(array, "device", None)
    # The array is ours, CuPy's or PyTorch's.
    return device if array is None or isinstance(device, str) else f"cuda:{getattr(device, 'id', getattr(device, 'index', 0))}"


def _moved(value: Any, device: str | None, *, arrays: bool = True) -> Any:
    """``value`` with its arrays on a device; those of NumPy stay unless ``arrays``."""
    if device is None:
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device, arrays=arrays) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device, arrays=arrays) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, device, arrays=arrays) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return cupy_array(value, device) if arrays and device != "cpu" else value
    if not on_card(value):
        return value
    return on_host(value, "input", "adapter") if device == "cpu" else cupy_array(value, device)
