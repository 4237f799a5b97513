"""What teatime.dask makes of its arguments: axes, masks, types, paths, resources, memory; and what results tell besides."""

import os
import types

import numpy as np
import pytest
from conftest import calls, raises, write

import teatime
from teatime import genotype

da = pytest.importorskip("dask.array", reason="dask is not installed")
import dask  # noqa: E402

import teatime.dask as td  # noqa: E402
from teatime import _tasks, _worker  # noqa: E402

CALLS = calls(np.random.default_rng(6), 500, 12)


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "cohort.zarr", "call_genotype", CALLS, (100, 12, 2))


@pytest.mark.parametrize(
    "options",
    [
        {"axes": 1, "sigma": 2},
        {"axes": (-1, 0), "sigma": (1, 2.5), "mode": ("wrap", "nearest"), "order": (0, 1)},
        {"axes": (1, 2), "sigma": 1, "radius": (2, 5), "mode": "grid-wrap"},
        {"axes": (), "sigma": 1},
        {"sigma": 1, "mode": ("grid-mirror", "grid-constant", "wrap"), "cval": 3},
        *({"sigma": sigma, "mode": mode, "cval": 2} for mode in ("reflect", "nearest", "mirror", "constant", "wrap") for sigma in (1.5, (0, 4, 6))),
    ],
    ids=str,
)
def test_axes_and_modes_of_gaussians(rng, tmp_path, options):
    x = rng.random((11, 20, 13)).astype("f4")
    want = teatime.gaussian_filter(x, **options)
    path = write(tmp_path / "image.zarr", "a", x, (4, 7, 13))
    for chunks in ((4, 7, 5), (11, 19, 13), (3, 20, 4)):
        for source, more in ((da.from_array(x, chunks=chunks), {}), (path, {"array": "a", "chunks": chunks})):
            result = td.gaussian_filter(source, **options, **more)
            np.testing.assert_array_equal(result.compute(scheduler="sync"), want, err_msg=str(chunks))


@pytest.mark.parametrize("mode", ["reflect", "wrap"])
@pytest.mark.parametrize(("shape", "chunks"), [((0, 20), (1, 10)), ((6, 20), ((0, 6), (10, 10)))])
def test_gaussians_of_empty_blocks(mode, shape, chunks):
    """Blocks of nothing, beside others that reach into them."""
    empty = da.zeros(shape, chunks=chunks, dtype="f4")
    assert td.gaussian_filter(empty, (0, 1), mode=mode).compute(scheduler="sync").shape == shape


def test_masked_blocks_are_refused():
    masked = np.ma.masked_array(CALLS[:, :, 0], CALLS[:, :, 0] < 0)
    x = da.from_array(masked, chunks=(500, 12))
    for call in (
        lambda: td.pca(x, 2, method="randomized", compute=True),
        lambda: td.pca(x, 2, method="exact", compute=True),
        lambda: td.gaussian_filter(x, 1, output="f4", compute=True),
    ):
        with pytest.raises(TypeError, match="is a masked array"), dask.config.set(scheduler="sync"):
            call()


def test_large_integers_are_refused_by_workers_without_float64(device, tmp_path):
    values = np.array([[2**24], [2**24 + 1]], "i4")
    x, path = da.from_array(values, chunks=(1, 1)), write(tmp_path / "image.zarr", "a", values, (1, 1))
    beyond = r"integers beyond 2\*\*24"
    for result, want, error, words in (
        (td.pairwise_distance(x, device=device), [[0, 1], [1, 0]], ValueError, f"`x`: {beyond}"),
        (td.gaussian_filter(x, 1, axes=1, device=device), x, ValueError, f"`input`: {beyond}"),
        (td.gaussian_filter(path, 1, axes=1, array="a", device=device), x, OSError, "16777217 is above 16777216"),
    ):
        if device.f64:
            np.testing.assert_array_equal(result, want)
        else:
            raises(error, words, result.compute, scheduler="sync")
    u, s, v = (np.asarray(part) for part in td.svd_compressed(x, 1))
    np.testing.assert_allclose(u * s @ v, values, rtol=1e-12)


