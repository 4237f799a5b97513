"""Arrays in the memory of GPUs: our own, and those of a CuPy that stands for the real one."""

import contextlib
import ctypes
import gc
import pickle
import sys
import types

import numpy as np
import pytest
from conftest import opened, raises

import teatime
from teatime import blocks
from teatime._arrays import on_host


TYPES = ("f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4")


@pytest.fixture(scope="module")
def card():
    return opened("cuda:0")


class _Lent:
    """An array of another library's, of which only the interface is known."""

    def __init__(self, array, **interface):
        self.array, self.interface = array, interface

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.interface}


#: Functions with their arguments: (function of an array, type, shape).
FUNCTIONS = {
    "gaussian_filter": (lambda x, **on: teatime.gaussian_filter(x, 1.5, mode="wrap", **on), "f4", (33, 20)),
    "gaussian_filter of bytes": (lambda x, **on: teatime.gaussian_filter(x, 2, output="f4", **on), "u1", (7, 9)),
    "pairwise_distance": (lambda x, **on: teatime.pairwise_distance(x, metric="cosine", **on), "i4", (9, 12)),
    "pairwise_distance of two": (lambda x, **on: teatime.pairwise_distance(x, x, "cityblock", **on), "f8", (9, 12)),
    "condensed": (lambda x, **on: teatime.pairwise_distance(x, condensed=True, **on), "i2", (9, 12)),
    "truncated_svd": (lambda x, **on: teatime.truncated_svd(x, 3, **on), "f4", (50, 20)),
    "svd": (lambda x, **on: teatime.svd(x, **on), "f8", (20, 12)),
    "pack": (lambda x, **on: teatime.pack(x, **on), "u1", (5, 13)),
    "unpack": (lambda x, **on: teatime.unpack(x, 27, dtype="f2", **on), "u1", (5, 7)),
}


def _values(dtype, shape):
    rng = np.random.default_rng(11)
    return (rng.random(shape) * 4).astype(dtype) if dtype[0] == "f" else rng.integers(0, 4, shape).astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_where_arguments_are(name, card):
    function, dtype, shape = FUNCTIONS[name]
    x = _values(dtype, shape)
    given, want = teatime.to_cuda(x), function(x, device=card)
    for argument in (given, _Lent(given), _Lent(given, stream=2)):
        result = function(argument)
        for part, expected in zip(result, want) if isinstance(want, tuple) else [(result, want)]:
            assert isinstance(part, teatime.CudaArray) and part.device == "cuda:0"
            assert (part.dtype, part.shape, part.ndim) == (expected.dtype, expected.shape, expected.ndim)
            np.testing.assert_array_equal(part.get(), expected)
    np.testing.assert_array_equal(given.get(), x)


def test_neighbors_are_where_arguments_are(card):
    x = _values("f4", (9, 12))
    on, within = teatime.to_cuda(x), teatime.radius_neighbors(x, 4.5, device=card)
    found = teatime.radius_neighbors(_Lent(on), 4.5)
    assert found.shape == (9, 9) and 0 < len(within.indices) < 72
    pairs = [(getattr(found, name), getattr(within, name)) for name in ("indptr", "indices", "distances")]
    for part, expected in [*pairs, *zip(teatime.neighbors(on, 3, on, "cityblock"), teatime.neighbors(x, 3, x, "cityblock", device=card))]:
        assert isinstance(part, teatime.CudaArray) and part.shape == expected.shape
        assert part.dtype == (expected.dtype if expected.dtype == "f4" else "i4")
        np.testing.assert_array_equal(part.get(), expected)
    for part, expected in zip(found.split(), within.split()):
        assert all(map(np.array_equal, part, expected))
    scipy = pytest.importorskip("scipy")
    assert isinstance(found.to_scipy(), scipy.sparse.csr_matrix) and not (found.to_scipy() != within.to_scipy()).nnz


def test_arrays_come_and_go(card):
    before = card.allocated
    for dtype in TYPES:
        x = _values(dtype, (3, 5))
        on = teatime.to_cuda(x, card)
        assert on.dtype == x.dtype and card.allocated > before
        np.testing.assert_array_equal(on.get(), x)
    assert repr(on) == "teatime.CudaArray((3, 5), uint32, \"cuda:0\")"
    np.testing.assert_array_equal(teatime.to_cuda(np.ones((2, 2), bool)).get(), np.ones((2, 2), "u1"))
    none = teatime.to_cuda(np.ones((0, 4), "f4"))
    assert none.__cuda_array_interface__["data"][0] == 0 and none.get().shape == (0, 4)
    assert teatime.gaussian_filter(none, 1).shape == (0, 4)
    kept = teatime.gaussian_filter(teatime.to_cuda(np.ones((4, 4), "f4")), 1)
    del on, none
    gc.collect()
    np.testing.assert_allclose(kept.get(), 1, rtol=1e-6)
    del kept
    gc.collect()
    assert card.allocated == before


