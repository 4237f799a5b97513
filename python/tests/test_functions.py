"""Each function against NumPy and SciPy, on every device."""

import tracemalloc
import warnings

import numpy as np
import pytest
from conftest import calls, dosages

import teatime
from teatime import _linalg, genotype

scipy = pytest.importorskip("scipy")
from scipy import ndimage  # noqa: E402
from scipy.spatial import distance  # noqa: E402


@pytest.mark.parametrize("shape", [(1, 1), (30, 7), (7, 30), (5, 5)])
def test_svd(device, rng, shape):
    a = rng.standard_normal(shape)
    u, s, vt = teatime.svd(a, device=device)
    near = {"rtol": 1e-13, "atol": 1e-13} if device.f64 else {"rtol": 2e-6, "atol": 1e-6}
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False), **near)
    np.testing.assert_allclose((u * s) @ vt, a, atol=10 * near["atol"])
    np.testing.assert_allclose(teatime.svd(a, narrow=True, device=device).s, s, rtol=2e-6, atol=1e-6)
    assert u.dtype == s.dtype == vt.dtype == np.float64
    assert teatime.svd(a.astype("f4"), device=device).u.dtype == np.float32


def test_truncated_svd(device, rng):
    a = (rng.standard_normal((200, 4)) * [9, 5, 3, 1]) @ rng.standard_normal((4, 80))
    u, s, vt = teatime.truncated_svd(a, 3, device=device)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False)[:3], rtol=1e-12 if device.f64 else 1e-5)
    assert u.shape == (200, 3) and vt.shape == (3, 80)
    for signs in ("u", "v", "stable", "dask"):
        found = teatime.truncated_svd(a, 3, signs=signs, device=device)
        if signs == "dask":
            assert (found.vt.sum(1) >= 0).all()
        elif signs != "stable":
            of = found.u if signs == "u" else found.vt.T
            assert (of[np.abs(of).argmax(0), range(3)] > 0).all()
        turned = teatime.truncated_svd(np.asfortranarray(a), 3, signs=signs, device=device)
        np.testing.assert_allclose(turned.u, found.u, atol=1e-4)
        np.testing.assert_allclose(turned.vt, found.vt, atol=1e-4)


