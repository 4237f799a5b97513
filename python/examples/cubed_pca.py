"""Singular values of a Zarr array of numbers on Cubed, in bounded memory: products of blocks, and their sum.

    python cubed_pca.py matrix.zarr
"""

import argparse

import cubed
import cubed.array_api as xp
import numpy as np

from teatime import blocks


def part(block, x):
    """A block's part of the product, as a row."""
    return blocks.normal_product(block, x).reshape(1, -1)


def svd(a, n_components, **options):
    """The rounds of a Cubed array, which is in one chunk along its columns."""
    if a.numblocks[1] > 1:
        a = a.rechunk((a.chunksize[0], a.shape[1]))
    rounds = blocks.Rounds(a.shape, n_components, **options)
    while (x := rounds.wanted()) is not None:
        parts = cubed.map_blocks(part, a, dtype=np.float64, chunks=((1,) * a.numblocks[0], (x.size,)), x=x)
        rounds.add(xp.sum(parts, axis=0).compute().reshape(x.shape))
    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--output", default="vectors.npy")
    args = parser.parse_args()
    found = svd(cubed.from_zarr(args.path, spec=cubed.Spec(allowed_mem="1GB")), args.components)
    np.save(args.output, found.vectors)
    print("singular values", found.singular_values.round(4).tolist())
