#!/usr/bin/env python3
"""GFLOP/s of numpy's f32 matmul: squares, and the tall-times-thin products of a randomized SVD. One JSON line."""

import argparse
import json
import os
import statistics
import time

# OpenBLAS reads this variable when numpy loads it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import blas
import numpy as np

SHAPES = [  # (m, k, n, layout): nn is A[m,k] @ B[k,n], tn is A[k,m].T @ B[k,n]
    (1024, 1024, 1024, "nn"),
    (2048, 2048, 2048, "nn"),
    (165_000, 1000, 20, "nn"),
    (1000, 165_000, 20, "tn"),
    (4096, 1000, 20, "nn"),
    (1000, 4096, 20, "tn"),
]


def gflops(m, k, n, layout, seconds):
    rng = np.random.default_rng(0)
    a = rng.random((k, m) if layout == "tn" else (m, k), dtype="f4")
    b = rng.random((k, n), dtype="f4")
    c = np.empty((m, n), dtype="f4")
    a = a.T if layout == "tn" else a
    for _ in range(2):
        np.matmul(a, b, out=c)
    times, end = [], time.perf_counter() + seconds
    while len(times) < 7 or time.perf_counter() < end:
        start = time.perf_counter()
        np.matmul(a, b, out=c)
        times.append(time.perf_counter() - start)
    return 2e-9 * m * k * n / statistics.median(times)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--seconds", type=float, default=1.0, help="per shape; at least seven products are timed")
    a = p.parse_args()
    result = {"blas": blas.loaded()}
    for m, k, n, layout in SHAPES:
        result[f"{layout} {m}x{k}x{n}"] = round(gflops(m, k, n, layout, a.seconds), 1)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
