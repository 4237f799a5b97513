#!/usr/bin/env python3
"""PCA with scikit-allel's `randomized_pca`, all in memory. Prints one JSON line; time it from outside."""

import argparse
import json

import allel
import numpy as np
import zarr


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("store")
    p.add_argument("--k", type=int, default=10)
    p.add_argument("--iterations", type=int, default=3, help="scikit-allel's own default is 3")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    calls = zarr.open(a.store, mode="r")["call_genotype"]
    x = np.empty(calls.shape[:2], dtype="f4")  # not integers: scikit-allel would make float16 of them
    for start in range(0, len(x), 10_000):
        x[start : start + 10_000] = allel.GenotypeArray(calls[start : start + 10_000]).to_n_alt(fill=0)
    x = x[x.max(1) > x.min(1)]  # it divides by zero on the others
    coordinates, model = allel.randomized_pca(
        x, n_components=a.k, copy=False, iterated_power=a.iterations, scaler="patterson", random_state=a.seed
    )
    s = np.sqrt(model.explained_variance_ * x.shape[1])
    print(json.dumps({"singular_values": s.tolist(), "components": coordinates.T.tolist()}))


if __name__ == "__main__":
    main()
