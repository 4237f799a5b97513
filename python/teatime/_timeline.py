"""Timelines: what each thread and each GPU did when, and what a computation waits for."""

from __future__ import annotations

import os
import uuid
from typing import Any

from . import _teatime
from ._arrays import whole

__all__ = ["Timeline"]

#: The recordings of this process that a client began, by the client's key.
_begun: dict[str, _teatime.Timeline] = {}


class Timeline:
    """Records what teatime does within a ``with`` block, on all threads of the process: chunks that are fetched and decoded, blocks that are
    converted and uploaded, kernels, waits, results that are written. A GPU's kernels have its own times, if it tells them: CUDA's do, and
    wgpu's with timestamps. Other times are the host's.

    Parameters
    ----------
    client
        A client of dask's ``distributed``: its workers record too, and the end of the block merges their recordings. Workers that start
        later do not record. The clocks of the machines order their times.
    events
        The newest so many events are kept, of each process; at least one.

    Examples
    --------
    >>> import numpy as np
    >>> from teatime import pairwise_distance
    >>> with Timeline() as timeline:
    ...     _ = pairwise_distance(np.ones((3, 4), np.float32), device="cpu")
    >>> timeline.write_report("run.html")  # doctest: +SKIP
    >>> timeline.bound()[:8]
    'bound by'
    """

    def __init__(self, client: Any = None, *, events: int = 1_000_000) -> None:
        self._client, self._key = client, uuid.uuid4().hex
        self._events = whole(events, "events")
        self._recording = _teatime.Timeline(self._events)
        self._is_used = False

    def __enter__(self) -> Timeline:
        if self._is_used:
            raise RuntimeError("a Timeline records once; make another one")
        self._is_used = True
        if self._client is not None:
            self._client.run(_begin, self._key, self._events)
        self._recording.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._recording.exit()
        merged = {} if self._client is None else self._client.run(_end, self._key)
        for process, recorded in merged.items():
            self._recording.merge(process, recorded)

    def bound(self) -> str:
        """A sentence on what took the time, such as "bound by decode: 71 % of 2 threads"."""
        return self._recording.bound()

    def events(self) -> tuple[int, int]:
        """The number of events that are kept, and of older ones that were dropped."""
        return self._recording.events()

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for ui.perfetto.dev or chrome://tracing, which replaces an existing one."""
        self._recording.write_trace(os.fspath(path))

    def write_report(self, path: str | os.PathLike[str], title: str = "teatime") -> None:
        """Writes a page of HTML that opens in any browser and needs no other file, which replaces an existing one."""
        self._recording.write_report(os.fspath(path), title)


def _begin(key: str, events: int) -> None:
    """Begins a recording on a worker."""
    _begun.setdefault(key, _teatime.Timeline(events)).enter()


def _end(key: str) -> bytes:
    """Ends the recording of a worker, and returns it; an empty one where it had not begun, or another worker of the process has it."""
    recording = _begun.pop(key, None) or _teatime.Timeline(1)
    recording.exit()
    return recording.to_bytes()
