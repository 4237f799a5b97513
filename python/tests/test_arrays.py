"""Arrays of every layout and type give what plain ones do; what would change is refused."""

import pickle
import types

import numpy as np
import pytest

import teatime
from teatime import blocks


def layouts(a):
    """The same values, laid out as NumPy, Fortran, the wire and files have them."""
    raw = bytearray(a.nbytes + 3)
    misaligned = np.frombuffer(raw, a.dtype, offset=3, count=a.size).reshape(a.shape)
    misaligned[...] = a
    frozen = a.copy()
    frozen.flags.writeable = False
    wide = np.zeros((a.shape[0] * 2, a.shape[1] * 3), a.dtype)
    wide[::2, ::3] = a
    return {
        "fortran": np.asfortranarray(a),
        "misaligned": misaligned,
        "read-only": frozen,
        "strided": wide[::2, ::3],
        "reversed": np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
        "big-endian": a.astype(a.dtype.newbyteorder(">")),
        "list": a.tolist() if a.dtype == np.float64 else a,
    }


FUNCTIONS = {
    "distance": lambda a: teatime.pairwise_distance(a, metric="cityblock", device="cpu"),
    "between": lambda a: teatime.pairwise_distance(a, a[:2], device="cpu"),
    "filter": lambda a: teatime.gaussian_filter(a, (1.0, 2.0), order=(0, 1), mode=("wrap", "nearest"), device="cpu"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1"])
def test_layouts(rng, name, dtype):
    a = (rng.random((7, 5)) * 100).astype(dtype)
    want = FUNCTIONS[name](a)
    for layout, same in layouts(a).items():
        if name == "between" and isinstance(same, list):
            same = np.array(same)
        got = FUNCTIONS[name](same)
        np.testing.assert_array_equal(got, want, err_msg=layout)
        assert got.dtype.newbyteorder("=") == want.dtype, layout


@pytest.mark.parametrize("layout", ["fortran", "misaligned", "strided"])
def test_layouts_of_decompositions(rng, layout):
    a = rng.standard_normal((12, 5)).astype("f4")
    for svd in (teatime.svd(layouts(a)[layout], device="cpu"), teatime.truncated_svd(layouts(a)[layout], 5, device="cpu")):
        np.testing.assert_allclose((svd.u * svd.s) @ svd.vt, a, atol=1e-5)


def test_bool_is_0_and_1():
    a = np.array([[True, False, True], [False, False, True]])
    assert teatime.pairwise_distance(a, metric="cityblock", device="cpu")[0, 1] == 1
    assert teatime.pack(a, 1, device="cpu").tolist() == [[5], [4]]


def test_integers_of_64_bits_are_float64():
    a = np.array([[0], [2**53]])
    assert teatime.pairwise_distance(a, device="cpu")[0, 1] == 2.0**53
    with pytest.raises(ValueError, match=r"`x`: integers beyond 2\*\*53"):
        teatime.pairwise_distance(a + 1, device="cpu")
    with pytest.raises(ValueError, match=r"`a`: integers beyond 2\*\*53"):
        teatime.svd(a + 1, device="cpu")


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8"])
def test_large_integers_change_only_where_that_is_asked_for(device, dtype):
    x, small = np.array([[2**24], [2**24 + 1]], dtype), np.zeros((1, 1), "i2")
    beyond, no_float64 = r"integers beyond 2\*\*24", f".*{device.name} has no float64"
    calls = [
        (f"`x`: {beyond}{no_float64}", lambda **on: teatime.pairwise_distance(x, **on), [[0, 1], [1, 0]]),
        (f"`x`: {beyond}{no_float64}", lambda **on: teatime.pairwise_distance(np.asfortranarray(x), x.copy(), **on), [[0, 1], [1, 0]]),
        (f"`x`: {beyond}{no_float64}", lambda **on: teatime.pairwise_distance(x, condensed=True, **on), [1]),
        (f"`y`: {beyond}{no_float64}", lambda **on: teatime.pairwise_distance(small, x, **on), x.T),
        (f"`input`: {beyond}{no_float64}", lambda **on: teatime.gaussian_filter(x, 1, axes=1, **on), x),
        (f"`a`: {beyond}", lambda **on: teatime.svd(x[1:], **on).s, [2**24 + 1]),
        (f"`a`: {beyond}", lambda **on: teatime.truncated_svd(x[1:], 1, **on).s, [2**24 + 1]),
    ]
    for words, call, want in calls:
        if device.f64:
            np.testing.assert_allclose(call(device=device), want, rtol=1e-14)
        else:
            with pytest.raises(ValueError, match=words):
                call(device=device)
        np.testing.assert_allclose(call(narrow=True, device=device), want, rtol=1e-6, atol=2)
    assert teatime.pairwise_distance(x[:1], small, "cityblock", device=device) == 2**24


@pytest.mark.parametrize("factor", [1e300, 1.0, 1e-50, 1e-300])
def test_numbers_beyond_float32_are_decomposed(factor):
    a = np.array([[3.0, 0, 0], [0, 2, 0], [0, 0, 1], [0, 0, 0]]) * factor
    for narrow in (True, False):
        for svd in (teatime.svd(a, narrow=narrow, device="cpu"), teatime.truncated_svd(a, 3, narrow=narrow, device="cpu")):
            np.testing.assert_allclose(svd.s / factor, [3, 2, 1], rtol=1e-5)
            np.testing.assert_allclose(svd.u * (svd.s / factor) @ svd.vt, a / factor, atol=1e-5)
        with np.errstate(over="ignore", invalid="ignore"):
            pca = teatime.pca(a, 2, narrow=narrow, device="cpu")
        np.testing.assert_allclose(pca.singular_values / factor, np.linalg.svd(a / factor - a.mean(0) / factor)[1][:2], rtol=1e-5)
    with pytest.raises(ValueError, match="infin"):
        teatime.svd(np.array([[np.inf, factor]]))


@pytest.mark.parametrize("bad", [np.array([[1j]]), np.array([[object()]]), np.array([["a"]]), np.array([[1]], "M8[s]")])
def test_other_types_are_named(bad):
    with pytest.raises(TypeError, match=rf"`x` has the type {bad.dtype}".replace("[", r"\[").replace("<", ".")):
        teatime.pairwise_distance(bad)


def test_dask_arrays_are_refused_by_name():
    da = pytest.importorskip("dask.array")
    x = da.zeros((4, 4))
    for call, instead in [
        (lambda: teatime.pairwise_distance(x), "pairwise_distance"),
        (lambda: teatime.gaussian_filter(x.astype("c8"), 1), "gaussian_filter"),
        (lambda: teatime.svd(x), "svd_compressed"),
        (lambda: teatime.pack(x), "pack"),
        (lambda: teatime.genotype.pca(x), "pca"),
        (lambda: blocks.normal_product(x, np.ones((4, 1)), "cpu"), "svd_compressed"),
        (lambda: blocks.normal_product(np.ones((3, 4)), x, "cpu"), "svd_compressed"),
        (lambda: blocks.Variants(np.ones((4, 4), "i1"), device="cpu").normal_product(x), "svd_compressed"),
        (lambda: blocks.Variants(x, device="cpu"), "pca"),
        (lambda: blocks.Rounds((9, 4), 2).add(x), "svd_compressed"),
    ]:
        with pytest.raises(TypeError, match=f"teatime.dask.{instead}"):
            call()


def test_arrays_of_xarray_in_memory_are_taken(rng):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    a = rng.random((6, 5))
    x = xarray.DataArray(a)
    for function in (teatime.svd, teatime.pairwise_distance, lambda x: teatime.gaussian_filter(x, 1)):
        for got, want in zip(function(x), function(a)):
            np.testing.assert_array_equal(got, want)
    dosages = xarray.DataArray(rng.integers(0, 3, (50, 6)))
    np.testing.assert_array_equal(teatime.genotype.pca(dosages, 2).scores, teatime.genotype.pca(dosages.values, 2).scores)
    if pytest.importorskip("dask", reason="dask is not installed"):
        with pytest.raises(TypeError, match="`input` is a dask array"):
            teatime.gaussian_filter(x.chunk(3), 1)


def test_masks_are_refused(rng):
    mask = np.zeros((50, 6), bool)
    given = {dtype: np.ma.masked_array(rng.integers(0, 3, mask.shape).astype(dtype), mask) for dtype in ("f8", "i8", "i1")}
    calls = [
        lambda: teatime.svd(given["f8"]),
        lambda: teatime.pairwise_distance(given["f8"]),
        lambda: teatime.gaussian_filter(given["f8"], 1),
        lambda: teatime.pack(given["i1"]),
        lambda: teatime.genotype.pca(given["i8"], 2),
        lambda: teatime.genotype.grm(given["i1"]),
        lambda: blocks.normal_product(given["f8"], np.ones((6, 1)), "cpu"),
        lambda: blocks.Variants(given["i1"], device="cpu").normal_product(np.ones((6, 1))),
    ]
    for call in calls:
        call()
    for x in given.values():
        x[3, 2] = np.ma.masked
    for call in calls:
        with pytest.raises(TypeError, match="is a masked array"):
            call()


def test_arrays_of_other_libraries(rng):
    x = rng.random((4, 3))
    lent = types.SimpleNamespace(__dlpack__=x.__dlpack__, __dlpack_device__=x.__dlpack_device__)
    np.testing.assert_array_equal(teatime.pairwise_distance(lent, device="cpu"), teatime.pairwise_distance(x, device="cpu"))


def test_results_are_arrays_like_others():
    x = np.random.default_rng(4).random((300, 200), np.float32)
    result = teatime.gaussian_filter(x, 1, device="cpu")
    kept, part = result.copy(), result[3:5]
    assert result.flags.writeable and result.flags.aligned and result.flags.c_contiguous
    # Memory of an array that is gone serves again, and that of one that is there, or of which a part is, does not.
    del result
    for _ in range(5):
        teatime.gaussian_filter(x + 1, 1, device="cpu")
    part += 1
    np.testing.assert_array_equal(part, kept[3:5] + 1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)), part)


@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_arrays_that_start_anywhere(dtype):
    """The CPU reads arrays where they are, from a multiple of 16 bytes on; others are copied."""
    room = np.random.default_rng(5).integers(0, 9, 65 * 65).astype(dtype)
    for first in (0, 1, 2, 7, 16):
        x = room[first : first + 64 * 64].reshape(64, 64)
        before = x.copy()
        for function in (lambda a: teatime.gaussian_filter(a, 2, device="cpu"), lambda a: teatime.pairwise_distance(a, device="cpu")):
            np.testing.assert_array_equal(function(x), function(before))
        np.testing.assert_array_equal(x, before)
