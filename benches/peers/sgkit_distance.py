"""Seconds of sgkit's pairwise_distance: dosages of a bio2zarr store by dask, missing calls as -1.

    python sgkit_distance.py STORE METRIC [--rows ROWS] [--columns SAMPLES]
"""

import argparse
import json
import time

import dask
import dask.array as da
import numpy as np
from sgkit.distance.api import pairwise_distance


def dosages(calls):
    first, second = np.moveaxis(calls, 2, 0)
    return np.where((first < 0) | (second < 0), -1, (first > 0).astype(np.int8) + (second > 0)).astype(np.int8)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("store")
    p.add_argument("metric", choices=["euclidean", "correlation"])
    p.add_argument("--rows", type=int, default=20_000, help="variants of a chunk")
    p.add_argument("--columns", type=int, default=500, help="samples of a chunk")
    p.add_argument("--limit", type=int, help="the first variants alone")
    p.add_argument("--out", help="where to save the matrix")
    a = p.parse_args()
    # A first call compiles the functions of numba, which is not timed.
    warm = da.zeros((4, 4), chunks=2, dtype=np.int8)
    pairwise_distance(warm, metric=a.metric).compute()
    started = time.perf_counter()
    calls = da.from_zarr(a.store, component="call_genotype")[: a.limit]
    x = calls.map_blocks(dosages, drop_axis=2, dtype=np.int8).T.rechunk((a.columns, a.rows))
    with dask.config.set(num_workers=2):
        result = pairwise_distance(x, metric=a.metric).compute(scheduler="threads")
    print(json.dumps({"seconds": time.perf_counter() - started, "first": float(result[0, 1])}))
    if a.out:
        np.save(a.out, result)


if __name__ == "__main__":
    main()
