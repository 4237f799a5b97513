#!/usr/bin/env python3
"""teatime.dask beside dask, dask-image and sgkit's way, in turn on one LocalCluster of two processes: seconds, and peak memory of workers.

    python cluster.py --data DATA [--teatime PROGRAM] [--rounds 5] [--only pca,distance,gaussian,call]

DATA has big.vcz of make_store.py. The Python has teatime's wheel, dask, distributed and zarr; dask-image for the Gaussians; and sgkit, which
wants dask, zarr and numpy of 2024, where that is to be timed: 70 s and more for each distance.
"""

import argparse
import contextlib
import importlib
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import blas
import dask.array as da
import numpy as np
import teatime
import teatime.dask as td
from dask.distributed import Client, LocalCluster
from dask_svd import patterson

warnings.filterwarnings("ignore", message="teatime: rechunked")


def calls_of(store, rows):
    calls = da.from_zarr(store, component="call_genotype")
    return da.from_zarr(store, component="call_genotype", chunks=(rows, *calls.shape[1:]))


def pca_jobs(store, program):
    def dask_svd(rows):
        return lambda: da.compute(*da.linalg.svd_compressed(patterson(calls_of(store, rows), "f4"), 10, n_power_iter=2, seed=0))[1]

    def command():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([program, "pca", store, "--out", f"{folder}/out", "--method", "exact"], check=True, capture_output=True)

    jobs = {
        "dask svd_compressed, 10,000 rows a chunk": dask_svd(10_000),
        "teatime.dask.pca, blocks of 8,192 rows": lambda: td.pca(calls_of(store, 8192), 10, compute=True),
        "teatime.dask.pca, blocks of 10,000 rows": lambda: td.pca(calls_of(store, 10_000), 10, compute=True),
        "teatime.dask.pca, store": lambda: td.pca(store, 10, compute=True),
        "teatime.dask.pca, store, randomized": lambda: td.pca(store, 10, method="randomized", n_iter=2, compute=True),
        "dask reading and adding ploidy": lambda: calls_of(store, 10_000).sum(2).sum().compute(),
    }
    if program:
        jobs["teatime pca, the program"] = command
    return jobs


def distance_jobs(store):
    def dosages(calls):
        first, second = np.moveaxis(calls, 2, 0)
        return np.where((first < 0) | (second < 0), -1, (first > 0).astype(np.int8) + (second > 0)).astype(np.int8)

    def ours(metric):
        x = calls_of(store, 20_000).map_blocks(dosages, drop_axis=2, dtype=np.int8).T
        return lambda: td.pairwise_distance(x, metric, missing="ignore", negative=True, compute=True)

    def of_store(metric):
        return lambda: td.pairwise_distance(store, metric, compute=True)

    def of_sgkit(metric):
        x = calls_of(store, 20_000).map_blocks(dosages, drop_axis=2, dtype=np.int8).T
        return lambda: sgkit.pairwise_distance(x, metric).compute()

    metrics = ("euclidean", "correlation")
    try:
        import sgkit
    except ImportError:
        peers = {}
    else:
        peers = {f"sgkit pairwise_distance, {metric}": of_sgkit(metric) for metric in metrics}
    blocks = {f"teatime.dask.pairwise_distance, {metric}, blocks": ours(metric) for metric in metrics}
    return peers | blocks | {f"teatime.dask.pairwise_distance, {metric}, store": of_store(metric) for metric in metrics}


def gaussian_jobs(folder):
    import dask_image.ndfilters

    volume = np.random.default_rng(0).random((50, 1104, 1104), dtype=np.float32)
    path = str(Path(folder) / "volume.zarr")
    da.from_array(volume, chunks=(50, 276, 276)).to_zarr(path, overwrite=True)
    x = da.from_zarr(path)

    def run(filtered):
        # The filter is timed, so each block returns only its largest number.
        return lambda: filtered().max().compute()

    return {
        "dask-image gaussian_filter": run(lambda: dask_image.ndfilters.gaussian_filter(x, 3)),
        "teatime.dask.gaussian_filter, blocks": run(lambda: td.gaussian_filter(x, 3)),
        "teatime.dask.gaussian_filter, store": run(lambda: td.gaussian_filter(path, 3)),
        "an identity map_overlap": run(lambda: da.map_overlap(_same, x, depth=12, boundary="reflect", dtype=x.dtype)),
    }


def _same(block):
    return block


def call_jobs():
    """What a call of a function on one megabyte takes beyond its kernel: the same on a few bytes."""
    megabyte, little = np.zeros((512, 512), np.float32), np.zeros((2, 2), np.float32)

    def times(array):
        def run():
            for _ in range(100):
                teatime.gaussian_filter(array, 1.0, device="cpu")

        return run

    return {"100 calls of gaussian_filter on 1 MB": times(megabyte), "100 calls on 16 bytes": times(little)}


def peak():
    """Most megabytes of this process: not by getrusage, which counts what its parent had."""
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024


@contextlib.contextmanager
def workers():
    """A cluster of two processes that have imported what jobs need."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.run(_imported)
        yield client


def measure(jobs, rounds, clustered=True):
    seconds = {name: [] for name in jobs}
    peaks = dict.fromkeys(jobs, 0.0)
    for round_ in range(rounds + 1):
        for name, job in jobs.items():
            # Workers are new, so that the peak of memory is the job's. Imports are not timed.
            with workers() if clustered else contextlib.nullcontext() as client:
                started = time.perf_counter()
                job()
                spent = time.perf_counter() - started
                if round_:
                    seconds[name].append(spent)
                if client is not None:
                    peaks[name] = max(peaks[name], *client.run(peak).values())
    for name, all_ in seconds.items():
        print(json.dumps({"job": name, "median": round(statistics.median(all_), 4), "least": round(min(all_), 4), "peak_MB_of_a_worker": round(peaks[name])}), flush=True)


def _imported():
    for name in ("dask_image.ndfilters", "sgkit", "zarr", "teatime.dask"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    teatime._worker.device(None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="data")
    parser.add_argument("--teatime", help="the program, to be timed too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="pca,distance,gaussian,call")
    args = parser.parse_args()
    print(json.dumps({"blas": blas.loaded()}), flush=True)
    store = str(Path(args.data, "big.vcz").resolve())
    wanted = args.only.split(",")
    with tempfile.TemporaryDirectory() as folder:
        if "pca" in wanted:
            measure(pca_jobs(store, args.teatime), args.rounds)
        if "distance" in wanted:
            measure(distance_jobs(store), args.rounds)
        if "gaussian" in wanted:
            with workers():
                jobs = gaussian_jobs(folder)
            measure(jobs, args.rounds)
    if "call" in wanted:
        measure(call_jobs(), args.rounds, clustered=False)


if __name__ == "__main__":
    main()
