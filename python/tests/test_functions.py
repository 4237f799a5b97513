"""Arguments, types, options and errors of each function. The Rust suites hold the numbers; SciPy's are those of ``tests/peers`` too."""

import re
import threading
import tracemalloc
import warnings
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from conftest import bed, calls, dosages, raises, write

import teatime
from teatime import _linalg, genotype

scipy = pytest.importorskip("scipy")
from scipy import ndimage  # noqa: E402
from scipy.cluster import hierarchy  # noqa: E402
from scipy.spatial import distance  # noqa: E402

WIDE = ("f8", "i4", "u4", "i8", "u8")


def test_float64_is_computed_where_a_device_has_it(device, rng):
    x = rng.random((12, 9))
    for function in (
        lambda x, **on: teatime.svd(x, **on).s,
        lambda x, **on: teatime.truncated_svd(x, 3, **on).s,
        lambda x, **on: teatime.pca(x, 3, **on).scores,
        teatime.pairwise_distance,
        lambda x, **on: teatime.gaussian_filter(x, 1, **on),
    ):
        wide, narrow = function(x, device="cpu"), function(x, narrow=True, device=device)
        assert wide.dtype == narrow.dtype == np.float64 and function(x.astype("f4"), device=device).dtype == np.float32
        assert 0 < np.abs(narrow - wide).max() < 1e-4
        if device.f64:
            np.testing.assert_allclose(function(x, device=device), wide, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(function(x, device=device), narrow)
            raises(ValueError, "narrow", function, x, narrow=False, device=device)


@pytest.mark.parametrize("signs", ["u", "v", "stable", "dask"])
def test_truncated_svd_of_either_layout(rng, signs):
    a = (rng.standard_normal((200, 4)) * [9, 5, 3, 1]) @ rng.standard_normal((4, 80))
    u, s, vt = teatime.truncated_svd(a, 3, signs=signs, device="cpu")
    assert (u.shape, s.shape, vt.shape) == ((200, 3), (3,), (3, 80))
    if signs == "dask":
        assert (vt.sum(1) >= 0).all()
    elif signs != "stable":
        vectors = u if signs == "u" else vt.T
        assert (vectors[np.abs(vectors).argmax(0), range(3)] > 0).all()
    turned = teatime.truncated_svd(np.asfortranarray(a), 3, signs=signs, device="cpu")
    np.testing.assert_allclose(turned.u, u, atol=1e-4)
    np.testing.assert_allclose(turned.vt, vt, atol=1e-4)


def test_truncated_svd_of_a_path(rng, tmp_path):
    a = (rng.standard_normal((200, 4)) * [9, 5, 3, 1]) @ rng.standard_normal((4, 80)) + 0.01 * rng.standard_normal((200, 80))
    np.save(tmp_path / "a.npy", a)
    u, s, vt = teatime.truncated_svd(tmp_path / "a.npy", 3, device="cpu", memory="64M")
    theirs = np.linalg.svd(a, full_matrices=False)
    np.testing.assert_allclose(s, theirs[1][:3], rtol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(u * theirs[0][:, :3], 0)), 1, rtol=1e-9)
    np.testing.assert_allclose(u * s, a @ vt.T, atol=1e-9)
    narrow = teatime.truncated_svd(str(tmp_path / "a.npy"), 3, device="cpu", narrow=True)
    np.testing.assert_allclose(narrow.s, s, rtol=1e-6)
    raises(TypeError, "`memory`", teatime.truncated_svd, a, 3, memory="1G")
    a[7, 5] = np.nan
    np.save(tmp_path / "a.npy", a)
    raises(OSError, "1 element is NaN or missing, first in row 7, column 5", teatime.truncated_svd, tmp_path / "a.npy", 3, device="cpu")


def test_svd_and_pca_of_a_path(rng, tmp_path):
    a = rng.standard_normal((60, 9)) * np.arange(1, 10) + 100
    for dtype in ("f8", "f4"):
        np.save(tmp_path / "a.npy", a.astype(dtype))
        tolerance = {"rtol": 1e-11, "atol": 1e-10} if dtype == "f8" else {"rtol": 2e-4, "atol": 2e-3}
        svd = teatime.svd(tmp_path / "a.npy", device="cpu", memory="64M")
        assert svd.u.dtype == dtype and svd.u.shape == (60, 9)
        np.testing.assert_allclose(svd.s, np.linalg.svd(a, compute_uv=False), **tolerance)
        np.testing.assert_allclose(svd.u * svd.s @ svd.vt, a, **tolerance)
        stored, here = teatime.pca(str(tmp_path / "a.npy"), 9, device="cpu"), teatime.pca(a.astype(dtype), 9, device="cpu")
        for name, ours, theirs in zip(stored._fields, stored, here):
            assert ours.dtype == dtype, name
            np.testing.assert_allclose(ours, theirs, err_msg=name, **tolerance)
        np.testing.assert_allclose(here.scores @ here.components + here.mean, a, atol=1e-3)
    np.save(tmp_path / "one.npy", a[:1])
    raises(ValueError, "1 observations", teatime.pca, tmp_path / "one.npy", 1, device="cpu")
    raises(TypeError, "`memory`", teatime.svd, a, memory="1G")


