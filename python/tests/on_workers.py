"""What tests have workers do: in a module of its own, so that workers import no test."""

import contextlib
import os
import signal
from pathlib import Path

import dask
from distributed import WorkerPlugin


class Killer(WorkerPlugin):
    """Kills so many of the workers that there were, where a task ends that has a name."""

    name = "killer"

    def __init__(self, folder, task, pids, count):
        self.folder, self.task, self.pids, self.count = folder, task, pids, count

    def setup(self, worker):
        # A worker tries for this long to fetch from one that was killed, by default 30 s. The setting must be made when the worker starts.
        dask.config.set({"distributed.comm.timeouts.connect": "2s"})

    def transition(self, key, start, finish, **_):
        if (start, finish) != ("executing", "memory") or self.task not in str(key) or os.getpid() not in self.pids:
            return
        for place in range(self.count):
            with contextlib.suppress(FileExistsError):
                with Path(self.folder, str(place)).open("x") as told:
                    told.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)


class Meanwhile(WorkerPlugin):
    """The most of our tasks that a worker had at once."""

    name = "meanwhile"

    def __init__(self):
        self.now, self.most = set(), 0

    def transition(self, key, start, finish, **_):
        if "teatime-" in str(key):
            (self.now.add if finish == "executing" else self.now.discard)(key)
            self.most = max(self.most, len(self.now))


def most_at_once(dask_worker):
    return dask_worker.plugins[Meanwhile.name].most


def threads():
    from teatime import _worker

    return _worker.device("cpu").threads, os.environ["OMP_NUM_THREADS"]
