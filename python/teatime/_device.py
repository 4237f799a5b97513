"""Devices."""

from __future__ import annotations

from typing import Any

from ._teatime import Device, devices

__all__ = ["Device", "devices", "told"]


def _reopen(name: str, threads: int | None) -> Device:
    """A pickled device, in another process or on another machine."""
    return Device(name, threads=threads)


def told(progress: Any = None, memory: int | None = None, device_memory: int | None = None) -> dict[str, Any]:
    """What a caller says about a long call, as the compiled part takes it.

    ``progress`` is called as ``progress(done, total)``, with how much of the work is done; an object with ``update`` and ``total``, such
    as a tqdm bar, is told by these.
    """
    if progress is not None:
        progress = _Progress(progress)
    return {"progress": progress, "memory": memory, "device_memory": device_memory}


class _Progress:
    def __init__(self, told: Any) -> None:
        self.told = told
        self.done = 0

    def __call__(self, pass_: int, passes: int, rows: int, total: int) -> None:
        done, all_ = pass_ * total + rows, passes * total
        if hasattr(self.told, "update") and hasattr(self.told, "total"):
            self.told.total = all_
            self.told.update(max(0, done - self.done))
            self.done = max(self.done, done)
        else:
            self.told(done, all_)