def test_pca(rng):
    a = rng.standard_normal((50, 8)) * np.arange(1, 9) + 100
    found = teatime.pca(a, 8, device="cpu")
    s = np.linalg.svd(a - a.mean(0), compute_uv=False)
    np.testing.assert_allclose(found.singular_values, s, rtol=1e-12)
    np.testing.assert_allclose(teatime.pca(a, 8, narrow=True, device="cpu").singular_values, s, rtol=1e-5)
    np.testing.assert_allclose(found.explained_variance_ratio.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(found.scores @ found.components + found.mean, a, atol=1e-3)


METRICS = ["euclidean", "sqeuclidean", "cityblock", "chebyshev", "cosine", "correlation", "canberra", "braycurtis"]


@pytest.mark.parametrize("metric", METRICS)
def test_distances(device, rng, metric):
    x, y = rng.random((33, 20)), rng.random((5, 20))
    near = {"rtol": 1e-9} if device.f64 else {"rtol": 2e-4, "atol": 2e-6}
    wide = teatime.pairwise_distance(x, y, metric, device=device)
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, distance.cdist(x, y, metric), **near)
    np.testing.assert_array_equal(wide, teatime.pairwise_distance(x, y, metric, narrow=not device.f64, device=device))
    if not device.f64:
        with pytest.raises(ValueError, match="narrow"):
            teatime.pairwise_distance(x, y, metric, narrow=False, device=device)
    narrow = teatime.pairwise_distance(x.astype("f4"), metric=metric, condensed=True, device=device)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, distance.pdist(x, metric), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("metric", [*METRICS, "hamming", "jensenshannon"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8"])
def test_distances_of_integers(device, rng, dtype, metric):
    """As accurate as float64, of which they are, where the device has it."""
    x = rng.integers(0, 100, (12, 3000)).astype(dtype)
    # Close to one another.
    x[1] = x[0]
    x[1, 5] += 1
    near = {"rtol": 1e-12, "atol": 2e-15} if device.f64 else {"rtol": 2e-4, "atol": 2e-6}
    want = distance.cdist(x.astype("f8"), x.astype("f8"), metric)
    for rules in ({}, {"missing": "ignore"} if metric != "jensenshannon" else {}):
        got = teatime.pairwise_distance(x, metric=metric, **rules, device=device)
        assert got.dtype == np.float64
        # Roots of sums that are almost 0 are far less accurate, in scipy too.
        power = 2 if metric == "jensenshannon" else 1
        np.testing.assert_allclose(got**power, want**power, **near)
    if not device.f64:
        with pytest.raises(ValueError, match="narrow"):
            teatime.pairwise_distance(x, metric=metric, narrow=False, device=device)


def test_distances_of_two_types(rng):
    x, y = rng.random((3, 20)).astype("f4"), rng.integers(0, 9, (4, 20)).astype("i1")
    assert teatime.pairwise_distance(x, y, device="cpu").dtype == np.float32
    wide = teatime.pairwise_distance(y, y.astype("i4"), "cosine", device="cpu")
    np.testing.assert_allclose(wide, distance.cdist(y, y, "cosine"), rtol=1e-12, atol=2e-15)


def test_missing_features(device):
    x = np.array([[0, np.nan, 3, 5], [1, 1, -4, 5], [np.nan, -1, np.nan, np.nan]], "f4")
    found, shared = teatime.pairwise_distance(x, missing="ignore", negative=True, return_shared=True, device=device)
    assert found[0, 1] == 1 and found[0, 2] == 0 and shared[0, 1] == 2 and shared[2, 2] == 0


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u1", "i1", "u2", "i2", "i4", "i8", "?"])
def test_gaussians(device, rng, dtype):
    wide = dtype in ("f8", "i4", "i8")
    if not device.f64 and wide:
        with pytest.raises(ValueError, match="narrow"):
            teatime.gaussian_filter(np.zeros(3, dtype), 1, narrow=False, device=device)
    x = (rng.random((9, 14)) * 50).astype(dtype)
    want = ndimage.gaussian_filter(x.astype("f8"), (1.2, 2.1), mode=["mirror", "wrap"], output="f8", truncate=3)
    got = teatime.gaussian_filter(x, (1.2, 2.1), output="f8", mode=["mirror", "wrap"], truncate=3, device=device)
    np.testing.assert_allclose(got, want, atol=1e-12 if wide and device.f64 else 1e-4)
    same = teatime.gaussian_filter(x, 1.2, device=device)
    assert same.dtype == x.dtype and same.shape == x.shape


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_gaussians_round_as_scipy(rng, dtype):
    ends = np.iinfo(dtype)
    # Integers of 64 bits, whose sums have some digits behind the point in float64.
    x = rng.integers(max(ends.min, -(2**40)), min(ends.max, 2**40), (300, 400), dtype, endpoint=True)
    for image in (x, ndimage.gaussian_filter(x.astype("f8"), 3).astype(dtype)):
        want = ndimage.gaussian_filter(image, [1.5, 0.8])
        np.testing.assert_array_equal(teatime.gaussian_filter(image, [1.5, 0.8], rounding="scipy", device="cpu"), want)
    if x.itemsize < 4:
        # In float32 a sum near a whole number may be on its other side.
        got = teatime.gaussian_filter(x, [1.5, 0.8], rounding="scipy", narrow=True, device="cpu")
        off = np.abs(got.astype("i4") - ndimage.gaussian_filter(x, [1.5, 0.8]))
        assert off.max() <= 1 and off.mean() <= (1e-4 if x.itemsize == 1 else 5e-3)


def test_gaussians_round_once():
    assert (teatime.gaussian_filter(np.full((9, 9), 13, "u1"), 2.5, device="cpu") == 13).all()


def test_gaussians_into_arrays(rng):
    x = rng.random((6, 7)).astype("f4")
    want = teatime.gaussian_filter(x, 1, device="cpu")
    out = np.empty((6, 7), "f8")
    assert teatime.gaussian_filter(x, 1, output=out, device="cpu") is out
    np.testing.assert_allclose(out, want, rtol=1e-6)
    teatime.gaussian_filter(x, 1, output=x, device="cpu")
    np.testing.assert_array_equal(x, want)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_bits(device, rng, bits):
    x = rng.integers(0, 2**bits, (3, 11)).astype("u1")
    packed = teatime.pack(x, bits, device=device)
    assert packed.shape == (3, -(-11 * bits // 8))
    np.testing.assert_array_equal(teatime.unpack(packed, 11, bits, device=device), x)
    table = np.arange(2**bits) / 2
    np.testing.assert_array_equal(teatime.unpack(packed, 11, bits, table=table, dtype="f4", device=device), x / 2)


def test_tables_of_any_type():
    x = np.array([0, 1, 1, 0], "u1")
    want = teatime.pack(1 + 2 * x, 4, device="cpu")
    for table in ([1, 3], (1, 3), np.array([1, 3]), np.array([1, 3], "u1"), bytes([1, 3])):
        np.testing.assert_array_equal(teatime.pack(x, 4, table=table, device="cpu"), want)


def test_values_that_do_not_fit_are_counted():
    with pytest.raises(ValueError, match="2 .*4|4 .*2"):
        teatime.pack(np.array([[0, 4, 1, 4]], "u1"), 2, device="cpu")


def test_genotypes(device, rng):
    g = calls(rng, 900, 31)
    d = dosages(g).astype("f8")
    d[d < 0] = np.nan
    mean = np.nanmean(d, axis=1, keepdims=True)
    p = mean / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.nan_to_num((d - mean) / np.sqrt(p * (1 - p)), posinf=0, neginf=0)
    s = np.linalg.svd(z, compute_uv=False)
    for method in ("exact", "randomized"):
        found = genotype.pca(g, 6, method=method, device=device)
        np.testing.assert_allclose(found.singular_values, s[:6], rtol=1e-5)
        assert found.method == method and found.scores.shape == (31, 6)
    relationships = genotype.grm(g, missing="mean", device=device).matrix
    np.testing.assert_allclose(relationships, z.T @ z / 2 / 900, atol=2e-6)
    shared = genotype.distances(g, "cityblock", device=device).shared
    np.testing.assert_array_equal(shared, (~np.isnan(d)).T.astype(int) @ (~np.isnan(d)).astype(int))


def test_alleles_of_distances(device):
    calls = np.array([[[0, 1], [2, 2]], [[0, 0], [1, 2]]], "i1")
    for metric, want in (("cityblock", 4), ("sqeuclidean", 6), ("ibs", 0), ("ibs-of-alleles", 0)):
        found = genotype.distances(calls, metric, device=device)
        assert found.matrix[0, 1] == want and (found.multiallelic, found.merged) == (2, False)
    assert genotype.distances(calls, "cityblock", merge_alleles=True, device=device).matrix[0, 1] == 3
    with pytest.warns(UserWarning, match="2 variants have more than two alleles"):
        assert genotype.distances(calls, "hamming", device=device).merged
    # No sample is near because it lacks calls; sgkit's rule makes one so.
    dosages = np.array([[0, 1, 1], [0, 1, -1]], "i1")
    assert genotype.distances(dosages, "cityblock", device=device).matrix[0].tolist() == [0, 2, 2]
    assert genotype.distances(dosages, "cityblock", missing="ignore", device=device).matrix[0].tolist() == [0, 2, 1]


def test_sums_that_sgkit_asks_for(device, rng, monkeypatch):
    from teatime import _worker, sgkit

    monkeypatch.setattr(_worker, "device", lambda name: device)
    x, y = rng.random((5, 30)), rng.random((4, 30))
    np.testing.assert_allclose(sgkit.correlation_map(x, y)[..., 4], x @ y.T, rtol=1e-5)
    np.testing.assert_allclose(sgkit.euclidean_map(x, y)[..., 0], distance.cdist(x, y, "sqeuclidean"), rtol=1e-5)


def test_haplotypes(rng):
    g = (rng.random((300, 12)) < 0.3).astype("i1")
    found = genotype.pca(g, 3, ploidy=1, device="cpu")
    p = g.mean(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = np.nan_to_num((g - p) / np.sqrt(p * (1 - p)))
    np.testing.assert_allclose(found.singular_values, np.linalg.svd(z, compute_uv=False)[:3], rtol=1e-5)
    with pytest.raises(ValueError, match="`ploidy` of 4"):
        genotype.pca(g, 3, ploidy=4)


@pytest.mark.parametrize("extent", [0, 1])
def test_empty_and_single(extent):
    assert teatime.pairwise_distance(np.zeros((extent, 3), "f4"), device="cpu").shape == (extent, extent)
    assert teatime.gaussian_filter(np.zeros((extent, 3), "f4"), 1, device="cpu").shape == (extent, 3)
    assert teatime.pack(np.zeros((extent, 3), "u1"), device="cpu").shape == (extent, 1)
    assert teatime.svd(np.ones((extent + 1, 1)), device="cpu").s.shape == (1,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: teatime.gaussian_filter([1.0], -1), "`sigma`: -1"),
        (lambda: teatime.gaussian_filter([1.0], np.nan), "`sigma`: NaN"),
        (lambda: teatime.gaussian_filter([1.0], (1, 2)), "`sigma` has 2 values, and 1 axes"),
        (lambda: teatime.gaussian_filter([1.0], 1, order=-1), "`order` is -1"),
        (lambda: teatime.gaussian_filter([1.0], 1, mode="around"), "`mode` is reflect.*'around'|\"around\""),
        (lambda: teatime.gaussian_filter([1.0], 1, axes=3), "`axes`: 3"),
        (lambda: teatime.gaussian_filter([1.0], 1, output="i2"), "`output` of int16"),
        (lambda: teatime.gaussian_filter(1.0, 1), "no axis"),
        (lambda: teatime.pairwise_distance([[1.0]], metric="near"), "`metric` is one of"),
        (lambda: teatime.pairwise_distance([[1.0]], missing="none"), "`missing` is one of"),
        (lambda: teatime.pairwise_distance([1.0]), "has 1 axes"),
        (lambda: teatime.pairwise_distance([[1.0]], [[1.0, 2.0]]), "`x` has 1 features, `y` 2"),
        (lambda: teatime.svd([1.0]), "has 1 axes"),
        (lambda: teatime.svd([[np.nan]]), "NaN"),
        (lambda: teatime.truncated_svd([[1.0]], 2), "2"),
        (lambda: teatime.truncated_svd([[1.0]], 1, signs="plus"), "`signs` is"),
        (lambda: teatime.truncated_svd([[1.0]], -1), "`n_components` is -1"),
        (lambda: teatime.truncated_svd([[1.0]], 1, random_state=-1), "`random_state` is -1"),
        (lambda: teatime.truncated_svd([[1.0]], 1, random_state=2**64), "`random_state` is .*at most"),
        (lambda: teatime.truncated_svd([[1.0]], 1, n_iter=-1), "`n_iter` is -1"),
        (lambda: teatime.truncated_svd([[1.0]], 1, n_oversamples=-1), "`n_oversamples` is -1"),
        (lambda: teatime.pca([[1.0]], 1), "1 observations"),
        (lambda: teatime.pack(np.zeros(3, "u1"), table=[300]), "`table` is 300"),
        (lambda: teatime.pack(np.zeros(3, "u1"), missing=-1), "`missing` is -1"),
        (lambda: teatime.unpack(np.zeros(1, "u1"), -1), "`n` is -1"),
        (lambda: teatime.pack(np.zeros(3, "u1"), 3), "`bits` is 1, 2 or 4"),
        (lambda: teatime.unpack(np.zeros(1, "u1"), 9), "9"),
        (lambda: genotype.pca(np.zeros((3, 3), "i1"), 4), "components"),
        (lambda: genotype.pca(np.zeros(3, "i1")), r"\(variants, samples\)"),
        (lambda: genotype.pca(np.zeros((3, 3), "i1"), scaler="plain"), "`scaler` is one of"),
        (lambda: genotype.pca(np.zeros((3, 3), "i1"), -4), "`n_components` is -4"),
        (lambda: genotype.pca("s3://bucket/store"), "`path` is 's3://bucket/store': stores are read from paths"),
        (lambda: genotype.grm(np.zeros((3, 3), "i1"), "mean"), "`method` is gcta"),
        (lambda: genotype.distances(np.zeros((3, 3), "i1"), missing="none"), "`missing` is one of propagate, ignore, .*none"),
    ],
)
def test_wrong_arguments_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: teatime.truncated_svd([[1.0]], 1, random_state=None), "`random_state` is None"),
        (lambda: teatime.truncated_svd([[1.0]], 1.0), "`n_components` is 1.0"),
        (lambda: genotype.pca(np.zeros((3, 3), "i1"), None), "`n_components` is None"),
        (lambda: teatime.pack(np.zeros(3, "u1"), table=[0.5]), "`table` is 0.5"),
        (lambda: teatime.gaussian_filter([1.0], 1, order=0.5), "`order` is 0.5"),
    ],
)
def test_what_is_no_whole_number_is_named(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_stores(tmp_path):
    with pytest.raises(OSError, match="nothing-here"):
        genotype.pca(tmp_path / "nothing-here")


def test_wrong_devices():
    with pytest.raises(RuntimeError, match="no device `gpu7`"):
        teatime.svd([[1.0]], device="gpu7")
    with pytest.raises(TypeError, match="`device` is"):
        teatime.svd([[1.0]], device=3)


def test_pca_makes_one_copy_in_float32(rng):
    x = rng.random((16_000, 500), dtype="f4") + 1
    tracemalloc.start()
    found = teatime.pca(x, 2, n_iter=1, device="cpu")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert x.nbytes < most < 2 * x.nbytes
    np.testing.assert_allclose(found.mean, x.mean(axis=0, dtype="f8"), rtol=1e-6)
    ratio = found.explained_variance / found.explained_variance_ratio
    np.testing.assert_allclose(ratio, x.var(axis=0, ddof=1, dtype="f8").sum(), rtol=1e-5)


@pytest.mark.parametrize("call", [teatime.truncated_svd, teatime.pca])
def test_what_has_not_converged_is_warned_of(rng, monkeypatch, call):
    options = _linalg.svd_options
    monkeypatch.setattr(_linalg, "svd_options", lambda **given: options(**given, max_passes=3))
    x = rng.random((600, 500), dtype="f4")
    with pytest.warns(UserWarning, match=r"[12] of 2 components have not converged: after 3 passes, above `tol` of 0.0001"):
        call(x, 2, device="cpu")


@pytest.mark.parametrize("mode", ["reflect", "mirror", "nearest", "wrap", "constant"])
def test_gaussians_much_wider_than_the_image(rng, device, mode):
    for dtype, sigma, order in (("f4", 9000, 0), ("f4", (7, 30), (1, 0)), ("f8", 300, (0, 1))):
        x = rng.random((24, 25)).astype(dtype)
        wanted = ndimage.gaussian_filter(x.astype("f8"), sigma, order, mode=mode, cval=0.5)
        found = teatime.gaussian_filter(x, sigma, order, mode=mode, cval=0.5, device=device)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 if dtype == "f8" and device.f64 else 2e-6)


def test_a_derivative_of_unsigned_integers_warns():
    ramp = np.arange(200, 160, -4, dtype="u1")
    with pytest.warns(UserWarning, match="what is negative of a derivative is 0 in uint8"):
        assert not teatime.gaussian_filter(ramp, 1, order=1).any()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.allclose(teatime.gaussian_filter(ramp, 1, order=1, output="f4")[4:-4], -4, atol=0.01)
        teatime.gaussian_filter(ramp, 1)
