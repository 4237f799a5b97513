"""PCA of a store of genotypes on Ray: an actor a part, which keeps its variants on its device between the rounds.

    python ray_pca.py cohort.zarr --parts 4
"""

import argparse

import numpy as np
import ray

from teatime import blocks

Part = ray.remote(max_restarts=3, max_task_retries=3)(blocks.Variants)


def pca(path, n_components, parts, **options):
    """The rounds, and the products of all parts, added in their order."""
    shape, ranges = blocks.Variants.ranges(path, parts)
    # On GPUs, Part.options(num_gpus=1) gives each actor its own card.
    actors = [Part.remote(path, rows) for rows in ranges]
    rounds = blocks.Rounds(shape, n_components, **options)
    while (x := rounds.wanted()) is not None:
        shared = ray.put(x)
        rounds.add(sum(ray.get([actor.normal_product.remote(shared) for actor in actors])))
    return rounds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--output", default="scores.npy")
    args = parser.parse_args()
    ray.init(ignore_reinit_error=True, include_dashboard=False)
    found = pca(args.path, args.components, args.parts)
    np.save(args.output, found.scores)
    print("singular values", found.singular_values.round(4).tolist())
