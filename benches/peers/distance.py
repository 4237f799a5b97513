"""Seconds of scipy's pdist, and of scikit-learn's euclidean_distances and numkong's, on random numbers: distance.py [observations] [features] [metric ...].

With a number instead of metrics, of scikit-learn's search for as many neighbors, by brute force.
"""

import json
import os
import sys
import time

import blas
import numkong
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

METRICS = [
    "euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra", "braycurtis", "hamming", "jaccard",
    "dice", "russellrao", "jensenshannon",
]
OF_BOOLEANS = {"jaccard", "dice", "russellrao"}


def median(run, times=3):
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[times // 2]


def main():
    n, k = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (4000, 2000)
    print(json.dumps({"blas": blas.loaded()}))
    x = np.random.default_rng(1).random((n, k), dtype=np.float32)
    if sys.argv[3:] and sys.argv[3].isdigit():
        search = NearestNeighbors(n_neighbors=int(sys.argv[3]), algorithm="brute").fit(x)
        print(json.dumps({"sklearn": "neighbors", "s": round(median(search.kneighbors), 4)}))
        return
    for metric in sys.argv[3:] or METRICS:
        values = x != 0 if metric in OF_BOOLEANS else x
        print(json.dumps({"pdist": metric, "s": round(median(lambda: pdist(values, metric)), 4)}), flush=True)
    print(json.dumps({"sklearn": "euclidean", "s": round(median(lambda: euclidean_distances(x)), 4)}))
    every = lambda: numkong.euclideans_symmetric(x, threads=os.cpu_count())
    print(json.dumps({"numkong": "euclidean", "s": round(median(every), 4)}))


if __name__ == "__main__":
    main()
