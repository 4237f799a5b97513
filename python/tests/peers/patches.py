"""A plugin of pytest that puts teatime's functions in place of a project's, before its tests are imported."""

import os


def pytest_configure(config):
    of = {
        "sgkit": of_sgkit, "scipy": of_scipy, "scipy-distance": of_scipy_distance, "scikit-learn": of_scikit_learn,
        "scikit-learn-pca": of_scikit_learn_pca, "dask": of_dask,
    }
    of[os.environ["TEATIME_PEER"]](config)


def of_sgkit(config):
    import numba.cuda
    import sgkit.stats.grm

    import teatime.sgkit

    config.addinivalue_line("markers", "gpu: run on a GPU by sgkit")
    teatime.sgkit.install()
    # sgkit's functions for a GPU are replaced by ours, which need none.
    numba.cuda.list_devices = lambda: [None]
    sgkit.stats.grm._grm_VanRaden = van_raden


def van_raden(call_dosage, ancestral_frequency, ploidy, skipna=False):
    """The formula of sgkit's ``genomic_relationship``, of which the largest product is ours."""
    import dask.array as da

    from teatime.dask import pairwise_distance

    expected = ancestral_frequency * ploidy
    centred = call_dosage - expected[:, None]
    weights = expected * (1 - ancestral_frequency)
    present = ~da.isnan(centred)
    if skipna:
        centred = da.where(present, centred, 0)
        scale = (present * weights[:, None]).T @ present
    else:
        scale = weights.sum()
    return pairwise_distance(centred.T, "inner_product", missing="propagate", negative=False) / scale


def of_scipy(config):
    import scipy.ndimage
    import scipy.ndimage._filters
    from scipy._lib._array_api import xp_capabilities_table

    import teatime

    # SciPy's tests look up these capabilities of the function.
    xp_capabilities_table[teatime.gaussian_filter] = xp_capabilities_table[scipy.ndimage.gaussian_filter]
    scipy.ndimage.gaussian_filter = scipy.ndimage._filters.gaussian_filter = teatime.gaussian_filter


#: The metrics that SciPy has too. They are replaced unless weights or other options are given.
METRICS = (
    "braycurtis canberra chebyshev cityblock correlation cosine dice euclidean hamming jaccard jensenshannon minkowski russellrao sqeuclidean"
).split()


def of_scipy_distance(config):
    import numpy as np
    from scipy.spatial import distance

    from teatime import pairwise_distance

    config.addinivalue_line("markers", "array_api_backends: of SciPy's own")

    def replaced(name, **fixed):
        theirs = getattr(distance, name)

        def ours(*arrays, metric="euclidean", out=None, **options):
            given = [np.asarray(x) for x in arrays]
            plain = all(x.ndim == 2 and x.dtype.kind in "biuf" for x in given) and len({x.shape[1] for x in given}) == 1
            booleans = metric in ("dice", "jaccard", "russellrao") and any(x.dtype != bool for x in given)
            takes = {"p"} if metric == "minkowski" else set()
            if metric not in METRICS or not plain or booleans or not options.keys() <= takes:
                return theirs(*arrays, metric=metric, out=out, **options)
            # SciPy computes everything in float64.
            given = [x.astype("f8") if x.dtype.kind == "f" else x for x in given]
            found = pairwise_distance(*given, metric=metric, **options, **fixed).astype("f8")
            if out is None:
                return found
            theirs(*arrays, metric=metric, out=out)
            out[...] = found
            return out

        return ours

    cdist, pdist = replaced("cdist"), replaced("pdist", condensed=True)
    distance.cdist = lambda XA, XB, metric="euclidean", *, out=None, **options: cdist(XA, XB, metric=metric, out=out, **options)
    distance.pdist = lambda X, metric="euclidean", *, out=None, **options: pdist(X, metric=metric, out=out, **options)


def of_scikit_learn(config):
    from sklearn.metrics import pairwise

    from teatime import pairwise_distance

    def put(name, metric, **fixed):
        theirs = getattr(pairwise, name)

        def replaced(X, Y=None, **options):
            import scipy.sparse

            if scipy.sparse.issparse(X) or scipy.sparse.issparse(Y) or options.keys() - {"squared"}:
                return theirs(X, Y, **options)
            X, Y = pairwise.check_pairwise_arrays(X, Y, ensure_all_finite="allow-nan" if fixed else True)
            squared = {"euclidean": "sqeuclidean"}[metric] if options.get("squared") else metric
            return pairwise_distance(X, None if Y is X else Y, squared, **fixed)

        setattr(pairwise, name, replaced)
        functions = pairwise.PAIRWISE_DISTANCE_FUNCTIONS
        functions.update({key: replaced for key, function in functions.items() if function is theirs})

    put("euclidean_distances", "euclidean")
    put("nan_euclidean_distances", "euclidean", missing="rescale")
    put("manhattan_distances", "cityblock")
    put("cosine_distances", "cosine")


def of_scikit_learn_pca(config):
    from sklearn import decomposition

    from teatime.sklearn import PCA, TruncatedSVD

    os.environ["SKLEARN_RUN_FLOAT32_TESTS"] = "1"
    decomposition.PCA, decomposition.TruncatedSVD = PCA, TruncatedSVD


def of_dask(config):
    import dask.array.linalg

    import teatime.dask

    dask.array.linalg.svd_compressed = teatime.dask.svd_compressed
