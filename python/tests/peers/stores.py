"""Arrays that zarr-python makes for its own tests, and those of numcodecs' tests with each of its codecs, as we read them."""

import importlib
import json
import re
import shutil
import tempfile

import numpy as np
import pytest
import zarr
import zarr.testing.strategies as strategies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zarr.storage import LocalStore

import teatime.dask

#: Codecs that are read, for bytes and values alike. Others are refused by name.
READ = {"blosc", "gzip", "zlib", "zstd"}


def read(path):
    """The whole array: filtered by nothing."""
    return teatime.dask.gaussian_filter(path, 0, fill=True).compute(scheduler="synchronous")


def check(path, expected):
    """Looks that an array is read as zarr-python has it, or, of a type that is no number, refused by the type's name."""
    # A filter takes integers of 64 bits as float64.
    rounded = expected.dtype.kind in "iu" and ((expected > 2**53 - 1) | (expected.astype("f8") < -(2**53) + 1)).any()
    if expected.dtype.kind not in "biuf" or rounded:
        with pytest.raises((ValueError, OSError)) as refused:
            read(path)
        assert re.search("is above|is below" if rounded else "type|strings", str(refused.value)), refused.value
    else:
        np.testing.assert_array_equal(read(path), expected)


FOLDERS = st.builds(lambda: LocalStore(tempfile.mkdtemp(prefix="teatime-")))
#: Attributes without lone surrogates, which only Python takes for text.
ATTRIBUTES = strategies.attrs.filter(lambda attributes: not re.search(r"\\ud[89a-f]", json.dumps(attributes)))


@settings(max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(strategies.arrays(stores=FOLDERS, attrs=ATTRIBUTES))
def test_arrays_of_zarrs_own_strategy(array):
    folder = array.store.root
    try:
        check(folder / array.path, array[...])
    finally:
        shutil.rmtree(folder)


def codecs_of(name):
    module = importlib.import_module(f"numcodecs.tests.test_{name}")
    codecs = getattr(module, "codecs", None) or [module.codec]
    return [(codec, array) for codec in codecs if codec is not None for array in module.arrays]


@pytest.mark.parametrize("name", ["blosc", "zstd", "gzip", "zlib", "bz2", "lz4", "lzma"])
def test_arrays_and_codecs_of_numcodecs(tmp_path, name):
    for place, (codec, array) in enumerate(codecs_of(name)):
        if array.dtype.kind not in "biuf":
            continue
        order = "F" if array.flags.f_contiguous and array.ndim > 1 else "C"
        path = tmp_path / str(place)
        chunks = tuple(-(-extent // 2) for extent in array.shape)
        zarr.create_array(path, shape=array.shape, dtype=array.dtype, chunks=chunks, order=order, zarr_format=2, compressors=codec)[...] = array
        if codec.codec_id in READ:
            check(path, array)
        else:
            with pytest.raises(OSError, match=f"codec `{codec.codec_id}` is not supported"):
                read(path)
