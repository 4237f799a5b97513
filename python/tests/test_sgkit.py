"""sgkit on top of teatime, against sgkit's own code; what is mapped over blocks, against NumPy."""

import sys

import numpy as np
import pytest

import teatime.sgkit


@pytest.fixture
def sgkit():
    sgkit = pytest.importorskip("sgkit", reason="sgkit 0.10 is not installed: it needs dask up to 2024.8, numpy below 2.2 and zarr below 3")
    import dask

    teatime.sgkit.install()
    # The scheduler is synchronous, since each worker of a cluster that other tests left open would compile sgkit's functions.
    with dask.config.set(scheduler="synchronous"):
        yield sgkit
    teatime.sgkit.uninstall()


def expected_sums(x, y):
    """Σ (x - y)², and the six sums of a correlation, over what both have."""
    x, y = x[:, None, :].astype("f8"), y[None].astype("f8")
    both = (x >= 0) & (y >= 0)
    over = lambda values: np.where(both, values, 0).sum(axis=-1)
    one = np.ones_like(both, "f8")
    return over((x - y) ** 2)[..., None], np.stack([over(of) for of in (x * one, y * one, x * x * one, y * y * one, x * y, one)], -1)


BLOCKS = {
    "dosages": lambda rng, shape: rng.integers(-1, 3, shape).astype("i1"),
    "all called": lambda rng, shape: rng.integers(0, 3, shape).astype("i1"),
    "unsigned": lambda rng, shape: rng.integers(0, 256, shape).astype("u1"),
    "many negative numbers": lambda rng, shape: rng.integers(-(2**40), 3, shape),
    "just exact in float32": lambda rng, shape: np.full(shape, 255),
    "large integers": lambda rng, shape: rng.integers(-1, 2**20, shape),
    "float32": lambda rng, shape: np.where(rng.random(shape) < 0.1, np.nan, rng.random(shape)).astype("f4"),
    "float64": lambda rng, shape: np.where(rng.random(shape) < 0.1, np.nan, rng.random(shape) - 0.1),
    "whole float32": lambda rng, shape: np.where(rng.random(shape) < 0.1, np.nan, rng.integers(0, 3, shape)).astype("f4"),
    "large float64": lambda rng, shape: rng.integers(-1, 2**20, shape).astype("f8"),
    "nothing called": lambda rng, shape: np.full(shape, np.nan),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_sums_of_blocks(name, device, monkeypatch):
    monkeypatch.setattr("teatime._worker.device", lambda _: device)
    rng = np.random.default_rng(0)
    x, y = BLOCKS[name](rng, (5, 1000)), BLOCKS[name](rng, (3, 1000))
    wanted = np.dtype("f4" if x.dtype == "f4" else "f8")
    is_exact = name in ("dosages", "just exact in float32", "whole float32") or (x.dtype.kind == "i" and device.name == "cpu")
    within = 0 if is_exact else 2e-5 if wanted == "f4" else 1e-12 if device.name == "cpu" else 1e-5
    for function, expected in zip((teatime.sgkit.euclidean_map, teatime.sgkit.correlation_map), expected_sums(x, y)):
        for sums in (function(x[:, None, :], y, np.empty(1, x.dtype)), function(x, y)):
            assert (sums.dtype, sums.shape) == (wanted, expected.shape)
            np.testing.assert_allclose(sums, expected, rtol=within)


def test_empty_blocks():
    none = np.empty((0, 0), "i1")
    assert teatime.sgkit.euclidean_map(none[:, None, :], none).shape == (0, 0, 1)
    assert teatime.sgkit.correlation_map(none[:, None, :], none).shape == (0, 0, 6)


def test_without_sgkit(monkeypatch):
    monkeypatch.setitem(sys.modules, "sgkit.stats.pca", None)
    with pytest.raises(ImportError, match="pip install sgkit"):
        teatime.sgkit.install()
    teatime.sgkit.uninstall()


def test_uninstall_gives_all_back(sgkit):
    from sgkit.distance import metrics
    from sgkit.stats import pca

    assert metrics.euclidean_map_cpu is teatime.sgkit.euclidean_map
    installed = pca.pca_est
    teatime.sgkit.install()
    assert pca.pca_est is installed
    teatime.sgkit.uninstall()
    assert metrics.euclidean_map_cpu is not teatime.sgkit.euclidean_map
    assert pca.pca_est is not installed
    teatime.sgkit.uninstall()


def both(function):
    """By teatime, and by sgkit's own code."""
    ours = function()
    teatime.sgkit.uninstall()
    return ours, function()


@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["dosages", "float32", "float64"])
def test_distances_are_those_of_sgkit(sgkit, metric, device, name):
    import dask.array as da
    from sgkit.distance.api import pairwise_distance

    x = da.asarray(BLOCKS[name](np.random.default_rng(3), (30, 200)), chunks=(12, 70))
    ours = pairwise_distance(x, metric, device=device).compute()
    teatime.sgkit.uninstall()
    theirs = pairwise_distance(x, metric).compute()
    assert ours.dtype == theirs.dtype
    assert np.allclose(ours, theirs, atol=1e-4 if name == "float32" else 1e-12)


def dataset(ploidy=2, chunks=(40, -1)):
    import xarray as xr

    rng = np.random.default_rng(5)
    frequencies = np.repeat(rng.uniform(0.1, 0.9, (120, 3)), 10, axis=1)
    counts = rng.binomial(ploidy, frequencies).astype("i1")
    return xr.Dataset({"call_alternate_allele_count": (("variants", "samples"), counts)}).chunk(variants=chunks[0], samples=chunks[1])


@pytest.mark.parametrize("ploidy", [2, 4])
def test_pca_is_that_of_sgkit(sgkit, ploidy):
    from sgkit.stats.pca import pca

    ds = dataset(ploidy)
    ours, theirs = both(lambda: pca(ds, 3, ploidy=ploidy, merge=False).compute())
    assert set(ours) == set(theirs)
    for name in theirs:
        assert ours[name].dims == theirs[name].dims and ours[name].dtype == theirs[name].dtype
        assert np.abs(ours[name] - theirs[name]).max() <= 1e-4 * np.abs(theirs[name]).max(), name


def test_other_samples_are_projected(sgkit):
    from sgkit.stats import pca

    ds = dataset()
    some = ds.isel(samples=slice(0, None, 2))

    def projected():
        fitted = pca.pca_fit(some, pca.pca_est(some, 3, ploidy=2))
        return pca.pca_transform(ds, fitted, merge=False).sample_pca_projection.values

    ours, theirs = both(projected)
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


def test_a_variant_that_does_not_vary_counts_nothing(sgkit):
    from sgkit.stats.pca import pca

    ds = dataset(chunks=(-1, 10))
    constant = ds.copy()
    constant["call_alternate_allele_count"] = ds.call_alternate_allele_count.where(ds.variants != 7, 0).astype("i1")
    with_it, without = (
        pca(of, 3, ploidy=2, algorithm="randomized", merge=False).compute() for of in (constant, ds.isel(variants=np.arange(120) != 7))
    )
    assert np.allclose(with_it.sample_pca_projection, without.sample_pca_projection, atol=1e-4)
    assert not with_it.sample_pca_component[7].any()