def nearest(distances, k):
    """The k nearest of each row, of equal distances the one with the lower index."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(distances, order, axis=1)


def test_neighbors(rng):
    x, y = rng.standard_normal((30, 7)), rng.integers(0, 9, (50, 7)).astype("u1")
    alone = distance.cdist(x, x)
    np.fill_diagonal(alone, np.inf)
    for found, (indices, distances) in (
        (teatime.neighbors(x, 4, device="cpu"), nearest(alone, 4)),
        (teatime.neighbors(x, 3, y, "cityblock", device="cpu"), nearest(distance.cdist(x, y, "cityblock"), 3)),
        (teatime.neighbors(np.asfortranarray(x), 50, y, "cosine", device="cpu"), nearest(distance.cdist(x, y, "cosine"), 50)),
    ):
        assert found.indices.dtype == np.int64 and found.distances.dtype == np.float64
        np.testing.assert_array_equal(found.indices, indices)
        np.testing.assert_allclose(found.distances, distances, rtol=1e-12)
    assert teatime.neighbors(x.astype("f4"), 1, device="cpu").distances.dtype == np.float32
    for k in (0, 30):
        raises(ValueError, f"{k} of 29 other observations", teatime.neighbors, x, k, device="cpu")
    raises(TypeError, "`storage_options`", teatime.neighbors, x, storage_options={})


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chebyshev", "cosine", "canberra", "braycurtis", "minkowski", "sqeuclidean"])
def test_radius_neighbors(rng, metric):
    neighbors = pytest.importorskip("sklearn.neighbors")
    x, y = rng.random((60, 7)), rng.integers(0, 3, (50, 7)).astype("u1")
    peer = neighbors.NearestNeighbors(algorithm="brute", metric=metric)
    for of_y, among in ((None, x), (y, y.astype("f8"))):
        fitted, query = peer.fit(among), None if of_y is None else x
        distances = np.sort(np.concatenate(fitted.radius_neighbors(query, 1e9, sort_results=True)[0]))
        for radius in (0, distances[len(distances) // 5] * (1 + 1e-9), distances[-3] * (1 - 1e-9), np.inf):
            found = teatime.radius_neighbors(x, radius, of_y, metric, device="cpu")
            assert found.indices.dtype == found.indptr.dtype == np.int64 and found.distances.dtype == np.float64
            split = found.split()
            assert all((np.diff(row) >= 0).all() for row in split.distances)
            for parts, whole in ((split.indices, found.indices), (split.distances, found.distances)):
                assert list(map(len, parts)) == np.diff(found.indptr).tolist()
                np.testing.assert_array_equal(np.concatenate(parts), whole)
            for mode in ("distance", "connectivity"):
                expected = fitted.radius_neighbors_graph(query, radius, mode)
                np.testing.assert_allclose(found.to_scipy(mode).toarray(), expected.toarray(), rtol=1e-9, atol=1e-12)


def test_radius_neighbors_for_estimators(rng):
    """An estimator of scikit-learn's takes the matrix as it is: it does not sort rows."""
    cluster = pytest.importorskip("sklearn.cluster")
    x = np.concatenate([rng.normal(at, 0.2, (40, 2)) for at in (0, 3, 6)])
    graph = teatime.radius_neighbors(x, 0.5, device="cpu").to_scipy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cluster.DBSCAN(eps=0.5, metric="precomputed").fit(graph).labels_
    np.testing.assert_array_equal(found, cluster.DBSCAN(eps=0.5, algorithm="brute").fit(x).labels_)
    similar = teatime.radius_neighbors(x, 9, x[:5], "inner_product", device="cpu")
    assert (x @ x[:5].T >= 9).sum() == len(similar.indices) and (similar.distances >= 9).all() and similar.shape == (120, 5)
    assert teatime.radius_neighbors(np.asfortranarray(x.astype("f4")), device="cpu").distances.dtype == np.float32
    x[3] = np.nan
    assert len(teatime.radius_neighbors(x, np.inf, device="cpu").indices) == 119 * 118


def test_radius_neighbors_refused(rng):
    x = rng.random((300, 3))
    find = partial(teatime.radius_neighbors, x, device="cpu")
    raises(ValueError, "`radius`: -1: a number from 0 on, for euclidean", find, -1)
    raises(ValueError, "`radius`: NaN", find, np.nan)
    raises(ValueError, "near", find, "near")
    raises(MemoryError, "the 89700 neighbors within 9, of 100000 bytes", find, 9, memory=100_000)
    raises(TypeError, "`storage_options`", find, storage_options={})
    raises(ValueError, "`mode` is distance or connectivity", find(0.1).to_scipy, "graph")


