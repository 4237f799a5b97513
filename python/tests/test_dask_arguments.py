"""What teatime.dask makes of its arguments: axes, masks, types, paths, resources, memory; and what results tell besides."""

import os
import types

import numpy as np
import pytest
from conftest import calls

import teatime
from teatime import genotype

da = pytest.importorskip("dask.array", reason="dask is not installed")
import dask  # noqa: E402

import teatime.dask as td  # noqa: E402
from teatime import _tasks, _worker  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:teatime. rechunked")
CALLS = calls(np.random.default_rng(6), 500, 12)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("TEATIME_DEVICE", "cpu")


def stored(path, name, values, chunks):
    """An array of a Zarr store, as zarr-python 2 and 3 write it."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    older = zarr.__version__.startswith("2.")
    group = zarr.open_group(str(path), mode="w", **({} if older else {"zarr_format": 2}))
    create = group.create_dataset if older else group.create_array
    create(name, shape=values.shape, chunks=chunks, dtype=values.dtype)[:] = values
    return str(path)


@pytest.fixture
def store(tmp_path):
    return stored(tmp_path / "cohort.zarr", "call_genotype", CALLS, (100, 12, 2))


@pytest.mark.parametrize(
    "options",
    [
        {"axes": 1, "sigma": 2},
        {"axes": (-1, 0), "sigma": (1, 2.5), "mode": ("wrap", "nearest"), "order": (0, 1)},
        {"axes": (1, 2), "sigma": 1, "radius": (2, 5), "mode": "grid-wrap"},
        {"axes": (), "sigma": 1},
        {"sigma": 1, "mode": ("grid-mirror", "grid-constant", "wrap"), "cval": 3},
    ],
    ids=str,
)
def test_axes_and_modes_of_gaussians(rng, tmp_path, options):
    x = rng.random((11, 20, 13)).astype("f4")
    want = teatime.gaussian_filter(x, **options)
    path = stored(tmp_path / "image.zarr", "a", x, (4, 7, 13))
    for of, more in ((da.from_array(x, chunks=(4, 7, 5)), {}), (path, {"array": "a", "chunks": (4, 7, 5)})):
        got = td.gaussian_filter(of, **options, **more)
        np.testing.assert_array_equal(got.compute(scheduler="sync"), want)


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


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8"])
def test_large_integers_are_told_apart(dtype):
    x = da.from_array(np.array([[2**24], [2**24 + 1]], dtype), chunks=(1, 1))
    np.testing.assert_array_equal(td.pairwise_distance(x), [[0, 1], [1, 0]])
    u, s, v = (np.asarray(part) for part in td.svd_compressed(x.rechunk((2, 1)), 1))
    np.testing.assert_allclose(u * s @ v, x, rtol=1e-12)


def test_large_integers_are_refused_by_workers_without_float64(device, tmp_path):
    values = np.array([[2**24], [2**24 + 1]], "i4")
    x, path = da.from_array(values, chunks=(1, 1)), stored(tmp_path / "image.zarr", "a", values, (1, 1))
    beyond = r"integers beyond 2\*\*24"
    for found, want, error, words in (
        (td.pairwise_distance(x, device=device), [[0, 1], [1, 0]], ValueError, f"`x`: {beyond}"),
        (td.gaussian_filter(x, 1, axes=1, device=device), x, ValueError, f"`input`: {beyond}"),
        (td.gaussian_filter(path, 1, axes=1, array="a", device=device), x, OSError, "16777217 is above 16777216"),
    ):
        if device.f64:
            np.testing.assert_array_equal(found, want)
        else:
            with pytest.raises(error, match=words):
                found.compute(scheduler="sync")


@pytest.mark.parametrize("dtype, power", [*(("f8", p) for p in (-520, -450, -65, 0, 62, 450, 520)), *(("f4", p) for p in (-120, -65, 62, 120))])
def test_products_of_large_and_small_blocks(device, dtype, power):
    block = (np.array([[3.0, 0], [0, 2], [3, 2]]) * 2.0**power).astype(dtype)
    if abs(power) > 500:
        with pytest.raises(ValueError, match=r"`a`: .*above 2\*\*500, and below"):
            _worker.product_of_block(block, np.eye(2), device.name)
    else:
        found = _worker.product_of_block(block, np.eye(2), device.name)
        np.testing.assert_allclose(found / 4.0**power, [[18, 6], [6, 8]], rtol=1e-6)


def test_distances_in_float32(rng):
    x = rng.random((6, 50))
    narrow = td.pairwise_distance(da.from_array(x, chunks=(3, 50)), narrow=True, compute=True)
    np.testing.assert_array_equal(narrow, teatime.pairwise_distance(x, narrow=True))
    assert 0 < np.abs(narrow - teatime.pairwise_distance(x)).max() < 1e-5


def test_what_results_tell(store):
    want = genotype.pca(CALLS, 3, method="exact", min_maf=0.1)
    for of in (store, da.from_array(CALLS, chunks=(500, 12, 2))):
        exact = td.pca(of, 3, min_maf=0.1, compute=True)
        assert exact.counts == want.counts and exact.passes == want.passes
        assert exact.converged.tolist() == want.converged and exact.residuals.tolist() == want.residuals.tolist()
        few = td.pca(of, 3, min_maf=0.1, method="randomized", n_iter=0, n_oversamples=0)
        assert few.converged.dtype == bool and few.residuals.shape == (3,)
        few = dask.compute(few)[0]
        assert few.counts == want.counts and few.passes == 3
        assert not few.converged.all() and few.residuals.max() > 1e-3
        many = td.pca(of, 3, min_maf=0.1, method="randomized", n_iter=None, tol=1e-6, compute=True)
        assert many.converged.all() and many.residuals.max() <= 1e-6 and many.passes >= 3
    relations, of = genotype.grm(CALLS), td.grm(store, compute=True)
    np.testing.assert_array_equal(of.shared, relations.shared)
    assert of.counts == relations.counts and td.grm(store, missing="mean").shared is None


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
        with pytest.raises(MemoryError, match="12 samples: .* largest worker 1.7e-06 GB"):
            call()
    with pytest.raises(MemoryError, match="12 samples: .* pairs of 64 .* may take 5e-07 GB of the smallest worker"):
        td.pairwise_distance(store)
    found = td.pca(store, 2)
    assert found.scores.name != exact and found.scores.name == td.pca(store, 2, method="randomized").scores.name
    workers["b"]["memory_limit"] = 0
    assert td.pca(store, 2).scores.name == exact
    td.pairwise_distance(store)


def test_gaussians_of_stores_keep_to_the_memory_of_workers(scheduler, monkeypatch, tmp_path):
    _, workers = scheduler
    image = np.random.default_rng(1).integers(0, 256, (512, 512, 16)).astype("u1")
    path = stored(tmp_path / "image.zarr", "image", image, (64, 64, 16))
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
    with pytest.raises(MemoryError, match="host memory budget|memory budget of"):
        large.compute(scheduler="sync")
    worker.memory_manager.memory_limit = None
    np.testing.assert_array_equal(large.compute(scheduler="sync"), whole)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: td.pca("s3://bucket/x"), ValueError, "`genotypes` is 's3://bucket/x': .*every worker.*from_zarr"),
        (lambda: td.grm("gs://x"), ValueError, "`genotypes` is 'gs://x'"),
        (lambda: td.grm(da.from_array(CALLS), fill=True), TypeError, "`array` and `fill` are for the path of a store"),
        (lambda: td.pairwise_distance(da.ones((2, 2)), fill=True), TypeError, "`fill`.* are for the path of a store"),
        (lambda: td.pairwise_distance("s3://bucket/x"), ValueError, "`x` is 's3://bucket/x'"),
        (lambda: td.gaussian_filter("s3://bucket/x", 1), ValueError, "`image` is 's3://bucket/x'"),
        (lambda: td.pca(genotype.genotypes_of(CALLS, None, "pca")), TypeError, "`genotypes` is a store that is open here"),
        (lambda: td.pairwise_distance(genotype.genotypes_of(CALLS, None, "pca")), TypeError, "`x` is a store that is open here"),
        (lambda: td.pca(da.zeros((9, 3), dtype="i1"), -1), ValueError, "`n_components` is -1"),
        (lambda: td.pca(da.zeros((9, 3), dtype="i1"), 2, random_state=None), TypeError, "`random_state` is None"),
        (lambda: td.svd_compressed(da.zeros((9, 3)), 2, seed=-1), ValueError, "`seed` is -1"),
        (lambda: td.svd_compressed(da.zeros((9, 3)), -2), ValueError, "`k` is -2"),
        (lambda: td.gaussian_filter(da.zeros((9, 3)), 1, axes=2), ValueError, "`axes`: 2 is out of range"),
        (lambda: td.gaussian_filter(da.zeros((9, 3)), (1, 2), axes=0), ValueError, "`sigma` has 2 values, and 1 axes"),
    ],
)
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()
