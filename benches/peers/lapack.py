#!/usr/bin/env python3
"""The reference: singular values of the Patterson-scaled genotypes by LAPACK in f64.

    python lapack.py STORE OUT_PREFIX

Writes `OUT_PREFIX.npy` (the 40 largest singular values) and `OUT_PREFIX.vectors.npy` (samples x 10).
The Gram matrix of the samples is summed block by block, so memory is one block plus samples squared. Its
eigenvalues carry an error of about 1e-16 of the largest: far below what is compared against them.
"""

import argparse
import json

import numpy as np
import zarr


def standardized_blocks(path, block=8000):
    """Blocks of (variants, samples) in f64: (x - mean) / sqrt(p (1 - p)), monomorphic variants left out."""
    calls = zarr.open(path, mode="r")["call_genotype"]
    for start in range(0, calls.shape[0], block):
        g = calls[start : start + block]
        if (g < 0).any():
            raise SystemExit("this reference has no rule for missing calls; the fixtures have")
        x = (g > 0).sum(2).astype("f8")
        mean = x.mean(1, keepdims=True)
        p = mean / g.shape[2]
        keep = ((p > 0) & (p < 1))[:, 0]
        yield (x[keep] - mean[keep]) / np.sqrt(p[keep] * (1 - p[keep]))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("store")
    p.add_argument("out")
    a = p.parse_args()
    gram, used = 0, 0
    for x in standardized_blocks(a.store):
        gram = gram + x.T @ x
        used += len(x)
    values, vectors = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(values[::-1], 0))
    np.save(f"{a.out}.npy", s[:40])
    np.save(f"{a.out}.vectors.npy", np.ascontiguousarray(vectors[:, ::-1][:, :10]))
    print(json.dumps({"singular_values": s[:10].tolist(), "variants_used": used}))


if __name__ == "__main__":
    main()
