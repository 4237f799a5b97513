"""Dask arrays and stores in tasks: the bits of the whole, for any chunks."""

import functools
import itertools
import os
import pickle
import shutil
import warnings

import numpy as np
import pytest
from conftest import bed, calls, dosages, raises, write

import teatime
from teatime import blocks, genotype

da = pytest.importorskip("dask.array", reason="dask is not installed")
import dask  # noqa: E402

import teatime.dask as td  # noqa: E402
from teatime import _worker  # noqa: E402
from teatime._distance import distance_options  # noqa: E402


@pytest.mark.parametrize("chunks", [(4096, 40, 2), (1000, 40, 2), (3000, 17, 1), (9000, 40, 2)])
def test_pca_of_any_chunks(genotypes, chunks):
    want = genotype.pca(genotypes, 5, method="exact", device="cpu")
    fits = chunks == (4096, 40, 2)
    with warnings.catch_warnings() if fits else pytest.warns(da.PerformanceWarning, match="rechunked from .* variants"):
        if fits:
            warnings.simplefilter("error")
        pca = td.pca(da.from_array(genotypes, chunks=chunks), 5, compute=True)
    np.testing.assert_array_equal(pca.vectors, want.vectors)
    np.testing.assert_array_equal(pca.explained_variance_ratio, want.explained_variance_ratio)


def test_dosages_and_stores(genotypes, store):
    x = da.from_array(dosages(genotypes), chunks=(4096, 40))
    want = genotype.pca(genotypes, 4, method="exact", device="cpu")
    for source, rows in ((x, None), (store, None), (store, 4096)):
        np.testing.assert_array_equal(td.pca(source, 4, rows_per_task=rows, compute=True).scores, want.scores)
    for source, method in ((x, "gcta"), (x, "vanraden1"), (store, "gcta")):
        np.testing.assert_array_equal(td.grm(source, method, compute=True).matrix, genotype.grm(genotypes, method, device="cpu").matrix)


def test_contigs_of_a_store(rng, tmp_path):
    """Every task takes the variants of the contigs, however these lie among the variants of tasks."""
    d = dosages(calls(rng, 20_000, 70))
    contigs = np.repeat(["1", "X", "2", "chr3"], 5000)
    contigs[[30, 9000, 15_000]] = "Y"
    store = bed(tmp_path / "all.bed", d, [(contig, 10 * (i + 1), "A", "C") for i, contig in enumerate(contigs)])
    for chosen, count in (({"contigs": "autosomes"}, 14_998), ({"contigs": ["Y", "X"]}, 5002), ({"contigs": "3", "n_autosomes": 2}, 9998)):
        opened = genotype.open_store(store, **chosen)
        assert opened.variants == count
        tasks = {"rows_per_task": 4096, "compute": True, **chosen}
        want = genotype.pca(opened, 4, method="exact", device="cpu")
        found = td.pca(store, 4, method="exact", **tasks)
        np.testing.assert_array_equal(found.scores, want.scores)
        assert found.counts == want.counts and found.names == opened.names
        found = td.pca(store, 4, method="randomized", tol=1e-9, **tasks)
        np.testing.assert_allclose(found.singular_values, want.singular_values, rtol=1e-6)
        assert found.counts == want.counts
        np.testing.assert_array_equal(td.grm(store, **tasks).matrix, genotype.grm(opened, device="cpu").matrix)
        for metric in ("cityblock", "canberra"):
            np.testing.assert_allclose(td.pairwise_distance(store, metric, **tasks), genotype.distances(opened, metric).matrix, rtol=1e-5)
        tiles = td.pairwise_distance(store, "cityblock", samples_per_task=64, **tasks)
        np.testing.assert_array_equal(tiles, genotype.distances(opened, "cityblock").matrix)
    keys = {td.grm(store, contigs=contigs).matrix.name for contigs in (None, "1", "2", "chr1")}
    assert len(keys) == 3
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        td.grm(store, contigs="1,7", rows_per_task=4096, compute=True)
    assert [str(warning.message) for warning in told] == ["teatime: no variant is on 7"]
    for refused, words in (({"contigs": "9"}, "no variant is on such a contig"), ({"n_autosomes": 3}, "`n_autosomes`")):
        for function in (functools.partial(td.pca, n_components=2), td.grm, td.pairwise_distance):
            raises(ValueError, words, function, store, **refused)