def test_results_are_used_where_they_are(card):
    """Of what another library's array is, only the memory is read, and what it is a view of stays."""
    x = _values("u1", (64, 16))
    whole = teatime.to_cuda(x)
    start, _ = whole.__cuda_array_interface__["data"]
    for first in (0, 1, 3, 62):
        part = _Lent(whole, shape=(64 - first, 16), data=(start + 16 * first, True), strides=(16, 1))
        np.testing.assert_array_equal(teatime.gaussian_filter(part, 1).get(), teatime.gaussian_filter(x[first:], 1, device=card))
    odd = _Lent(whole, shape=(7, 3), data=(start + 5, False), strides=None)
    np.testing.assert_array_equal(teatime.pack(odd).get(), teatime.pack(x.reshape(-1)[5:26].reshape(7, 3), device=card))
    block = _values("f4", (20, 6))
    want = blocks.normal_product(block, np.ones((6, 2)), "cuda:0")
    np.testing.assert_array_equal(blocks.normal_product(teatime.to_cuda(block), np.ones((6, 2))), want)
    wide = block.astype("f8")
    product = blocks.normal_product(teatime.to_cuda(wide), np.ones((6, 2)), "cpu")
    np.testing.assert_array_equal(product, blocks.normal_product(wide, np.ones((6, 2)), "cpu"))


@pytest.mark.parametrize("scale", [1e-25, 1e18])
def test_decompositions_of_small_and_large_numbers(scale, card):
    x = _values("f4", (12, 8)) * np.float32(scale)
    for function in (teatime.svd, lambda x: teatime.truncated_svd(x, 3)):
        for part, want in zip(function(teatime.to_cuda(x)), function(x)):
            assert part.dtype == "f4"
            np.testing.assert_allclose(part.get(), want, rtol=1e-4, atol=1e-5 * scale if want.ndim == 1 else 1e-4)
    assert not teatime.svd(teatime.to_cuda(np.zeros((3, 3), "f4"))).s.get().any()


def test_what_cannot_be_taken_is_refused(card):
    x = teatime.to_cuda(_values("f4", (6, 5)))
    interface = x.__cuda_array_interface__
    raises(ValueError, "`input` is in the memory of cuda:0, and `device` is cpu", teatime.gaussian_filter, x, 1, device="cpu")
    raises(ValueError, "`x` is in the memory of cuda:0, and `y` is not", teatime.pairwise_distance, x, x.get())
    raises(TypeError, "is not converted", teatime.pairwise_distance, x, teatime.to_cuda(_values("f8", (6, 5))))
    raises(TypeError, "is not converted to float64", teatime.svd, teatime.to_cuda(_values("i4", (6, 5))))
    raises(TypeError, "`input` has the type <i8", teatime.gaussian_filter, _Lent(x, typestr="<i8"), 1)
    raises(TypeError, "`input` has the type >f4", teatime.gaussian_filter, _Lent(x, typestr=">f4"), 1)
    raises(TypeError, "`input` has the type :", teatime.gaussian_filter, _Lent(x, typestr=""), 1)
    raises(ValueError, "`a` is not in C order", teatime.svd, _Lent(x, strides=(4, 24)))
    words = "`output` is <class 'teatime.CudaArray'>: a type, or an array of NumPy's or CuPy's"
    raises(TypeError, words, teatime.gaussian_filter, x, 1, output=x)
    raises(TypeError, r"get\(\) gives NumPy's", np.asarray, x)
    raises(TypeError, "`a` is a masked array", teatime.svd, _Lent(x, mask=x))
    none = _Lent(types.SimpleNamespace(__cuda_array_interface__={}))
    raises(TypeError, "`x`: its __cuda_array_interface__ has no", teatime.pack, none)
    raises(ValueError, "0x10 is in the memory of no CUDA device", teatime.pack, _Lent(x, data=(16, False)))
    raises(ValueError, "`device` is cpu, which is no CUDA GPU", teatime.to_cuda, np.ones(3), "cpu")
    raises(TypeError, r"`genotypes` is in the memory of a GPU: hand over `genotypes.get\(\)`", teatime.genotype.pca, x, 2)
    tensor = type("Tensor", (_Lent,), {"cpu": None})(x)
    raises(TypeError, r"hand over `genotypes.cpu\(\)`", teatime.genotype.pca, tensor, 2)
    raises(TypeError, r"`x` is in the memory of a GPU", teatime.pca, x, 2)
    raises(TypeError, "pickle", pickle.dumps, x)
    assert x.__cuda_array_interface__ == interface