def test_distances_and_neighbors_of_paths(rng, tmp_path):
    zarr = pytest.importorskip("zarr")
    x, y = rng.standard_normal((300, 40)).astype("f4"), rng.standard_normal((50, 40))
    np.save(tmp_path / "x.npy", x)
    zarr.create_array(tmp_path / "y.zarr", data=y, chunks=(20, 16))
    few = {"device": "cpu", "memory": "64M"}
    square = teatime.pairwise_distance(tmp_path / "x.npy", metric="cityblock", **few)
    assert square.dtype == np.float32
    np.testing.assert_array_equal(square, teatime.pairwise_distance(x, metric="cityblock", device="cpu"))
    for of_x, of_y in ((tmp_path / "x.npy", tmp_path / "y.zarr"), (x, str(tmp_path / "y.zarr")), (str(tmp_path / "x.npy"), y)):
        np.testing.assert_array_equal(teatime.pairwise_distance(of_x, of_y, **few), teatime.pairwise_distance(x, y, device="cpu"))
        found, expected = teatime.neighbors(of_x, 3, of_y, **few), teatime.neighbors(x, 3, y, device="cpu")
        np.testing.assert_equal(found, expected)
        found, expected = teatime.radius_neighbors(of_x, 8, of_y, **few), teatime.radius_neighbors(x, 8, y, device="cpu")
        assert found.shape == expected.shape == (300, 50) and 100 < len(found.indices) < 15000
        for name in ("indices", "distances", "indptr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    small = rng.integers(0, 9, (20, 40)).astype("u1")
    assert teatime.pairwise_distance(tmp_path / "x.npy", small, **few).dtype == np.float32
    y[3, 5] = np.nan
    zarr.create_array(tmp_path / "z.zarr", data=y, chunks=(20, 16))
    rule = {"missing": "ignore", "return_shared": True}
    expected = teatime.pairwise_distance(y, device="cpu", **rule)
    np.testing.assert_equal(teatime.pairwise_distance(tmp_path / "z.zarr", **few, **rule), expected)
    raises(ValueError, "`condensed`", teatime.pairwise_distance, tmp_path / "x.npy", condensed=True)
    raises(ValueError, "301 of 299 other", teatime.neighbors, tmp_path / "x.npy", 301, **few)
    raises(ValueError, r"`y` is \(observations", teatime.neighbors, tmp_path / "x.npy", 2, np.float64(3))
    raises(OSError, "none.npy", teatime.neighbors, tmp_path / "none.npy", **few)
    raises(ValueError, "40", teatime.neighbors, tmp_path / "x.npy", 2, y[:, 1:], **few)
    raises(MemoryError, "at least", teatime.neighbors, tmp_path / "x.npy", device="cpu", memory=1)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", *WIDE, "?"])
def test_distances_of_types(rng, dtype):
    """Distances are of float64, and as accurate."""
    x = rng.integers(0, 2 if dtype == "?" else 100, (12, 3000)).astype(dtype)
    x[1] = x[0]
    x[1, 5] = not x[1, 5]
    result = teatime.pairwise_distance(x, metric="cosine", device="cpu")
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, distance.cdist(x.astype("f8"), x.astype("f8"), "cosine"), rtol=1e-12, atol=2e-15)


def test_distances_of_two_types(rng):
    x, y = rng.random((3, 20)).astype("f4"), rng.integers(0, 9, (4, 20)).astype("i1")
    assert teatime.pairwise_distance(x, y, device="cpu").dtype == np.float32
    wide = teatime.pairwise_distance(y, y.astype("i4"), "cosine", device="cpu")
    np.testing.assert_allclose(wide, distance.cdist(y, y, "cosine"), rtol=1e-12, atol=2e-15)
    condensed = teatime.pairwise_distance(y, metric="minkowski", p=3, condensed=True, device="cpu")
    np.testing.assert_allclose(condensed, distance.pdist(y, "minkowski", p=3), rtol=1e-9)


def test_expanded_distances(device, rng):
    x, y = rng.normal(10, 1, (130, 40)).astype("f4"), rng.normal(10, 1, (50, 40)).astype("f4")
    for metric in ("euclidean", "cosine"):
        for a, b in ((x, y), (np.asfortranarray(x), np.asfortranarray(y))):
            found = teatime.pairwise_distance(a, b, metric, expanded=True, device=device)
            np.testing.assert_allclose(found, distance.cdist(x.astype("f8"), y.astype("f8"), metric), rtol=1e-5, atol=1e-7)
    square = teatime.pairwise_distance(np.asfortranarray(x), expanded=True, device=device)
    assert (np.diagonal(square) == 0).all() and (square == square.T).all()
    condensed = teatime.pairwise_distance(x, expanded=True, condensed=True, device=device)
    np.testing.assert_array_equal(distance.squareform(condensed), square)
    raises(ValueError, "not of cityblock", teatime.pairwise_distance, x, metric="cityblock", expanded=True, device=device)
    raises(ValueError, "arrays in memory", teatime.pairwise_distance, "x.npy", expanded=True, device=device)


@pytest.mark.parametrize("dtype", ["f2", "f4", "u1", "i1", "u2", "i2", *WIDE, "?"])
def test_gaussians_of_types(rng, dtype):
    x = (rng.random((9, 14)) * 50).astype(dtype)
    options = {"sigma": (1.2, 2.1), "mode": ["mirror", "constant"], "cval": 3, "order": (1, 0), "truncate": 3, "output": "f8"}
    want = ndimage.gaussian_filter(x.astype("f8"), **options)
    np.testing.assert_allclose(teatime.gaussian_filter(x, **options, device="cpu"), want, atol=1e-12 if dtype in WIDE else 1e-4)
    same = teatime.gaussian_filter(x, 1.2, device="cpu")
    assert same.dtype == x.dtype and same.shape == x.shape


@pytest.mark.parametrize("dtype", ["i1", "u4", "u8", "i8"])
def test_gaussians_round_as_scipy(rng, dtype):
    """Integers of 64 bits are rounded between the axes here."""
    ends = np.iinfo(dtype)
    x = rng.integers(max(ends.min, -(2**40)), min(ends.max, 2**40), (300, 400), dtype, endpoint=True)
    want = ndimage.gaussian_filter(x, [1.5, 0.8])
    np.testing.assert_array_equal(teatime.gaussian_filter(x, [1.5, 0.8], rounding="scipy", device="cpu"), want)