@pytest.mark.parametrize("dtype, power", [*(("f8", p) for p in (-520, -450, -65, 0, 62, 450, 520)), *(("f4", p) for p in (-120, -65, 62, 120))])
def test_products_of_large_and_small_blocks(device, dtype, power):
    block = (np.array([[3.0, 0], [0, 2], [3, 2]]) * 2.0**power).astype(dtype)
    if abs(power) > 500:
        raises(ValueError, r"`a`: .*above 2\*\*500, and below", _worker.product_of_block, block, np.eye(2), device.name)
    else:
        product = _worker.product_of_block(block, np.eye(2), device.name)
        np.testing.assert_allclose(product / 4.0**power, [[18, 6], [6, 8]], rtol=1e-6)


def test_distances_in_float32(rng):
    x = rng.random((6, 50))
    narrow = td.pairwise_distance(da.from_array(x, chunks=(3, 50)), narrow=True, compute=True)
    np.testing.assert_array_equal(narrow, teatime.pairwise_distance(x, narrow=True))
    assert 0 < np.abs(narrow - teatime.pairwise_distance(x)).max() < 1e-5


def test_what_results_tell(store):
    want = genotype.pca(CALLS, 3, method="exact", min_maf=0.1)
    for source in (store, da.from_array(CALLS, chunks=(500, 12, 2))):
        exact = td.pca(source, 3, min_maf=0.1, compute=True)
        assert exact.counts == want.counts and exact.passes == want.passes
        assert exact.converged.tolist() == want.converged and exact.residuals.tolist() == want.residuals.tolist()
        few = td.pca(source, 3, min_maf=0.1, method="randomized", n_iter=0, n_oversamples=0)
        assert few.converged.dtype == bool and few.residuals.shape == (3,)
        few = dask.compute(few)[0]
        assert few.counts == want.counts and few.passes == 3
        assert not few.converged.all() and few.residuals.max() > 1e-3
        many = td.pca(source, 3, min_maf=0.1, method="randomized", n_iter=None, tol=1e-6, compute=True)
        assert many.converged.all() and many.residuals.max() <= 1e-6 and many.passes >= 3
    want, grm = genotype.grm(CALLS), td.grm(store, compute=True)
    np.testing.assert_array_equal(grm.shared, want.shared)
    assert grm.counts == want.counts and td.grm(store, missing="mean").shared is None


def test_a_chunk_written_in_place_is_another_store(store):
    before = td.pca(store, 2).scores.name
    assert td.pca(store, 2).scores.name == before
    chunk = next(os.path.join(folder, "1.0.0") for folder, _, files in os.walk(store) if "1.0.0" in files)
    at = os.stat(chunk).st_mtime_ns
    with open(chunk, "r+b") as file:
        file.write(file.read(1))
    os.utime(chunk, ns=(at, at + 1))
    assert td.pca(store, 2).scores.name != before


