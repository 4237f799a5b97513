"""Gaussian filters of complex numbers, against scipy."""

import numpy as np
import pytest

import teatime

ndimage = pytest.importorskip("scipy.ndimage", reason="scipy is not installed")


@pytest.mark.parametrize(("dtype", "within"), [("c8", 1e-6), ("c16", 1e-14)])
@pytest.mark.parametrize("mode", ["reflect", "constant"])
def test_both_parts(dtype, within, mode):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(12, 9)) + 1j * rng.normal(size=(12, 9))).astype(dtype)
    expected = ndimage.gaussian_filter(x, 1.5, order=[0, 1], mode=mode, cval=2 - 3j)
    found = teatime.gaussian_filter(x, 1.5, order=[0, 1], mode=mode, cval=2 - 3j)
    assert found.dtype == expected.dtype
    assert np.abs(found - expected).max() <= within
    # Into an array, which may be the input.
    assert teatime.gaussian_filter(x, 1.5, order=[0, 1], mode=mode, cval=2 - 3j, output=x) is x
    assert np.array_equal(x, found)
    assert teatime.gaussian_filter(x, 1.0, output=np.complex128).dtype == np.complex128


def test_bad_outputs():
    x = np.zeros((3, 4), np.complex64)
    with pytest.raises(ValueError, match="it is complex"):
        teatime.gaussian_filter(x, 1, output=np.float32)
    with pytest.raises(ValueError, match="of one shape"):
        teatime.gaussian_filter(x, 1, output=np.zeros((4, 3), np.complex64))


def test_dask_arrays_are_refused():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    with pytest.raises(TypeError, match="teatime.dask.gaussian_filter"):
        teatime.gaussian_filter(da.zeros((3, 4), dtype="c8"), 1)


def test_axes_in_words_of_scipy():
    with pytest.raises(ValueError, match="out of range for an array of 2 axes"):
        teatime.gaussian_filter(np.zeros((3, 4)), 1, axes=(2,))
    with pytest.raises(ValueError, match="axes must be unique"):
        teatime.gaussian_filter(np.zeros((3, 4)), 1, axes=(0, -2))