def test_gaussians_into_arrays(rng):
    x = rng.random((6, 7)).astype("f4")
    want, out = teatime.gaussian_filter(x, 1, device="cpu"), np.empty((6, 7), "f8")
    assert teatime.gaussian_filter(x, 1, output=out, device="cpu") is out
    np.testing.assert_allclose(out, want, rtol=1e-6)
    teatime.gaussian_filter(x, 1, output=x, device="cpu")
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize(("dtype", "within"), [("c8", 1e-6), ("c16", 1e-14)])
def test_gaussians_of_complex_numbers(rng, dtype, within):
    x = (rng.normal(size=(12, 9)) + 1j * rng.normal(size=(12, 9))).astype(dtype)
    options = {"sigma": 1.5, "order": [0, 1], "mode": "constant", "cval": 2 - 3j}
    want, result = ndimage.gaussian_filter(x, **options), teatime.gaussian_filter(x, **options)
    assert result.dtype == want.dtype and np.abs(result - want).max() <= within
    # The result may be put into an array, such as the input.
    assert teatime.gaussian_filter(x, **options, output=x) is x and np.array_equal(x, result)
    assert teatime.gaussian_filter(x, 1.0, output=np.complex128).dtype == np.complex128


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i2", "u4", "i8", "?"])
def test_denoising_of_types(device, rng, dtype):
    """Integers are shares of their type's largest number, and booleans are 0 and 1, as in skimage."""
    dtype = np.dtype(dtype)
    most = 1.0 if dtype.kind in "fb" else np.iinfo(dtype).max
    image = (rng.random((3, 14, 21)) * (2 if dtype.kind == "b" else min(most, 2.0**50))).astype(dtype)
    wide = str(dtype) in ("float64", "uint32", "int64")
    options = {"eps": 0, "max_num_iter": 6, "narrow": None if device.f64 else True}
    for channel_axis in (None, 0, -1):
        found = teatime.denoise_tv_chambolle(image, weight=0.2, channel_axis=channel_axis, device=device, **options)
        real = image.astype("f8") / most
        channels = [real] if channel_axis is None else np.moveaxis(real, channel_axis, 0)
        alone = [teatime.denoise_tv_chambolle(channel, weight=0.2, device="cpu", eps=0, max_num_iter=6) for channel in channels]
        expected = alone[0] if channel_axis is None else np.stack(alone, channel_axis)
        assert found.dtype == (np.float64 if wide else np.float32)
        np.testing.assert_allclose(found, expected, rtol=0, atol=4e-6 * max(expected.max(), 1e-6))
    raises(ValueError, "weight", teatime.denoise_tv_chambolle, image, weight=0, device=device, **options)
    raises(ValueError, "axes", teatime.denoise_tv_chambolle, image[None], device=device, **options)


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1", "i8"])
@pytest.mark.parametrize("name", ["gaussian_laplace", "gaussian_gradient_magnitude"])
def test_sums_of_derivatives(rng, name, dtype):
    x = (rng.random((9, 14, 5)) * 50).astype(dtype)
    ours, scipys = getattr(teatime, name), getattr(ndimage, name)
    options = {"sigma": (1.2, 2.1, 0.7), "mode": ["mirror", "constant", "wrap"], "cval": 3, "truncate": 3, "output": "f8"}
    within = 1e-12 if dtype in ("f8", "i8") else 1e-4
    np.testing.assert_allclose(ours(x, **options, device="cpu"), scipys(x.astype("f8"), **options), atol=within)
    want = scipys(x.astype("f8")[..., 0], 1.5, radius=4)
    np.testing.assert_allclose(ours(x, 1.5, "f8", axes=(0, 1), radius=4, device="cpu")[..., 0], want, atol=within)
    if dtype != "u1":
        same = ours(x, 1.0, device="cpu")
        assert same.dtype == x.dtype and same.shape == x.shape


def test_sums_of_derivatives_of_other_numbers():
    x = np.array([0, 0, 4 + 8j, 0, 0])
    want = teatime.gaussian_laplace(x.real, 1.0) + 1j * teatime.gaussian_laplace(x.imag, 1.0)
    np.testing.assert_array_equal(teatime.gaussian_laplace(x, 1.0), want)
    raises(TypeError, "complex", teatime.gaussian_gradient_magnitude, x, 1.0)
    with pytest.warns(UserWarning, match="0 in uint8"):
        assert teatime.gaussian_laplace(np.array([0, 0, 200, 0, 0], "u1"), 1.0)[2] == 0


