"""Functions of pipelines that choose where they run by arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ._arrays import NATIVE, on_card, on_host

_F = TypeVar("_F", bound=Callable[..., Any])


def _kernels() -> dict[tuple[str, str], Callable[..., Any]]:
    """What takes the place of a function, by its module and name."""
    from ._filter import gaussian_filter as ours

    # Integers are rounded as the function that it takes the place of does.
    gaussian_filter = functools.partial(ours, rounding="scipy")
    return {
        ("scipy.ndimage", "gaussian_filter"): gaussian_filter,
        ("cupyx.scipy.ndimage", "gaussian_filter"): gaussian_filter,
    }


def _kernel(function: Callable[..., Any]) -> Callable[..., Any] | None:
    module, name = getattr(function, "__module__", "") or "", getattr(function, "__name__", "")
    found = [kernel for (of, named), kernel in _kernels().items() if named == name and module.startswith(of)]
    return found[0] if found else None


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
        place = _place(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            output = _output(args, kwargs, place)
            # What is to be filled on a GPU, the function fills.
            if kernel is None or _card(output) is not None:
                on, named = _moved(args, input_device), _moved(kwargs, input_device)
                result, filled = function(*on, **named), _output(on, named, place)
                if _is_array(output) and filled is not output:
                    _fill(output, filled)
                    result = output if result is filled else result
                return _moved(result, output_device)
            # Of the host's memory, the device is where kernels compute; what is in a GPU's stays, or moves to another.
            device = {} if input_device is None else {"device": input_device}
            # Of types that kernels take from the host alone, as bool, arrays go there and back.
            to = input_device if _are_taken([args, kwargs]) else "cpu"
            on, named = _moved(args, to, arrays=False), _moved(kwargs, to, arrays=False)
            result = kernel(*on, **named, **device)
            leaves = (input_device or _card([args, kwargs])) if on_cards or to != input_device else None
            return _moved(result, output_device or leaves)

        return call  # type: ignore[return-value]

    return wrap


def _place(function: Callable[..., Any]) -> int | None:
    """Which of the positional arguments is `output`, if one is."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # as of some compiled functions
        return None
    return names.index("output") if "output" in names else None


def _output(args: Any, kwargs: dict[str, Any], place: int | None) -> Any:
    return kwargs.get("output") if place is None or place >= len(args) else args[place]


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or on_card(value)


def _fill(output: Any, found: Any) -> None:
    """Copies an array into another, on whatever devices they are."""
    card = _card(output)
    if card is None:
        output[...] = _moved(found, "cpu")
        return
    import cupy

    with cupy.cuda.Device(int(card.partition(":")[2])):
        output[...] = cupy.asarray(found)


def sync(*arrays: Any) -> None:
    """Waits until what computes these arrays has ended. NumPy arrays are always there."""
    for array in arrays:
        if on_card(array) and hasattr(array.device, "synchronize"):
            array.device.synchronize()


def _card(value: Any) -> str | None:
    """The GPU that the first array in ``value`` is on, if one is."""
    if isinstance(value, (list, tuple, dict)):
        items = value.values() if isinstance(value, dict) else value
        return next((found for item in items if (found := _card(item)) is not None), None)
    if not on_card(value):
        return None
    device = getattr(value, "device", None)
    # Ours, CuPy's and PyTorch's.
    return device if isinstance(device, str) else f"cuda:{getattr(device, 'id', getattr(device, 'index', 0))}"


def _are_taken(value: Any) -> bool:
    """Whether all arrays on GPUs are of types that kernels take there."""
    if isinstance(value, (list, tuple, dict)):
        return all(_are_taken(item) for item in (value.values() if isinstance(value, dict) else value))
    return not on_card(value) or not isinstance(value.dtype, np.dtype) or value.dtype in NATIVE


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
        return _to_cuda(value, device) if arrays and device != "cpu" else value
    if on_card(value):
        if device == "cpu":
            return on_host(value, "input", "adapter")
        return _to_cuda(value, device)
    return value


def _to_cuda(value: Any, device: str) -> Any:
    import cupy

    with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
        return cupy.asarray(value)