def test_arrays_of_several_gpus_do_not_meet(card):
    opened("cuda:1")
    x = _values("f4", (6, 5))
    one, other = teatime.to_cuda(x, "cuda:0"), teatime.to_cuda(x, "cuda:1")
    assert teatime.gaussian_filter(_Lent(other), 1).device == "cuda:1"
    raises(ValueError, "`x` is in the memory of cuda:0, and `y` is not", teatime.pairwise_distance, one, other)


def test_the_current_gpu_is_left_as_it_was(card):
    """What CuPy and PyTorch take for the current GPU is the thread's context."""
    opened("cuda:1")
    driver = ctypes.CDLL(None)
    if not hasattr(driver, "cuCtxGetCurrent"):
        driver = ctypes.CDLL("libcuda.so.1")

    def current():
        context = ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    first = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(first), 0) == 0
    before = current()
    try:
        for context in (first, ctypes.c_void_p()):
            assert driver.cuCtxSetCurrent(context) == 0
            x = teatime.to_cuda(_values("f4", (6, 5)), teatime.Device("cuda:1", threads=1))
            teatime.pairwise_distance(teatime.gaussian_filter(_Lent(x), 1)).get()
            blocks.Variants(np.ones((4, 3), "i1"), device="cuda:1").normal_product(np.ones((3, 1)))
            with pytest.raises(ValueError):
                teatime.truncated_svd(x, 9)
            del x
            gc.collect()
            assert current() == context.value
    finally:
        driver.cuCtxSetCurrent(ctypes.c_void_p(before))


class _OnCard:
    """An array of CuPy's, as far as it is looked at."""

    def __init__(self, array):
        self.array = array

    def __getattr__(self, name):
        if name not in ("__cuda_array_interface__", "dtype", "get", "nbytes", "ndim", "shape", "size"):
            raise AttributeError(name)
        return getattr(self.array.get() if name in ("nbytes", "size") else self.array, name)

    @property
    def device(self):
        return types.SimpleNamespace(id=int(self.array.device[5:]), synchronize=lambda: None)

    def __getitem__(self, where):
        return _OnCard(teatime.to_cuda(self.get()[where], self.array.device))

    def __setitem__(self, where, values):
        filled = self.get()
        filled[where] = values.get() if isinstance(values, _OnCard) else values
        self.array = teatime.to_cuda(filled, self.array.device)


_OnCard.__module__ = "cupy"


@pytest.fixture
def cupy(monkeypatch):
    for name in ("cuda:1", "cuda:2"):
        opened(name)
    current = [0]

    @contextlib.contextmanager
    def on(card):
        current.append(card)
        yield
        current.pop()

    def asarray(x):
        if isinstance(x, teatime.CudaArray) and int(x.device[5:]) == current[-1]:
            return _OnCard(x)
        if isinstance(x, _OnCard) and x.device.id == current[-1]:
            return x
        return _OnCard(teatime.to_cuda(x if isinstance(x, np.ndarray) else x.get(), f"cuda:{current[-1]}"))

    module = types.ModuleType("cupy")
    module.asarray, module.ascontiguousarray, module.cuda = asarray, lambda x: x, types.SimpleNamespace(Device=on)
    # dask looks for this class when it is imported.
    module.ndarray = _OnCard
    monkeypatch.setitem(sys.modules, "cupy", module)
    return lambda values, card=0: _OnCard(teatime.to_cuda(np.asarray(values), f"cuda:{card}"))


def _gaussian(function):
    """``function`` as one that a kernel takes the place of."""
    function.__module__, function.__name__ = "cupyx.scipy.ndimage", "gaussian_filter"
    return function


def test_arrays_of_cupy_give_arrays_of_cupy(cupy, card):
    x = _values("f4", (6, 5))
    result = teatime.gaussian_filter(cupy(x, 1), 1)
    assert isinstance(result, _OnCard) and result.device.id == 1
    np.testing.assert_array_equal(result.get(), teatime.gaussian_filter(x, 1, device=card))
    assert all(isinstance(part, _OnCard) for part in teatime.truncated_svd(cupy(x), 2))
    # The result may be put into an array of the host or of a GPU.
    for given in (x, cupy(x)):
        for output in (np.zeros(x.shape, "f4"), cupy(np.zeros(x.shape, "f4"))):
            assert teatime.gaussian_filter(given, 1, output=output, device=card) is output
            np.testing.assert_array_equal(output.get() if isinstance(output, _OnCard) else output, result.get())


