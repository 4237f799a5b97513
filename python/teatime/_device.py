"""Devices."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ._arrays import integers_as_float32, whole
from ._teatime import CudaArray, Device, devices

__all__ = ["Device", "check_narrow", "devices", "narrows", "run_options"]


def _reopen(name: str, threads: int | None) -> Device:
    """A pickled device, in another process or on another machine."""
    return Device(name, threads=threads)


def opened_device(device: Device | str | None) -> Device:
    """The device of that name, or the fastest."""
    if isinstance(device, Device):
        return device
    if device is not None and not isinstance(device, str):
        raise TypeError(f"`device` is a teatime.Device, its name, or None, not {device!r}")
    return Device(device)


def check_narrow(given: NDArray[Any], name: str, narrow: bool | None, device: Device | str | None) -> None:
    """ValueError for integers that would change in float32, where a device computes in it that has no float64 and nobody asked for it."""
    # A GPU that has arrays in its memory has float64.
    if narrow is not None or isinstance(given, CudaArray) or given.dtype.kind not in "iu" or given.dtype.itemsize < 4:
        return
    device = opened_device(device)
    if not device.f64:
        integers_as_float32(given, name, f": {device.name} has no float64. narrow=True rounds them")


def narrows(name: str, given: Any, narrow: bool | None, device: Device | str | None) -> bool:
    """Whether what float32 does not hold is computed in it. ValueError where the device has no float64 and ``narrow`` is False."""
    # A GPU that has arrays in its memory has float64.
    if narrow is True or isinstance(given, CudaArray):
        return narrow is True
    opened = opened_device(device)
    if narrow is False and not opened.f64:
        raise ValueError(f"`narrow` of False: {opened.name} has no float64, in which `{name}` of {given.dtype} is computed")
    return not opened.f64


def run_options(device: Device | str | None = None, progress: Any = None, memory: int | str | None = None) -> dict[str, Any]:
    """The options of a call, as the compiled part takes them. ``progress`` is called as ``progress(done, total)``, with how much of the
    work is done; an object with ``update`` and ``total``, such as a tqdm bar, is advanced by these. The total is of the passes that there
    may be; it is reached where fewer were needed too."""
    if progress is not None:
        progress = _Progress(progress)
    if memory is not None and not isinstance(memory, str):
        memory = whole(memory, "memory", most=2**64 - 1)
    return {"device": device, "progress": progress, "memory": memory}


class _Progress:
    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self.done = 0

    def __call__(self, pass_: int, passes: int, rows: int, total: int) -> None:
        before, self.done = self.done, max(self.done, pass_ * total + rows)
        total = max(self.done, passes * total)
        if hasattr(self.callback, "update") and hasattr(self.callback, "total"):
            self.callback.total = total
            self.callback.update(self.done - before)
        else:
            self.callback(self.done, total)
