#!/usr/bin/env python3
"""numpy's `x.T @ x` of the standardised f32 matrix of a store, already in memory: the seconds of each product, as JSON.

    python grm_numpy.py STORE [--method gcta|vanraden1] [--reference FILE.npy]

--reference also writes the relationships in f64, made from f64. Missing calls become the mean.
"""

import argparse
import json
import os
import time

# OpenBLAS reads this variable when numpy loads it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("THREADS", "2"))

import numpy as np
import zarr


def blocks(store):
    """Dosages of the non-reference alleles in f64, NaN where missing, a chunk of variants at a time."""
    calls = zarr.open_group(store, mode="r")["call_genotype"]
    for first in range(0, calls.shape[0], calls.chunks[0]):
        g = calls[first : first + calls.chunks[0]]
        yield np.where((g < 0).any(2), np.nan, (g > 0).sum(2))


def standardise(d, method):
    """The matrix whose products are the relationships, and 2p(1 - p) of each variant."""
    called = (~np.isnan(d)).sum(axis=1, keepdims=True)
    mean = np.nansum(d, axis=1, keepdims=True) / np.maximum(called, 1)
    variance = mean * (1 - mean / 2)
    x = np.nan_to_num(d - mean)
    if method == "gcta":
        x = np.divide(x, np.sqrt(variance), out=np.zeros_like(x), where=variance > 0)
    return x, variance


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("store")
    p.add_argument("--method", choices=["gcta", "vanraden1"], default="gcta")
    p.add_argument("--products", type=int, default=5)
    p.add_argument("--reference")
    a = p.parse_args()
    parts, total, exact = [], 0.0, 0.0
    for d in blocks(a.store):
        x, variance = standardise(d, a.method)
        total += len(d) if a.method == "gcta" else variance.sum()
        if a.reference:
            exact = exact + x.T @ x
        parts.append(x.astype("f4"))
    if a.reference:
        np.save(a.reference, exact / total)
    x = np.concatenate(parts)
    del parts
    x.T @ x
    seconds = []
    for _ in range(a.products):
        start = time.perf_counter()
        x.T @ x
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "shape": x.shape}))


if __name__ == "__main__":
    main()