@pytest.mark.parametrize("library, function", [("torch", "as_tensor"), ("numba.cuda", "as_cuda_array"), ("jax.dlpack", "from_dlpack")])
def test_arrays_of_other_libraries_give_theirs(library, function, card, monkeypatch):
    """The function by which a library takes an array of ours; of PyTorch's, one in C order that has no gradient is asked for."""
    x = _values("f4", (6, 5))

    class Array(_Lent):
        is_cuda, device, has_gradient = True, "cuda:0", True

        @property
        def __cuda_array_interface__(self):
            if library == "torch" and self.has_gradient:
                raise RuntimeError("it has a gradient")
            return super().__cuda_array_interface__

        def detach(self):
            self.has_gradient = False
            return self

        contiguous = detach

    module, waited = types.ModuleType(library), []
    module.cuda = types.SimpleNamespace(current_stream=lambda on: types.SimpleNamespace(synchronize=lambda: waited.append(on)))
    Array.__module__ = library.partition(".")[0] + ".arrays"
    setattr(module, function, lambda array, **device: (array.get(), device))
    monkeypatch.setitem(sys.modules, library, module)
    result, device = teatime.gaussian_filter(Array(teatime.to_cuda(x)), 1)
    np.testing.assert_array_equal(result, teatime.gaussian_filter(x, 1, device=card))
    assert (device, waited) == (({"device": "cuda:0"}, ["cuda:0"]) if library == "torch" else ({}, []))


def test_functions_of_boxes_get_arrays_of_cupy(cupy, card):
    x = _values("f4", (9, 8))

    def function(box):
        assert isinstance(box, _OnCard) and box.device.id == 1
        return cupy(box.get() * 2, 1)

    for trim, depth in ((True, 2), (False, 0)):
        np.testing.assert_array_equal(teatime.map_overlap(function, x, None, depth, trim=trim, device="cuda:1"), x * 2)


def test_blocks_of_cupy_stay_there(cupy):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    import teatime.dask as td

    da.core.concatenate_lookup.register(_OnCard, lambda parts, axis: cupy(np.concatenate([part.get() for part in parts], axis)))
    x = _values("f4", (8, 6))
    here = da.from_array(x, chunks=(4, 6))
    there = here.map_blocks(cupy, dtype=here.dtype, meta=np.empty((0, 0), "f4"))
    back = lambda block: block.get()  # noqa: E731
    filtered = td.gaussian_filter(there, 0.5).map_blocks(back, dtype="f4")
    np.testing.assert_array_equal(filtered.compute(scheduler="sync"), teatime.gaussian_filter(x, 0.5, device="cuda:0"))
    bits = da.from_array(_values("u1", (8, 6)), chunks=(4, 6))
    packed = td.pack(bits.map_blocks(cupy, dtype="u1", meta=np.empty((0, 0), "u1"))).map_blocks(back, dtype="u1")
    np.testing.assert_array_equal(packed.compute(scheduler="sync"), td.pack(bits, compute=True))
    distances = td.pairwise_distance(there, compute=True)
    np.testing.assert_allclose(distances, teatime.pairwise_distance(x, missing="ignore"), atol=1e-6)
    for dtype in ("f4", "f8"):
        of_card = td.svd_compressed(here.astype(dtype).map_blocks(cupy, dtype=dtype, meta=np.empty((0, 0), dtype)), 3)
        for part, want in zip(of_card, td.svd_compressed(here.astype(dtype), 3)):
            np.testing.assert_allclose(part.compute(scheduler="sync"), want.compute(), atol=1e-5)


def test_genotypes_of_cupy_are_copied(cupy, rng):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    import teatime.dask as td

    here = da.from_array(rng.integers(-1, 3, (200, 7), dtype="i1"), chunks=(200, 7))
    # CuPy's integers are 64-bit by default.
    wide = types.SimpleNamespace(get=lambda: here.compute().astype("i8"), dtype=np.dtype("i8"), shape=(200, 7), __cuda_array_interface__={})
    np.testing.assert_array_equal(on_host(wide, "genotypes", "pca"), here)
    there = here.map_blocks(cupy, dtype=here.dtype, meta=np.empty((0, 0), "i1"))
    for function in (lambda x: td.grm(x).matrix, lambda x: td.pca(x, 2).scores, lambda x: td.pca(x, 2, method="randomized").scores):
        np.testing.assert_array_equal(function(there).compute(scheduler="sync"), function(here).compute(scheduler="sync"))