def test_a_derivative_of_unsigned_integers_warns():
    ramp = np.arange(200, 160, -4, dtype="u1")
    with pytest.warns(UserWarning, match="what is negative of a derivative is 0 in uint8"):
        assert not teatime.gaussian_filter(ramp, 1, order=1).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(teatime.gaussian_filter(ramp, 1, order=1, output="f4")[4:-4], -4, atol=0.01)
        teatime.gaussian_filter(ramp, 1)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_bits(rng, bits):
    x = rng.integers(0, 2**bits, (3, 11)).astype("u1")
    packed = teatime.pack(x, bits, device="cpu")
    assert packed.shape == (3, -(-11 * bits // 8))
    np.testing.assert_array_equal(teatime.unpack(packed, 11, bits, device="cpu"), x)
    np.testing.assert_array_equal(teatime.pack(x > 0, bits, device="cpu"), teatime.pack((x > 0).view("u1"), bits, device="cpu"))
    halves = teatime.unpack(packed, 11, bits, table=np.arange(2**bits) / 2, dtype="f4", device="cpu")
    np.testing.assert_array_equal(halves, x / 2)
    for table in ([1, 3], (1, 3), np.array([1, 3]), bytes([1, 3])):
        np.testing.assert_array_equal(teatime.pack(x % 2, 4, table=table, device="cpu"), teatime.pack(1 + 2 * (x % 2), 4, device="cpu"))


def test_genotypes(device, rng):
    g = calls(rng, 900, 31)
    want = genotype.pca(g, 6, method="exact", device=device)
    assert want.method == "exact" and want.scores.shape == (31, 6) and want.counts["total"] == 900
    randomized = genotype.pca(g, 6, method="randomized", device=device)
    np.testing.assert_allclose(randomized.singular_values, want.singular_values, rtol=1e-5)
    d = dosages(g)
    # NumPy's integers are 64-bit by default. In floats, NaN is missing.
    for same, within in ((d, 0), (d.astype("i8"), 0), (np.where(d < 0, np.nan, d), 1e-3)):
        np.testing.assert_allclose(genotype.pca(same, 6, method="exact", device=device).scores, want.scores, rtol=0, atol=within)
    called = (d >= 0).T.astype(int)
    for result in (genotype.grm(g, device=device), genotype.distances(g, "cityblock", device=device)):
        assert result.matrix.shape == (31, 31) and result.counts["total"] == 900
        np.testing.assert_array_equal(result.shared, called @ called.T)
    assert genotype.grm(g, missing="mean", device=device).shared is None


def test_cohorts_are_compared_by_the_variants_that_both_have(tmp_path, rng):
    d = dosages(calls(rng, 400, 21))
    variants = [("1", 10 * (i + 1), "A", "C") for i in range(400)]
    known = bed(tmp_path / "known.bed", d, variants)
    # The new variants have another name of the contig, another order, another counted allele, one variant less and one more.
    order = [*range(200, 400), *range(1, 200)]
    turned = [("chr1", variants[i][1], "C", "A") for i in order] + [("chr2", 5, "A", "C")]
    new = bed(tmp_path / "new.bed", np.vstack([np.where(d < 0, d, 2 - d)[order], d[:1]]), turned)
    between = genotype.distances_between(new, known, "cityblock", device="cpu")
    # The distances are those of the known samples, without the variant that the new store lacks.
    alone = genotype.distances(np.ascontiguousarray(d[1:]), "cityblock", device="cpu")
    np.testing.assert_array_equal(between.matrix, alone.matrix)
    reference, own = between.matched["reference"], between.matched["genotypes"]
    assert (reference["variants"], reference["used"], reference["swapped"], reference["absent"]) == (400, 399, 399, 1)
    assert (own["variants"], own["not_in_reference"]) == (400, 1)
    for match in ("position", "id"):
        projected = genotype.project(known, genotype.open_store(known), 3, match=match, device="cpu")
        np.testing.assert_allclose(projected.scores, projected.reference.scores, rtol=0, atol=1e-4)
    raises(ValueError, "`match` is position or id", genotype.distances_between, new, known, match="place")
    raises(ValueError, "an array does not say which variants it has", genotype.project, d, known, 3, device="cpu")


def test_listed_samples_and_variants(tmp_path, rng):
    d = dosages(calls(rng, 60, 12))
    store = bed(tmp_path / "all.bed", d, [("1", 10 * (i + 1), "A", "C") for i in range(60)])
    kept, taken = [f"s{i}" for i in (7, 1, 2, 9, 10)], [f"v{10 * (i + 1)}" for i in range(60) if i % 5]
    rows, columns = [i for i in range(60) if i % 5 and i not in (1, 2)], [1, 2, 9, 10]
    alone = np.ascontiguousarray(d[rows][:, columns])
    (tmp_path / "keep.txt").write_text("".join(f"f {name}\n" for name in kept))
    (tmp_path / "regions.bed").write_text("chr1 19 30\n")
    for lists in (
        {"keep": kept, "remove": ["s7"], "extract": np.array(taken), "exclude": ["v20", "1:30"]},
        {"keep": tmp_path / "keep.txt", "remove": ("s7",), "extract": iter(taken), "exclude": str(tmp_path / "regions.bed")},
    ):
        lists["extract"] = [*lists["extract"]]
        opened = genotype.open_store(store, **lists)
        assert (opened.names, opened.variants, opened.samples) == (["s1", "s2", "s9", "s10"], len(rows), 4)
        # A store with some samples and variants can lose further ones.
        twice = genotype.open_store(store, keep=lists["keep"], extract=lists["extract"])
        for source, given in ((store, lists), (opened, {}), (twice, {"remove": lists["remove"], "exclude": lists["exclude"]})):
            for function, more in ((genotype.pca, (2,)), (genotype.grm, ()), (genotype.distances, ("cityblock",))):
                ours, theirs = function(source, *more, device="cpu", **given), function(alone, *more, device="cpu")
                name = "scores" if function is genotype.pca else "matrix"
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        between = genotype.distances_between(store, opened, "cityblock", device="cpu", **lists)
        np.testing.assert_array_equal(between.matrix, genotype.distances(alone, "cityblock", device="cpu").matrix)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            projected = genotype.project(store, opened, 2, device="cpu", **lists)
        np.testing.assert_allclose(projected.scores, projected.reference.scores, rtol=0, atol=1e-4)
    # Only files tell families apart.
    (tmp_path / "alone.txt").write_text("s1\n")
    grm = partial(genotype.grm, store, device="cpu")
    raises(ValueError, "`keep`: none of 12 samples is left; 1 of 1 ids", grm, keep=tmp_path / "alone.txt")
    raises(ValueError, "`remove`: none of 5 samples is left", grm, keep=kept, remove=kept)
    raises(ValueError, "`extract`: none of 60 variants is left; 0 of 0 ids", grm, extract=[])
    raises(TypeError, "`exclude` has 3, and ids are text", grm, exclude=["v10", 3])
    raises(TypeError, "`keep` has 3, and ids are text", grm, keep=3)
    raises(OSError, "s1", grm, keep="s1")
    raises(TypeError, "an array has no names", genotype.grm, d, keep=kept)
    with pytest.warns(UserWarning, match="1 of 2 ids of `keep` are of no sample or variant"):
        genotype.open_store(store, keep=["s1", "f s2"])


def test_contigs_of_a_store(tmp_path, rng):
    d = dosages(calls(rng, 60, 12))
    contigs = ["1"] * 20 + ["chr2"] * 15 + ["X"] * 15 + ["3"] * 10
    store = bed(tmp_path / "all.bed", d, [(contig, 10 * (i + 1), "A", "C") for i, contig in enumerate(contigs)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for chosen, rows in (("1-2", range(35)), (["X", "chr3"], range(35, 60)), ("autosomes", [*range(35), *range(50, 60)])):
            opened = genotype.open_store(store, contigs=chosen)
            want = genotype.grm(np.ascontiguousarray(d[rows]), device="cpu").matrix
            np.testing.assert_array_equal(genotype.grm(opened, device="cpu").matrix, want)
        # Lists choose among the variants of the contigs.
        assert genotype.open_store(store, contigs="X,3", exclude=["X:400"]).variants == 24
        # With two autosomes, 3 is another name of X.
        assert genotype.open_store(store, contigs="X", n_autosomes=2).variants == 25
    with pytest.warns(UserWarning, match="no variant is on 7, MT"):
        assert genotype.open_store(store, contigs="1,7,MT").variants == 20
    open_store = partial(genotype.open_store, store)
    raises(ValueError, "`contigs`: \"2-1\": the range `2-1` ends before", open_store, contigs="2-1")
    raises(ValueError, "`contigs`: \"\": a name is missing", open_store, contigs=[])
    raises(ValueError, "`contigs`: no variant is on such a contig; the store has 1, 3, X, chr2", open_store, contigs="Y")
    raises(ValueError, "`n_autosomes`", open_store, n_autosomes=3)
    for count in (0, 96):
        raises(ValueError, f"`n_autosomes`: {count}; it is 1 to 95", open_store, contigs="1", n_autosomes=count)
    raises(TypeError, "`contigs` has 1, and names are text", open_store, contigs=[1, 2])


@pytest.mark.parametrize("method", ["exact", "randomized"])
def test_loadings(tmp_path, rng, method):
    d = dosages(calls(rng, 60, 12))
    d[5] = 1
    store = bed(tmp_path / "all.bed", d, [("1", 10 * (i + 1), "A", "C") for i in range(60)])
    opened = genotype.open_store(store, exclude=["v20"])
    found = genotype.pca(opened, 3, method=method, loadings=True, device="cpu")
    loadings = found.loadings
    # A variant that is left out or does not vary has none.
    varies = [len(set(row[row >= 0])) > 1 for row in d]
    rows = [i for i in range(60) if varies[i] and i != 1]
    np.testing.assert_array_equal(loadings.rows, rows)
    known = np.ma.masked_less(d[rows].astype(float), 0)
    np.testing.assert_allclose(loadings.mean, known.mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(loadings.frequency, loadings.mean / 2, rtol=1e-6)
    scaled = ((known - loadings.mean[:, None]) / loadings.scale[:, None]).filled(0)
    np.testing.assert_allclose(scaled.T @ loadings.loadings, found.scores, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(loadings.loadings, axis=0), 1, rtol=1e-4)
    assert (loadings.contig[:2], loadings.id[:2], loadings.position[:2].tolist()) == (["1", "1"], ["v10", "v30"], [10, 30])
    assert loadings.reference[0] + loadings.alternate[0] in ("AC", "CA")
    table = loadings.to_pandas()
    assert table.index[1] == "v30" and table["PC2"].iloc[1] == loadings.loadings[1, 1] and table["position"].iloc[1] == 30
    assert loadings.to_xarray().sizes == {"variants": len(rows), "components": 3} and f"{len(rows)} variants" in loadings._repr_html_()
    unnamed = genotype.pca(d, 3, method=method, loadings=True, device="cpu").loadings
    assert unnamed.id is None and unnamed.rows[1] == 1 and len(unnamed.to_pandas()) == sum(varies)
    assert genotype.pca(d, 3, device="cpu").loadings is None


def test_distances_of_haplotypes(tmp_path, rng):
    g = calls(rng, 80, 5)
    wide = np.ascontiguousarray(g.reshape(80, 10, 1))
    want = genotype.distances(wide, "cityblock", device="cpu").matrix
    np.testing.assert_array_equal(genotype.distances(g, "cityblock", haplotypes=True, device="cpu").matrix, want)
    write(tmp_path / "calls.zarr", "call_genotype", g, g.shape)
    write(tmp_path / "calls.zarr", "sample_id", np.array([f"s{i}" for i in range(5)]), (5,))
    found = genotype.distances(genotype.open_store(tmp_path / "calls.zarr", keep=["s1", "s3"]), "cityblock", haplotypes=True, device="cpu")
    assert found.names == ["s1_1", "s1_2", "s3_1", "s3_2"]
    np.testing.assert_array_equal(found.matrix, want[np.ix_([2, 3, 6, 7], [2, 3, 6, 7])])
    raises(ValueError, "haplotypes", genotype.distances, dosages(g), haplotypes=True, device="cpu")


@pytest.mark.parametrize("tree", ["single", "complete", "average", "weighted", "ward"])
def test_tree_of_samples(tmp_path, rng, tree):
    g = calls(rng, 80, 7)
    write(tmp_path / "calls.zarr", "call_genotype", g, g.shape)
    write(tmp_path / "calls.zarr", "sample_id", np.array([f"s_{i}" for i in range(7)]), (7,))
    found = genotype.distances(tmp_path / "calls.zarr", tree=tree, device="cpu")
    want = hierarchy.linkage(distance.squareform(found.matrix, checks=False), tree)
    np.testing.assert_allclose(found.linkage, want, rtol=1e-12)
    numbers = genotype.distances(g, tree=tree, device="cpu").newick
    assert found.newick == re.sub(r"([(,])(\d)", r"\1's_\2'", numbers) and found.to_xarray().attrs["newick"] == found.newick
    assert genotype.distances(g[:, :1], tree=tree, device="cpu").linkage.shape == (0, 4)


def test_tree_of_nothing_known(rng):
    raises(ValueError, "`tree` is one of single, .*, not .nj", genotype.distances, calls(rng, 9, 3), tree="nj", device="cpu")
    raises(ValueError, "similarity", genotype.distances, calls(rng, 9, 3), "inner_product", tree="ward", device="cpu")


def test_tables_of_a_bed(tmp_path, rng):
    d = dosages(calls(rng, 20, 6))
    store = bed(tmp_path / "all.bed", d, [("1", 10 * (i + 1), "A", "C") for i in range(20)])
    tables = {ending: (tmp_path / f"all.{ending}").rename(tmp_path / f"other.{ending}") for ending in ("bim", "fam")}
    opened = genotype.open_store(store, **tables, keep=["s1", "s4"])
    assert (opened.names, opened.variants) == (["s1", "s4"], 20)
    raises(OSError, "all.fam", genotype.open_store, store, bim=tables["bim"])
    raises(ValueError, "`fam`: it is a table of a .bed", genotype.open_store, tmp_path, fam=tables["fam"])


def test_absent_variants_are_reference(tmp_path, rng):
    d = dosages(calls(rng, 300, 12))
    variants = [("1", 10 * (i + 1), "A", "C") for i in range(300)]
    known = bed(tmp_path / "known.bed", d, variants)
    # No new sample has a copy of A1 at every third variant.
    new = d.copy()
    new[::3] = 0
    some = [i for i in range(300) if i % 3]
    whole = bed(tmp_path / "whole.bed", new, variants)
    varying = bed(tmp_path / "varying.bed", new[some], [variants[i] for i in some])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = genotype.project(whole, known, 2, device="cpu")
        ours = genotype.project(varying, known, 2, absent="reference", device="cpu")
        turned = genotype.project(varying, genotype.open_store(known).count_allele(0), 2, absent="reference", device="cpu")
    np.testing.assert_array_equal(ours.scores, expected.scores)
    np.testing.assert_array_equal(ours.called, expected.called)
    np.testing.assert_allclose(np.abs(turned.scores), np.abs(expected.scores), rtol=0, atol=1e-5)
    assert ours.as_reference == ours.matched["reference"]["absent"] > 80 and expected.as_reference == 0
    with pytest.warns(UserWarning, match="of the reference's [0-9]+ variants were matched"):
        genotype.project(varying, known, 2, device="cpu")
    project = partial(genotype.project, varying, known, 2, device="cpu")
    raises(ValueError, "`absent` is missing or reference", project, absent="ref")
    raises(ValueError, "`match` of id knows none", project, absent="reference", match="id")
    raises(ValueError, "of which some were left out", project, absent="reference", exclude=["v20"])


def test_alleles_of_distances():
    g = np.array([[[0, 1], [2, 2]], [[0, 0], [1, 2]]], "i1")
    for metric, want in (("cityblock", 4), ("ibs", 0), ("ibs-of-alleles", 0)):
        apart = genotype.distances(g, metric, device="cpu")
        assert apart.matrix[0, 1] == want and (apart.multiallelic, apart.merged) == (2, False)
    assert genotype.distances(g, "cityblock", merge_alleles=True, device="cpu").matrix[0, 1] == 3
    with pytest.warns(UserWarning, match="2 variants have more than two alleles"):
        assert genotype.distances(g, "hamming", device="cpu").merged


def test_haplotypes(rng):
    g = (rng.random((300, 12)) < 0.3).astype("i1")
    haplotypes, calls = (genotype.pca(of, 3, ploidy=1, device="cpu").scores for of in (g, g[:, :, np.newaxis]))
    np.testing.assert_array_equal(haplotypes, calls)
    assert not np.allclose(haplotypes, genotype.pca(g, 3, device="cpu").scores)


@pytest.mark.parametrize("extent", [0, 1])
def test_empty_and_single(extent):
    assert teatime.pairwise_distance(np.zeros((extent, 3), "f4"), device="cpu").shape == (extent, extent)
    assert teatime.gaussian_filter(np.zeros((extent, 3), "f4"), 1, device="cpu").shape == (extent, 3)
    assert teatime.pack(np.zeros((extent, 3), "u1"), device="cpu").shape == (extent, 1)
    assert teatime.svd(np.ones((extent + 1, 1)), device="cpu").s.shape == (1,)


NONE = np.zeros((3, 3), "i1")


def test_wrong_arguments_are_named():
    raises(ValueError, "`sigma`: -1", teatime.gaussian_filter, [1.0], -1)
    raises(ValueError, "`sigma` has 2 values, and 1 axes", teatime.gaussian_filter, [1.0], (1, 2))
    raises(ValueError, "`order` is -1", teatime.gaussian_filter, [1.0], 1, order=-1)
    raises(TypeError, "`order` is 0.5", teatime.gaussian_filter, [1.0], 1, order=0.5)
    raises(ValueError, "`mode` is reflect.*'around'|\"around\"", teatime.gaussian_filter, [1.0], 1, mode="around")
    raises(ValueError, "`axes`: 2 is out of range for an array of 2 axes", teatime.gaussian_filter, NONE, 1, axes=(2,))
    raises(ValueError, "axes must be unique", teatime.gaussian_filter, NONE, 1, axes=(0, -2))
    raises(ValueError, "`output` of int16", teatime.gaussian_filter, [1.0], 1, output="i2")
    raises(ValueError, "it is complex", teatime.gaussian_filter, [1j], 1, output=np.float32)
    raises(ValueError, "of one shape", teatime.gaussian_filter, [1j], 1, output=np.zeros(2, complex))
    raises(ValueError, "no axis", teatime.gaussian_filter, 1.0, 1)
    raises(ValueError, "`metric` is one of", teatime.pairwise_distance, [[1.0]], metric="near")
    raises(ValueError, "`missing` is one of", teatime.pairwise_distance, [[1.0]], missing="none")
    raises(ValueError, "has 1 axes", teatime.pairwise_distance, [1.0])
    raises(ValueError, "`x` has 1 features, `y` 2", teatime.pairwise_distance, [[1.0]], [[1.0, 2.0]])
    raises(ValueError, "has 1 axes", teatime.svd, [1.0])
    raises(ValueError, "NaN", teatime.svd, [[np.nan]])
    raises(ValueError, "`signs` is", teatime.truncated_svd, [[1.0]], 1, signs="plus")
    raises(ValueError, "`n_components` is -1", teatime.truncated_svd, [[1.0]], -1)
    raises(TypeError, "`n_components` is 1.0", teatime.truncated_svd, [[1.0]], 1.0)
    raises(TypeError, "`random_state` is None", teatime.truncated_svd, [[1.0]], 1, random_state=None)
    raises(ValueError, "`random_state` is .*at most", teatime.truncated_svd, [[1.0]], 1, random_state=2**64)
    raises(ValueError, "`n_iter` is -1", teatime.truncated_svd, [[1.0]], 1, n_iter=-1)
    raises(ValueError, "1 observations", teatime.pca, [[1.0]], 1)
    raises(ValueError, "`table` is 300", teatime.pack, np.zeros(3, "u1"), table=[300])
    raises(ValueError, "`missing` is -1", teatime.pack, np.zeros(3, "u1"), missing=-1)
    raises(ValueError, "`bits` is 1, 2 or 4", teatime.pack, np.zeros(3, "u1"), 3)
    raises(ValueError, "`n` is -1", teatime.unpack, np.zeros(1, "u1"), -1)
    raises(ValueError, r"\(variants, samples\)", genotype.pca, np.zeros(3, "i1"))
    raises(ValueError, "`scaler` is one of", genotype.pca, NONE, scaler="plain")
    raises(ValueError, "`n_components` is -4", genotype.pca, NONE, -4)
    raises(ValueError, "`ploidy` of 4", genotype.pca, NONE, 3, ploidy=4)
    raises(OSError, "ftp://host/store: is a URL of another scheme than s3://", genotype.pca, "ftp://host/store")
    raises(OSError, "nothing-here", genotype.pca, "nothing-here")
    raises(ValueError, "`method` is gcta", genotype.grm, NONE, "mean")
    raises(ValueError, "`missing` is one of propagate, ignore, .*none", genotype.distances, NONE, missing="none")
    raises(RuntimeError, "no device `gpu7`", teatime.svd, [[1.0]], device="gpu7")
    raises(TypeError, "`device` is", teatime.svd, [[1.0]], device=3)


def test_pca_makes_one_copy_in_float32(rng):
    x = rng.random((16_000, 500), dtype="f4") + 1
    tracemalloc.start()
    pca = teatime.pca(x, 2, n_iter=1, device="cpu")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert x.nbytes < most < 2 * x.nbytes
    np.testing.assert_allclose(pca.mean, x.mean(axis=0, dtype="f8"), rtol=1e-6)
    variance = pca.explained_variance / pca.explained_variance_ratio
    np.testing.assert_allclose(variance, x.var(axis=0, ddof=1, dtype="f8").sum(), rtol=1e-5)


@pytest.mark.parametrize("call", [teatime.truncated_svd, teatime.pca])
def test_what_has_not_converged_is_warned_of(rng, monkeypatch, call):
    options = _linalg.svd_options
    monkeypatch.setattr(_linalg, "svd_options", lambda **given: options(**given, max_passes=3))
    x = rng.random((600, 500), dtype="f4")
    with pytest.warns(UserWarning, match=r"[12] of 2 components have not converged: after 3 passes, above `tol` of 0.0001"):
        call(x, 2, device="cpu")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


def test_stores_behind_urls(tmp_path, rng):
    x = calls(rng, 40, 12)
    np.save(tmp_path / "x.npy", x[:, :, 0].astype("f4"))
    write(tmp_path / "x.zarr", "x", x, (20, 12, 2))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x.zarr/x"
        expected, found = (genotype.pca(place, 3, device="cpu").scores for place in (tmp_path / "x.zarr" / "x", url))
        np.testing.assert_array_equal(found, expected)
        opened = genotype.open_store(url, storage_options={"max_retries": 0, "skip_signature": True})
        np.testing.assert_array_equal(genotype.pca(opened, 3, device="cpu").scores, expected)
        s = teatime.truncated_svd(tmp_path / "x.npy", 2, device="cpu").s
        # This server has no ranges.
        url = url.replace("x.zarr/x", "x.npy")
        np.testing.assert_array_equal(teatime.truncated_svd(url, 2, device="cpu", storage_options={"fetches": 2}).s, s)
        raises(OSError, "`region` is not an option", teatime.truncated_svd, url, 2, storage_options={"region": "x"})
        server.shutdown()
    raises(ValueError, "`out` is 's3://bucket/x': results are written to disks alone", teatime.map_overlap, lambda x: x, x, "s3://bucket/x")
