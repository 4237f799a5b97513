"""PCA of a store of genotypes on MPI: each rank keeps its variants, and all add up their products.

    mpiexec -n 4 python mpi4py_pca.py cohort.zarr
"""

import argparse

import numpy as np
from mpi4py import MPI

from teatime import blocks


def pca(path, n_components, world, **options):
    """The same rounds on all ranks, since all add the same product."""
    shape, ranges = blocks.Variants.ranges(path, world.size)
    mine = blocks.Variants(path, ranges[world.rank]) if world.rank < len(ranges) else None
    rounds = blocks.Rounds(shape, n_components, **options)
    # One rank determines the next vectors, since others may round differently.
    while (x := world.bcast(rounds.wanted() if world.rank == 0 else None)) is not None:
        part = np.zeros_like(x) if mine is None else mine.normal_product(x)
        product = np.empty_like(part)
        world.Allreduce(part, product)
        rounds.add(product)
    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--output", default="scores.npy")
    args = parser.parse_args()
    world = MPI.COMM_WORLD
    try:
        found = pca(args.path, args.components, world)
    except Exception as error:
        # The other ranks would wait for this one for ever.
        print(f"rank {world.rank}: {error}", flush=True)
        world.Abort(1)
    if world.rank == 0:
        np.save(args.output, found.scores)
        print("singular values", found.singular_values.round(4).tolist())