def test_adapters_leave_arrays_where_the_function_does(cupy, rng):
    gaussian_filter = _gaussian(lambda input, sigma, order=0, output=None: None)
    x = rng.random((6, 5))
    want = teatime.gaussian_filter(x, 1, rounding="scipy", device="cuda:0")
    given = cupy(x, 2)
    result = teatime.adapter()(gaussian_filter)(given, sigma=1)
    assert isinstance(result, _OnCard) and result.device.id == 2
    np.testing.assert_array_equal(result.get(), want)
    np.testing.assert_array_equal(teatime.adapter(output_device="cpu")(gaussian_filter)(given, 1), want)
    assert teatime.adapter("cuda:1")(gaussian_filter)(given, 1).device.id == 1
    result = teatime.adapter("cpu", "cuda:1")(gaussian_filter)(x, 1)
    assert result.device.id == 1
    teatime.sync(result, x, result.array)
    # Kernels take some types from the host alone.
    mask = rng.random((6, 5)) > 0.5
    masked = types.SimpleNamespace(get=lambda: mask, dtype=mask.dtype, device=given.device, __cuda_array_interface__={})
    np.testing.assert_array_equal(teatime.adapter(output_device="cpu")(gaussian_filter)(masked, 1), teatime.gaussian_filter(mask, 1, rounding="scipy"))


def test_adapters_fill_the_output_of_the_caller(cupy):
    def own(x, output):
        output[...] = x.get() + 1
        return output

    @_gaussian
    def gaussian_filter(input, sigma, order=0, output=None):
        return own(input, output)

    x = np.arange(3.0)
    host, card = np.zeros(3), cupy(np.zeros(3))
    for function, given, output in ((own, (x,), host), (own, (x,), card), (gaussian_filter, (x, 1, 0), card)):
        run = teatime.adapter("cuda:1")(function)
        for call in (lambda: run(*given, output=output), lambda: run(*given, output)):
            output[...] = np.zeros(3)
            assert call() is output
            np.testing.assert_array_equal(output if output is host else output.get(), x + 1)
    np.testing.assert_array_equal(teatime.adapter("cuda:1", "cpu")(own)(x, output=cupy(np.zeros(3))), x + 1)


def _dlpack_alone(array, asked):
    """An array of a library that knows nothing but DLPack."""
    lend = lambda **options: asked.append(options) or array.__dlpack__(**options)  # noqa: E731
    return types.SimpleNamespace(__dlpack__=lend, __dlpack_device__=array.__dlpack_device__)


def test_dlpack_in_and_out(card):
    before, asked = card.allocated, []
    for dtype in TYPES:
        x = _values(dtype, (3, 4, 5))
        np.testing.assert_array_equal(teatime.CudaArray._of(_dlpack_alone(teatime.to_cuda(x), asked), "x").get(), x)
        assert asked.pop() == {"stream": 1}
    x = _values("f4", (6, 5))
    given = teatime.to_cuda(x)
    assert given.__dlpack_device__() == (2, 0)
    filtered = teatime.gaussian_filter(_dlpack_alone(given, asked), 1).get()
    np.testing.assert_array_equal(filtered, teatime.gaussian_filter(x, 1, device=card))
    taken = teatime.CudaArray._of(_dlpack_alone(given, asked), "x")
    place = given.__cuda_array_interface__["data"]
    assert taken.__cuda_array_interface__["data"] == place
    # An array that was handed over exists for as long as somebody holds it.
    capsule, _ = given.__dlpack__(), given.__dlpack__(stream=None, max_version=(1, 0), dl_device=(2, 0), copy=False)
    del given
    gc.collect()
    np.testing.assert_array_equal(taken.get(), x)
    raises(BufferError, "not copied", taken.__dlpack__, copy=True)
    raises(BufferError, "handed over there", taken.__dlpack__, dl_device=(1, 0))
    used = types.SimpleNamespace(__dlpack__=lambda **options: capsule, __dlpack_device__=lambda: (2, 0))
    np.testing.assert_array_equal(teatime.CudaArray._of(used, "x").get(), x)
    raises(BufferError, "`x`: its __dlpack__ gives no fresh array", teatime.pack, used)
    with pytest.raises(TypeError, match="`x` is on DLPack's device 1"):
        teatime.CudaArray._of(types.SimpleNamespace(__dlpack__=lambda **stream: np.ones(3).__dlpack__()), "x")
    del taken, capsule, _, used
    gc.collect()
    assert card.allocated == before