@pytest.fixture
def scheduler(monkeypatch):
    """Stands for a client's, which knows the workers of its list."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    told = {"workers": {}}
    client = types.SimpleNamespace(asynchronous=False, scheduler_info=lambda **_: told)
    monkeypatch.setattr(distributed, "get_client", lambda: client)
    return client, told["workers"]


def test_resources_of_workers_that_have_not_joined(scheduler):
    client, workers = scheduler
    with pytest.warns(UserWarning, match="no worker has joined yet.*GPU"), _tasks.annotated({"GPU": 1}, True):
        pass
    workers["a"] = {"resources": {"GPU": 1}}
    with _tasks.annotated({"GPU": 1}, True):
        assert dask.get_annotations() == {"resources": {"GPU": 1}}
    with pytest.raises(ValueError, match="no worker has 2 of 'GPU'"), _tasks.annotated({"GPU": 2}, True):
        pass
    client.asynchronous = True
    with _tasks.annotated({"GPU": 2}, True):
        pass


def test_sums_that_no_worker_holds_are_refused(scheduler, store):
    _, workers = scheduler
    exact = td.pca(store, 2, method="exact").scores.name
    workers.update(a={"memory_limit": 1000}, b={"memory_limit": 1700})
    for call in (lambda: td.pairwise_distance(store, "canberra"), lambda: td.grm(store), lambda: td.pca(store, 2, method="exact")):
        raises(MemoryError, "12 samples: .* largest worker 1.7e-06 GB", call)
    raises(MemoryError, "12 samples: .* pairs of 64 .* may take 5e-07 GB of the smallest worker", td.pairwise_distance, store)
    name = td.pca(store, 2).scores.name
    assert name != exact and name == td.pca(store, 2, method="randomized").scores.name
    workers["b"]["memory_limit"] = 0
    assert td.pca(store, 2).scores.name == exact
    td.pairwise_distance(store)


def test_gaussians_of_stores_keep_to_the_memory_of_workers(scheduler, monkeypatch, tmp_path):
    _, workers = scheduler
    image = np.random.default_rng(1).integers(0, 256, (512, 512, 16)).astype("u1")
    path = write(tmp_path / "image.zarr", "image", image, (64, 64, 16))
    assert td.gaussian_filter(path, 1, array="image").numblocks == (1, 1, 1)
    workers.update(a={"memory_limit": 16 << 20, "nthreads": 2}, b={"memory_limit": 1 << 40, "nthreads": 1})
    small = td.gaussian_filter(path, 1, array="image")
    assert np.prod(small.chunksize) <= 1 << 20
    here = types.SimpleNamespace(nthreads=2)
    worker = types.SimpleNamespace(state=here, memory_manager=types.SimpleNamespace(memory_limit=16 << 20))
    monkeypatch.setattr("distributed.get_worker", lambda: worker)
    whole = teatime.gaussian_filter(image, 1)
    np.testing.assert_array_equal(small.compute(scheduler="sync"), whole)
    large = td.gaussian_filter(path, 1, array="image", chunks=-1)
    with pytest.raises(MemoryError, match=r"a box of \[512, 512, 16\] takes 0.00419 GB, and a task may hold 0.00419 GB .* smaller `chunks`"):
        large.compute(scheduler="sync")
    worker.memory_manager.memory_limit += 4 << 10
    raises(MemoryError, "memory budget of", large.compute, scheduler="sync")
    worker.memory_manager.memory_limit = None
    np.testing.assert_array_equal(large.compute(scheduler="sync"), whole)


DOSAGES = da.zeros((9, 3), dtype="i1")


def test_wrong_arguments_are_named():
    raises(ValueError, r"\(variants, samples\)", td.pca, da.zeros(3))
    raises(ValueError, "`n_components` of 4", td.pca, DOSAGES, 4)
    raises(ValueError, "`method` is", td.pca, DOSAGES, 2, method="fast")
    raises(ValueError, "`scaler` is one of", td.pca, DOSAGES, 2, scaler="none at all")
    raises(ValueError, "`signs` of u", td.pca, DOSAGES, 2, signs="u")
    raises(ValueError, "compute=True", td.pca, DOSAGES, 2, resources={"GPU": 1})
    raises(ValueError, "unknown shape", td.pca, DOSAGES[da.zeros(9) > 0], 2)
    raises(OSError, "nowhere", td.pca, "/nowhere.zarr")
    raises(OSError, "ftp://host/x: is a URL of another scheme", td.pca, "ftp://host/x")
    raises(TypeError, "`genotypes` is a store that is open here", td.pca, genotype.genotypes_of(CALLS, None, "pca"))
    raises(ValueError, "`method` is gcta", td.grm, DOSAGES, "yang")
    raises(OSError, "`region` is not an option", td.pca, "http://[::1]/x", storage_options={"region": 1})
    raises(OSError, "`region` is not an option", td.grm, "http://[::1]/x", storage_options={"region": 1})
    raises(OSError, "`region` is not an option", td.pairwise_distance, "http://[::1]/x", storage_options={"region": 1})
    raises(TypeError, "`contigs` and `n_autosomes` are for the path of a store", td.grm, DOSAGES, fill=True)
    raises(TypeError, "`contigs` and `n_autosomes` are for the path of a store", td.pca, DOSAGES, 2, storage_options={})
    raises(TypeError, "`contigs` and `n_autosomes` are for the path of a store", td.pca, DOSAGES, 2, contigs="1")
    raises(TypeError, "`contigs` and `n_autosomes` are for the path of a store", td.grm, DOSAGES, n_autosomes=3)
    raises(TypeError, "`contigs`.* are for the path of a store", td.pairwise_distance, DOSAGES, contigs="1")
    raises(ValueError, "`iterator` is", td.svd_compressed, da.zeros((3, 3)), 2, iterator="other")
    raises(ValueError, "`seed` is -1", td.svd_compressed, da.zeros((9, 3)), 2, seed=-1)
    raises(ValueError, "1 axes", td.pairwise_distance, da.zeros(3))
    raises(ValueError, "`metric` is one of", td.pairwise_distance, da.zeros((3, 3)), "near")
    raises(NotImplementedError, "whole", td.pairwise_distance, da.zeros((3, 3)), "jensenshannon")
    raises(TypeError, "for the path of a store", td.pairwise_distance, da.zeros((3, 3)), samples_per_task=2)
    raises(ValueError, "`x` has 2 features, `y` 3", td.pairwise_distance, da.ones((2, 2)), y=da.ones((2, 3)))
    raises(ValueError, "`y` is .* 1 axes", td.pairwise_distance, da.ones((2, 2)), y=da.ones(3))
    raises(ValueError, "`y` is for .* without `condensed`", td.pairwise_distance, da.ones((2, 2)), y=da.ones((2, 2)), condensed=True)
    raises(ValueError, "not symmetric: there is no condensed", td.pairwise_distance, da.ones((2, 2)), "kl_divergence", condensed=True)
    raises(ValueError, "`y` is for a dask array `x`", td.pairwise_distance, "none.zarr", y=da.ones((2, 2)))
    raises(TypeError, "`y` is a dask array", td.pairwise_distance, da.ones((2, 2)), y="none.zarr")
    raises(TypeError, "`fill`.* are for the path of a store", td.pairwise_distance, da.ones((2, 2)), fill=True)
    raises(NotImplementedError, "not symmetric", td.pairwise_distance, "none.zarr", "kl_divergence", missing="propagate")
    raises(OSError, "ftp://host/x: is a URL of another scheme", td.pairwise_distance, "ftp://host/x")
    raises(TypeError, "`x` is a store that is open here", td.pairwise_distance, genotype.genotypes_of(CALLS, None, "pca"))
    raises(ValueError, "`axes`: 2 is out of range", td.gaussian_filter, da.zeros((9, 3)), 1, axes=2)
    raises(ValueError, "`mode` is one of", td.gaussian_filter, da.zeros(3), 1, mode="around")
    raises(ValueError, "`sigma` of nan", td.gaussian_filter, da.zeros(3), float("nan"))
    raises(TypeError, "for the path of a stored array", td.gaussian_filter, da.zeros(3), 1, chunks=2)
    raises(RuntimeError, "cuda:99", td.gaussian_filter, da.zeros(3), 1, device="cuda:99", compute=True)
    raises((TypeError, ValueError), "object", lambda: td.gaussian_filter(da.from_array(np.array([object()]), chunks=1), 1).compute())
    raises(ValueError, "up to 12", td.unpack, da.zeros((3, 3), dtype="u1"), 13)
