"""A plugin of pytest that puts teatime's functions in place of a project's, before its tests are imported."""

import os


def pytest_configure(config):
    {"sgkit": of_sgkit, "scipy": of_scipy, "dask": of_dask}[os.environ["TEATIME_PEER"]](config)


def of_sgkit(config):
    import numba.cuda
    import sgkit.stats.grm

    import teatime.sgkit

    config.addinivalue_line("markers", "gpu: run on a GPU by sgkit")
    teatime.sgkit.install()
    # What sgkit runs on a GPU is ours, which needs none.
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

    # What the tests look up of the function.
    xp_capabilities_table[teatime.gaussian_filter] = xp_capabilities_table[scipy.ndimage.gaussian_filter]
    scipy.ndimage.gaussian_filter = scipy.ndimage._filters.gaussian_filter = teatime.gaussian_filter


def of_dask(config):
    import dask.array.linalg

    import teatime.dask

    dask.array.linalg.svd_compressed = teatime.dask.svd_compressed
