#!/usr/bin/env python3
"""PCA with dask's `svd_compressed`, as its users write it. Prints one JSON line; time it from outside."""

import argparse
import json

import dask
import dask.array as da


def patterson(calls, dtype, ploidy=2):
    x = calls.sum(2).astype(dtype)
    mean = x.mean(1, keepdims=True)
    p = mean / ploidy
    scale = da.sqrt(p * (1 - p))
    # Monomorphic variants would be 0/0, and one NaN loses the whole result.
    return da.where(scale > 0, (x - mean) / da.where(scale > 0, scale, 1), 0)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("store")
    p.add_argument("--k", type=int, default=10)
    p.add_argument("--power-iterations", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--seeds", type=int, help="this many seeds, a line each, the matrix kept in memory")
    p.add_argument("--separately", action="store_true", help="three computes: the work is done thrice")
    # dask makes f8 of integers by default. sgkit asks for f4.
    p.add_argument("--dtype", choices=["f4", "f8"], default="f8")
    p.add_argument("--store-chunks", type=int, default=1, help="chunks of the store in one dask chunk")
    a = p.parse_args()

    x = da.from_zarr(a.store, component="call_genotype")
    if a.store_chunks > 1:
        rows, *rest = x.chunksize
        x = da.from_zarr(a.store, component="call_genotype", chunks=(rows * a.store_chunks, *rest))
    x = patterson(x, a.dtype)

    def svd(seed):
        return da.linalg.svd_compressed(x, a.k, n_power_iter=a.power_iterations, seed=seed)

    if a.seeds:
        x = x.persist()
        for seed in range(a.seed, a.seed + a.seeds):
            print(json.dumps({"seed": seed, "singular_values": svd(seed)[1].compute().tolist()}), flush=True)
    else:
        u, s, v = svd(a.seed)
        if a.separately:
            s, v, u = s.compute(), v.compute(), u.compute()
        else:
            u, s, v = dask.compute(u, s, v)
        print(json.dumps({"singular_values": s.tolist(), "components": v.tolist(), "shape": [*u.shape, *v.shape]}))


if __name__ == "__main__":
    main()