def test_stores_in_zip_archives(rng, tmp_path):
    """They give what their folders give, in tasks too, whose names are others once the archive is."""
    folder, names = tmp_path / "x.zarr", []
    for _ in range(2):
        write(folder, "g", calls(rng, 300, 12), (100, 12, 2))
        write(folder, "y", rng.random((30, 20), dtype="f4"), (10, 20))
        archive = shutil.make_archive(str(folder), "zip", folder)
        assert archive.endswith("x.zarr.zip")
        for function in (
            lambda place: genotype.pca(genotype.open_store(place, "g"), 3, device="cpu").scores,
            lambda place: genotype.pca(os.path.join(place, "g"), 3, device="cpu").scores,
            lambda place: teatime.truncated_svd(os.path.join(place, "y"), 2, device="cpu").u,
            lambda place: td.pca(place, 3, array="g", compute=True).scores,
            lambda place: td.gaussian_filter(place, 1, array="y").compute(),
            lambda place: td.gaussian_filter(os.path.join(place, "y"), 1).compute(),
        ):
            np.testing.assert_array_equal(function(archive), function(folder))
        names += [td.gaussian_filter(archive, 1, array="y").name, td.gaussian_filter(os.path.join(archive, "y"), 1).name]
        shutil.rmtree(folder)
    assert len(set(names)) == 4


def test_randomized_pca_goes_on_until_it_has_converged(rng, tmp_path, monkeypatch):
    """By the rule of the plain function, whether it is computed at once or later; with a word where a limit stops it."""
    values = calls(rng, 5000, 200)
    want = genotype.pca(values, 10, method="randomized", device="cpu")
    write(tmp_path / "cohort.zarr", "call_genotype", values, (1000, 200, 2))
    blocks = da.from_array(values, chunks=(4096, 200, 2))
    cases, options = list(itertools.product((blocks, tmp_path / "cohort.zarr"), (True, False))), {"method": "randomized", "rows_per_task": 4096}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [dask.compute(td.pca(source, 10, **options, compute=compute))[0] for source, compute in cases]
    for pca in made:
        assert pca.passes == want.passes > 7 and pca.converged.all() and pca.residuals.max() <= 1e-4
        np.testing.assert_allclose(pca.singular_values, want.singular_values, rtol=1e-6)
        np.testing.assert_array_equal(pca.vectors, made[0].vectors)
    for source, compute in cases:
        counted = dask.compute(td.pca(source, 10, **options, n_iter=12, compute=compute))[0]
        np.testing.assert_allclose(counted.explained_variance_ratio, want.explained_variance_ratio, rtol=1e-6)
    monkeypatch.setattr(genotype, "svd_options", functools.partial(genotype.svd_options, max_passes=3))
    for options, words in (({}, "after 3 passes, above `tol` of 0.0001"), ({"n_iter": 1}, "with `n_iter` of 1, above 0.0001")):
        words = f"10 of 10 components have not converged: {words} their residuals are \\d"
        with pytest.warns(UserWarning, match=words):
            genotype.pca(values, 10, method="randomized", device="cpu", **options)
        for compute in (True, False):
            with pytest.warns(UserWarning, match=words):
                dask.compute(td.pca(blocks, 10, method="randomized", compute=compute, **options))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_svd_compressed(rng, dtype):
    a = (rng.standard_normal((300, 20)) @ rng.standard_normal((20, 70)) + 0.01 * rng.standard_normal((300, 70))).astype(dtype)
    want = np.linalg.svd(a, compute_uv=False)[:6]
    tolerance = 1e-5 if dtype == "f4" else 1e-9
    for chunks in ((100, 70), (41, 30)):
        u, s, v = td.svd_compressed(da.from_array(a, chunks=chunks), 6, n_power_iter=4, seed=1)
        assert u.dtype == s.dtype == v.dtype == dtype
        np.testing.assert_allclose(s, want, rtol=tolerance)
        np.testing.assert_allclose(u.T @ u, np.eye(6), atol=tolerance)
        assert (np.asarray(v).sum(1) >= 0).all()
    computed = td.svd_compressed(da.from_array(a, chunks=(100, 70)), 6, n_power_iter=4, seed=1, compute=True)
    np.testing.assert_allclose(computed[1], want, rtol=tolerance)


