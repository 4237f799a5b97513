"""Arrays of every layout and type give what plain ones do; what would change is refused."""

import pickle
import types

import numpy as np
import pytest
from conftest import raises

import teatime
from teatime import blocks, genotype


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


def test_integers_of_64_bits_are_float64():
    a = np.array([[0], [2**53]])
    assert teatime.pairwise_distance(a, device="cpu")[0, 1] == 2.0**53
    raises(ValueError, r"`x`: integers beyond 2\*\*53", teatime.pairwise_distance, a + 1, device="cpu")
    raises(ValueError, r"`a`: integers beyond 2\*\*53", teatime.svd, a + 1, device="cpu")


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
            raises(ValueError, words, call, device=device)
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
    raises(ValueError, "infin", teatime.svd, np.array([[np.inf, factor]]))


@pytest.mark.parametrize("bad", [np.array([[1j]]), np.array([[object()]]), np.array([["a"]]), np.array([[1]], "M8[s]")])
def test_other_types_are_named(bad):
    raises(TypeError, rf"`x` has the type {bad.dtype}".replace("[", r"\[").replace("<", "."), teatime.pairwise_distance, bad)


#: Calls with an array of two axes, with its type and the name of the function in teatime.dask.
TAKERS = [
    ("f8", "pairwise_distance", teatime.pairwise_distance),
    ("f8", "gaussian_filter", lambda x: teatime.gaussian_filter(x, 1)),
    ("f8", "svd_compressed", teatime.svd),
    ("i1", "pack", teatime.pack),
    ("i8", "pca", lambda x: genotype.pca(x, 2).scores),
    ("i1", "grm", lambda x: genotype.grm(x).matrix),
    ("f8", "svd_compressed", lambda x: blocks.normal_product(x, np.ones((6, 1)), "cpu")),
    ("f8", "svd_compressed", lambda x: blocks.normal_product(np.ones((3, 50)), x, "cpu")),
    ("i1", "pca", lambda x: blocks.Variants(x, device="cpu").normal_product(np.ones((6, 1)))),
    ("f8", "svd_compressed", lambda x: blocks.Variants(np.ones((4, 50), "i1"), device="cpu").normal_product(x)),
    ("f8", "svd_compressed", lambda x: blocks.Rounds((9, 50), 2).add(x)),
]


@pytest.mark.parametrize(("dtype", "instead", "call"), TAKERS)
def test_lazy_and_masked_arrays_are_refused_and_others_are_taken(rng, dtype, instead, call):
    x = rng.integers(0, 3, (50, 6)).astype(dtype)
    masked = np.ma.masked_array(x, np.zeros(x.shape, bool))
    call(masked)
    masked[3, 2] = np.ma.masked
    raises(TypeError, "is a masked array", call, masked)
    da = pytest.importorskip("dask.array")
    raises(TypeError, f"teatime.dask.{instead}", call, da.from_array(x))
    in_memory = pytest.importorskip("xarray", reason="xarray is not installed").DataArray(x)
    np.testing.assert_equal(call(in_memory), call(x))
    raises(TypeError, "is a dask array", call, in_memory.chunk(3))


def test_arrays_of_other_libraries(rng):
    x = rng.random((4, 3))
    lent = types.SimpleNamespace(__dlpack__=x.__dlpack__, __dlpack_device__=x.__dlpack_device__)
    np.testing.assert_array_equal(teatime.pairwise_distance(lent, device="cpu"), teatime.pairwise_distance(x, device="cpu"))


def test_results_are_arrays_like_others():
    x = np.random.default_rng(4).random((300, 200), np.float32)
    result = teatime.gaussian_filter(x, 1, device="cpu")
    kept, part = result.copy(), result[3:5]
    assert result.flags.writeable and result.flags.aligned and result.flags.c_contiguous
    # The memory of a deleted array is used again. The memory of one that exists, or of which a part exists, is not.
    del result
    for _ in range(5):
        teatime.gaussian_filter(x + 1, 1, device="cpu")
    part += 1
    np.testing.assert_array_equal(part, kept[3:5] + 1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)), part)