def test_small_singular_values_are_found():
    a = np.zeros((50, 8))
    a[:3, :3] = np.diag([1, 1e-3, 1e-9])
    u, s, v = (np.asarray(part) for part in td.svd_compressed(da.from_array(a, chunks=(10, 8)), 4))
    np.testing.assert_allclose(s, [1, 1e-3, 1e-9, 0], rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(u.T @ u, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(v @ v.T, np.eye(4), atol=1e-12)



@pytest.mark.parametrize("rules", [{}, {"missing": "rescale", "negative": True}], ids=str)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i1", "i2", "i8"])
@pytest.mark.parametrize("metric", ["cosine", "minkowski"])
def test_distances_are_those_of_the_plain_function(rng, metric, dtype, rules):
    x = (rng.standard_normal((9, 70)) * 3).astype(dtype)
    if dtype.startswith("f"):
        x[rng.random(x.shape) < 0.02] = np.nan
    want = teatime.pairwise_distance(x, metric=metric, p=3, **rules, device="cpu")
    result = td.pairwise_distance(da.from_array(x, chunks=(4, 30)), metric, p=3, **rules)
    assert result.dtype == want.dtype
    np.testing.assert_allclose(result, want, rtol=1e-12 if dtype != "f4" else 1e-5, atol=1e-14 if dtype != "f4" else 1e-6)


@pytest.mark.parametrize("rules", [{}, {"missing": "rescale", "negative": True}], ids=str)
@pytest.mark.parametrize("dtypes", [("f4", "f8"), ("i1", "i1"), ("f4", "f4")])
@pytest.mark.parametrize("metric", ["cosine", "canberra"])
def test_distances_from_a_second_set(rng, metric, dtypes, rules):
    x, y = ((rng.random((n, 70)) * 9 + 1).astype(dtype) for n, dtype in zip((9, 11), dtypes))
    want = teatime.pairwise_distance(x, y, metric, **rules, device="cpu")
    result = td.pairwise_distance(da.from_array(x, chunks=(4, 30)), metric, y=da.from_array(y, chunks=(5, 41)), **rules)
    assert result.dtype == want.dtype and result.chunks == ((4, 4, 1), (5, 5, 1))
    near = 1e-12 if want.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(result, want, rtol=near, atol=near)


@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
@pytest.mark.parametrize("observations", [1, 2, 9])
def test_condensed_distances(rng, metric, observations):
    x = rng.random((observations, 70)) + 1
    result = td.pairwise_distance(da.from_array(x, chunks=(4, 30)), metric, condensed=True)
    np.testing.assert_allclose(result, teatime.pairwise_distance(x, metric=metric, condensed=True, device="cpu"), rtol=1e-12)
    assert result.shape == (observations * (observations - 1) // 2,)
    # A task of each block of features, of each pair of blocks on and above the diagonal but the last block, of one observation.
    names = [str(key) for key in result.__dask_graph__().cull(result.__dask_keys__()).to_dict()]
    assert sum("teatime-pair-sums" in name for name in names) == {1: 3, 2: 3, 9: 15}[observations]


@pytest.mark.parametrize("samples_per_task", [None, 64])
def test_condensed_distances_of_a_store(many_samples, samples_per_task):
    want = genotype.distances(many_samples, device="cpu").matrix[np.triu_indices(150, 1)]
    got = td.pairwise_distance(many_samples, samples_per_task=samples_per_task, condensed=True)
    assert got.numblocks == (3 if samples_per_task else 1,)
    np.testing.assert_array_equal(got, want)


def test_distances_that_are_not_symmetric(rng):
    x = rng.random((9, 70)) + 1
    result = td.pairwise_distance(da.from_array(x, chunks=(4, 30)), "kl_divergence")
    np.testing.assert_allclose(result, teatime.pairwise_distance(x, metric="kl_divergence", device="cpu"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", ["euclidean", "correlation", "canberra"])
def test_distances_of_a_store(genotypes, store, metric):
    want = genotype.distances(genotypes, metric, device="cpu").matrix
    result = td.pairwise_distance(store, metric, rows_per_task=4096)
    assert result.shape == (40, 40) and result.dtype == np.float64
    # Terms of canberra are not whole numbers.
    np.testing.assert_allclose(result.compute(), want, rtol=1e-6 if metric == "canberra" else 0)
    blocks = da.from_array(np.tile(dosages(genotypes).T, (2, 1)), chunks=(80, 3000))
    of_blocks = td.pairwise_distance(blocks, metric, missing="rescale", negative=True)
    np.testing.assert_allclose(of_blocks[:40, :40].compute(), want, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("mode", ["constant", "wrap"])
def test_gaussians_of_stores(images, mode):
    kinds = (("f4", 3), None), (("u1", 2), None), (("i8", 2), None), (("?", 3), "f4")
    for (path, array, values), output in ((images[kind], output) for kind, output in kinds):
        for sigma, order in ((1.5, 0), (np.linspace(0, 9, values.ndim), 1)):
            want = teatime.gaussian_filter(values, sigma, order, mode=mode, cval=2, output=output, device="cpu")
            for chunks in (None, 11, -1):
                named = {"array": array} if chunks else {}
                where = path if chunks else os.path.join(path, array)
                got = td.gaussian_filter(where, sigma, order, mode=mode, cval=2, output=output, chunks=chunks, **named)
                assert got.dtype == want.dtype and (chunks != 11 or got.numblocks[0] > 1)
                np.testing.assert_array_equal(got.compute(scheduler="sync"), want, err_msg=str((values.dtype, sigma, chunks)))


@pytest.mark.parametrize("metric", ["euclidean", "correlation"])
def test_distances_of_a_store_in_tiles(many_samples, metric):
    want = genotype.distances(many_samples, metric, device="cpu").matrix
    for samples, chunks in ((1, (64, 64, 22)), (130, (128, 22)), (10**6, (150,))):
        got = td.pairwise_distance(many_samples, metric, samples_per_task=samples)
        assert got.chunks == (chunks, chunks) and got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    some = td.pairwise_distance(many_samples, metric, samples_per_task=64)[100:, :3]
    np.testing.assert_array_equal(some, want[100:, :3])
    tasks = some.__dask_graph__().cull(some.__dask_keys__()).to_dict()
    assert sum("teatime-tiles-" in str(key) for key in tasks) == 1


def test_distances_in_tiles_where_no_worker_holds_them_all(many_samples, monkeypatch):
    known = [{"memory_limit": 800_000, "nthreads": 1}, {"memory_limit": 4 << 30, "nthreads": 2}]
    assert len(td.pairwise_distance(many_samples).chunks[0]) == 1
    monkeypatch.setattr("teatime._tasks.workers", lambda: known)
    assert len(td.pairwise_distance(many_samples).chunks[0]) == 1
    del known[1]
    raises(MemoryError, "150 samples: .* pairs of 64", td.pairwise_distance, many_samples)
    known.append({"memory_limit": 3_000_000, "nthreads": 1})
    known[0]["memory_limit"] = 3_000_000
    assert td.pairwise_distance(many_samples, samples_per_task=64).chunks[0] == (64, 64, 22)
    assert td.pairwise_distance(many_samples, samples_per_task=10**6).chunks[0] == (150,)
    raises(ValueError, "`samples_per_task` of 0", td.pairwise_distance, many_samples, samples_per_task=0)
    raises(NotImplementedError, "`samples_per_task` of canberra", td.pairwise_distance, many_samples, "canberra", samples_per_task=64)


def test_tiles_of_a_store_that_changes_are_told(many_samples, tmp_path):
    path = shutil.copytree(many_samples, tmp_path / "written.zarr")
    bands = _worker.bands_of_store((str(path), None, False, None, None), None, distance_options(missing="ignore"), 64, None, "cpu")
    other = pickle.loads(pickle.dumps(bands))
    np.testing.assert_array_equal(_worker.tiles_of_band(other, 1, 64)[1], _worker.tiles_of_band(bands, 1, 64)[1])
    # The second copy is unpickled after the store was written.
    other = pickle.loads(pickle.dumps(bands))
    shutil.copyfile(path / "call_genotype" / "0.0.0", path / "call_genotype" / "1.0.0")
    raises(RuntimeError, "changed between two tasks", _worker.tiles_of_band, other, 0, 64)


def test_boxes_are_of_whole_chunks():
    from teatime._dask_blocks import _box

    assert _box((50, 1104, 1104), (50, 276, 276), (12, 12, 12), 2**24) == [50, 552, 552]
    assert _box((50, 1104, 1104), (50, 276, 276), (12, 12, 12), 2**25) == [50, 552, 1104]
    assert _box((10, 10), (20, 4), (1, 1), 100) == [10, 10]
    assert _box((10, 10), (20, 4), (1, 1), 1) == [10, 4]
    assert _box((10**6, 10**6), (100, 10**6), (0, 9), 10**8) == [100, 10**6]
    assert _box((0, 5), (1, 1), (3, 3), 8) == [1, 5]
    assert np.prod(_box((10**5, 10**5, 3), (512, 512, 1), (9, 9, 0), 2**24)) == 2**24


def test_what_stored_images_are_filtered_into(images):
    path, array, values = images["u1", 3]
    for options in ({"output": ">f4"}, {"rounding": "scipy"}, {"radius": (3, 0)}, {"narrow": True, "output": "f8"}):
        want = teatime.gaussian_filter(values, 2, device="cpu", **options)
        np.testing.assert_array_equal(td.gaussian_filter(path, 2, array=array, chunks=20, **options), want)
    raises(ValueError, "`chunks` of 0", td.gaussian_filter, path, 2, array=array, chunks=0)
    # The radius exceeds a short axis, which then has one chunk.
    far = td.gaussian_filter(path, 90, mode="wrap", array=array, chunks=20)
    np.testing.assert_array_equal(far, teatime.gaussian_filter(values, 90, mode="wrap", device="cpu"))


def test_stores_without_genotypes_are_named(tmp_path):
    for number, shape in enumerate(((0, 5, 2), (5, 0, 2))):
        path = write(tmp_path / f"none{number}.zarr", "call_genotype", np.empty(shape, "i1"), (1, 1, 2))
        for call in (td.pairwise_distance, td.grm):
            raises(ValueError, f"none{number}.zarr.*variants", call, path)


def test_missing_chunks(store, images, genotypes, tmp_path):
    """They are errors, or with ``fill`` have the fill value: -1 of genotypes, a missing call, and 0 of images."""
    path, array, values = images["u1", 2]
    copy, slide = (str(shutil.copytree(given, tmp_path / name)) for given, name in ((store, "copy.zarr"), (path, "slide.zarr")))
    for folder, key in ((f"{copy}/call_genotype", "1.0.0"), (f"{copy}/call_genotype", "1.1.0"), (f"{slide}/{array}", "1.0")):
        os.unlink(os.path.join(folder, key))
    holed, x, image = genotypes.copy(), np.ones((40, 1)), values.copy()
    holed[1000:2000], image[16:32] = -1, 0
    for call, plain in (
        (lambda **fill: td.pca(copy, 2, method="exact", compute=True, **fill).scores, lambda: genotype.pca(holed, 2, method="exact").scores),
        (lambda **fill: td.pca(copy, 2, method="randomized", compute=True, **fill).counts["used"], lambda: genotype.pca(holed, 2).counts["used"]),
        (lambda **fill: td.grm(copy, compute=True, **fill).matrix, lambda: genotype.grm(holed).matrix),
        (lambda **fill: td.pairwise_distance(copy, compute=True, **fill), lambda: genotype.distances(holed).matrix),
        (lambda **fill: td.pairwise_distance(copy, samples_per_task=64, compute=True, **fill), lambda: genotype.distances(holed).matrix),
        (lambda **fill: blocks.Variants(copy, **fill).normal_product(x), lambda: blocks.Variants(holed).normal_product(x)),
        (lambda **fill: td.gaussian_filter(slide, 1, array=array, compute=True, **fill), lambda: teatime.gaussian_filter(image, 1)),
    ):
        raises(OSError, "1, 0", call)
        np.testing.assert_array_equal(call(fill=True), plain())


def test_bits(rng):
    x = rng.integers(0, 4, (7, 101)).astype("u1")
    for chunks in ((3, 40), (7, 33), (2, 101)):
        packed = td.pack(da.from_array(x, chunks=chunks))
        np.testing.assert_array_equal(packed, teatime.pack(x))
        np.testing.assert_array_equal(td.unpack(packed, 101), x)


def test_nothing_is_computed_before(genotypes):
    def never(block):
        raise AssertionError("computed")

    x = da.map_blocks(never, da.from_array(genotypes, chunks=(4096, 40, 2)), dtype="i1", meta=np.empty((0, 0, 0), "i1"))
    td.pca(x)
    td.grm(x)
    td.pairwise_distance(x[:, :, 0].T)
    td.gaussian_filter(x.astype("f4"), 1)
    td.svd_compressed(x[:, :, 0].astype("f4"), 3)


def test_equal_jobs_have_equal_keys(genotypes):
    x = da.from_array(genotypes, chunks=(4096, 40, 2), name="genotypes")
    assert td.pca(x, 3).scores.name == td.pca(x, 3).scores.name != td.pca(x, 4).scores.name
    part = _worker.part(genotypes, (0, len(genotypes)), len(genotypes), None, genotype.pca_options(3, method="exact"), "cpu")
    assert part.__sizeof__() == 8 * 40 * 41 / 2
    assert any("teatime-part-of-block" in str(key) for key in dict(td.pca(x, 3).scores.__dask_graph__()))


def test_a_store_that_a_worker_does_not_see_is_named(store, images, tmp_path):
    path, image = (shutil.copytree(given, tmp_path / name) for given, name in ((store, "cohort.zarr"), (images["u1", 2][0], "slide.zarr")))
    made = (
        td.pca(path, 3).vectors,
        td.pca(path, 3, method="randomized").vectors,
        td.grm(path).matrix,
        td.pairwise_distance(path),
        td.gaussian_filter(image, 1, array=images["u1", 2][1]),
    )
    for moved in (path, image):
        moved.rename(moved.with_name(f"moved-{moved.name}"))
    for result in made:
        raises(OSError, r"(cohort|slide)\.zarr.*\(seen from .*, process \d+: every worker has to see the store", result.compute)


def test_a_band_is_read_again_elsewhere(store, tmp_path):
    path = shutil.copytree(store, tmp_path / "moved.zarr")
    band = _worker.band((str(path), None, False, None, None), (0, 4096), None, genotype.pca_options(2, method="randomized"), None)
    x, pickled = np.ones((40, 1)), pickle.dumps(band)
    assert len(pickled) < 2000
    np.testing.assert_array_equal(pickle.loads(pickled).product(x).values, band.product(x).values)
    path.rename(tmp_path / "elsewhere.zarr")
    # An error while dask unpickles would never be reported.
    other = pickle.loads(pickled)
    raises(OSError, "every worker has to see the store", _worker.product_of_band, other, x)


def test_genotypes_that_change_between_products_are_told(store, tmp_path):
    path = shutil.copytree(store, tmp_path / "written.zarr")
    options = genotype.pca_options(2, method="randomized")
    bands = [_worker.band((str(path), None, False, None, None), rows, None, options, None) for rows in ((0, 4096), (4096, 9000))]
    shape, svd = (9000, 40), options["svd"]
    iteration = _worker.Iteration(shape, 2, svd)
    x = _worker.next_vectors(iteration, [])
    first = _worker.add_products(*(band.product(x) for band in bands))
    x = _worker.next_vectors(iteration, [first])
    shutil.copyfile(path / "call_genotype" / "6.0.0", path / "call_genotype" / "5.0.0")
    same = _worker.add_products(*(band.product(x) for band in bands))
    assert _worker.next_vectors(iteration, [first, same]) is not None
    again = _worker.add_products(bands[0].product(x), pickle.loads(pickle.dumps(bands[1])).product(x))
    raises(RuntimeError, "changed between two products", _worker.next_vectors, iteration, [first, again])
