"""Functions of a caller's own on arrays that need not fit memory."""

import _thread
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
from conftest import opened, raises, write

import teatime
from teatime._overlap import Overlap

ndimage = pytest.importorskip("scipy.ndimage", reason="scipy is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")


def stored(path, values, chunks, zarr_format=3, **options):
    return os.path.join(write(path, "x", values, chunks, zarr_format, **options), "x")


def least(*given, **options):
    """Returns the smallest budget that does."""
    with pytest.raises(MemoryError, match="budget of 1 bytes is too small") as error:
        teatime.map_overlap(*given, memory=1, **options)
    return int(re.search(r"(?:at least|needs?) (\d+)", str(error.value))[1])


#: The device for functions that count their calls.
ALONE = teatime.Device("cpu", threads=1)


@pytest.fixture
def image(rng, tmp_path):
    values = rng.random((70, 90)).astype("f4")
    return stored(tmp_path / "image.zarr", values, (16, 20)), values


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_elements_of_each_type_arrive(rng, tmp_path, dtype, zarr_format):
    values = rng.integers(0, 2 if dtype == "?" else 100, (23, 31)).astype(dtype)
    path = stored(tmp_path / "x.zarr", values, (7, 20), zarr_format)
    arrived = np.dtype("f8") if dtype in ("i8", "u8") else values.dtype
    seen = []

    def negated(x):
        seen.append(x.dtype)
        return ~x if dtype == "?" else 100 - x

    for x in (path, values):
        result = teatime.map_overlap(negated, x, depth=1)
        assert result.dtype == (np.uint8 if dtype == "?" else arrived)
        np.testing.assert_array_equal(result, ~values if dtype == "?" else 100 - values.astype(arrived))
    assert set(seen) == {arrived}


@pytest.mark.parametrize("tight", [False, True])
def test_results_are_those_of_dask_and_of_scipy(image, tmp_path, tight):
    path, values = image
    how = {"depth": {0: 2, 1: (1, 1)}, "size": (5, 3), "mode": "nearest"}
    want = ndimage.median_filter(values, (5, 3), mode="nearest")
    np.testing.assert_array_equal(teatime.map_overlap(ndimage.median_filter, path, memory="2 MB", **how), want)
    for chunks in ((16, 20), (11, 90), (70, 7)):
        out = tmp_path / f"of{chunks}.zarr"
        told = []
        memory = least(ndimage.median_filter, path, tmp_path / f"none{chunks}", chunks=chunks, **how) if tight else None
        counts = teatime.map_overlap(
            ndimage.median_filter, path, out, chunks=chunks, memory=memory, progress=lambda done, total: told.append((done, total)), **how
        )
        assert told[-1] == (values.size, values.size)
        assert counts.found == 0 and counts.boxes == (-(-70 // chunks[0]) * -(-90 // chunks[1]) if tight else 1) and counts.times_covered >= 1 <= counts.times_decoded
        written = zarr.open_array(str(out), mode="r")
        assert written.chunks == chunks and written.dtype == values.dtype
        np.testing.assert_array_equal(written[...], want)
        blocks = da.from_array(values, chunks=chunks).map_overlap(ndimage.median_filter, dtype="f4", **{"boundary": "none", **how})
        np.testing.assert_array_equal(written[...], blocks.compute(scheduler="sync"))


@pytest.mark.parametrize("boundary", ["none", "periodic", "reflect", "nearest", 3.0, {1: "reflect"}, ("none", "periodic")])
@pytest.mark.parametrize("depth", [2, (0, 3), {0: 17}])
def test_boundaries_are_those_of_dask(image, tmp_path, boundary, depth):
    path, values = image
    sides = {axis: depth if depth == 2 else dict(enumerate(depth)).get(axis, 0) if isinstance(depth, tuple) else depth.get(axis, 0) for axis in (0, 1)}
    kernel = np.arange(1.0, 1 + np.prod([2 * side + 1 for side in sides.values()])).reshape([2 * side + 1 for side in sides.values()])

    def correlated(x):
        # The function sees zeros beyond the ends of its argument. The halo keeps them away from the result.
        return ndimage.correlate(x, kernel, mode="constant", output="f8")

    blocks = da.from_array(values, chunks=(35, 30)).map_overlap(correlated, depth, boundary, dtype="f8")
    want = blocks.compute(scheduler="sync")
    out = tmp_path / "out.zarr"
    memory = least(correlated, path, tmp_path / "none", depth, boundary, "f8")
    counts = teatime.map_overlap(correlated, path, out, depth, boundary, "f8", memory=memory, device=ALONE)
    assert counts.boxes > 4
    np.testing.assert_allclose(zarr.open_array(str(out), mode="r")[...], want, rtol=1e-13)
    # The box is computed in parts.
    for threads in (2, 5):
        result = teatime.map_overlap(correlated, values, None, depth, boundary, "f8", device=teatime.Device("cpu", threads=threads))
        np.testing.assert_allclose(result, want, rtol=1e-13)


def test_parts_of_a_box_are_computed_at_once(image):
    _, values = image
    together = threading.Barrier(3, timeout=20)

    def waits(x):
        together.wait()
        return x

    np.testing.assert_array_equal(teatime.map_overlap(waits, values, depth=(40, 1), device=teatime.Device("cpu", threads=3)), values)


def test_filters_are_written_as_of_the_whole(image, tmp_path):
    path, whole = image
    np.save(tmp_path / "x.npy", whole)
    out, few = tmp_path / "out.zarr", {"device": "cpu", "memory": "64M"}
    made = teatime.write_gaussian_filter(path, out, 1.5, mode="nearest", chunks=16, **few)
    expected = teatime.gaussian_filter(whole, 1.5, mode="nearest", device="cpu")
    np.testing.assert_array_equal(zarr.open_array(out)[:], expected)
    assert made.boxes >= 1 and zarr.open_array(out).chunks == (16,) * whole.ndim
    with pytest.raises(FileExistsError):
        teatime.write_gaussian_filter(tmp_path / "x.npy", out, 1.5, mode="nearest", chunks=16, **few)
    again = tmp_path / "again.zarr"
    for done in (0, made.boxes):
        counts = teatime.write_gaussian_filter(whole, again, 1.5, mode="nearest", chunks=16, resume=True, **few)
        assert (counts.boxes, counts.found) == (made.boxes - done, done)
    raises(OSError, "job", teatime.write_gaussian_filter, whole, again, 2, mode="nearest", chunks=16, resume=True, **few)
    teatime.write_gaussian_filter(whole, tmp_path / "f8", 1, dtype="f8", **few)
    np.testing.assert_allclose(zarr.open_array(tmp_path / "f8")[:], ndimage.gaussian_filter(whole.astype("f8"), 1), rtol=1e-12)
    raises(ValueError, "`dtype` of bool", teatime.write_gaussian_filter, np.zeros(3, bool), tmp_path / "refused", 1, dtype=bool, **few)
    raises(TypeError, "`out` is", teatime.write_denoise_tv_chambolle, whole, 0.2)
    raises(TypeError, "`storage_options`", teatime.write_gaussian_filter, whole, tmp_path / "refused", 1, storage_options={})
    raises(ValueError, "`dtype` of int16", teatime.write_gaussian_filter, np.zeros(3), tmp_path / "refused", 1, dtype="i2", **few)
    raises(ValueError, "disks alone", teatime.write_gaussian_filter, np.zeros(3), "s3://bucket/out", 1, **few)
    smooth = tmp_path / "smooth.zarr"
    teatime.write_denoise_tv_chambolle(tmp_path / "x.npy", smooth, 0.2, **few)
    np.testing.assert_array_equal(zarr.open_array(smooth)[:], teatime.denoise_tv_chambolle(whole, 0.2, device="cpu"))
    for given in (whole > 0.5, (whole * 2**50).astype("i8")):
        path = tmp_path / f"smooth {given.dtype}"
        teatime.write_denoise_tv_chambolle(given, path, 0.2, **few)
        np.testing.assert_array_equal(zarr.open_array(path)[:], teatime.denoise_tv_chambolle(given, 0.2, device="cpu"))


def ome(path, version, values):
    """Writes an OME-Zarr image of channels and micrometers with zarr-python, of one level beside a smaller one."""
    axes = [{"name": "c", "type": "channel"}, *({"name": name, "type": "space", "unit": "micrometer"} for name in "yx")]
    levels = [
        {"path": name, "coordinateTransformations": [{"type": "scale", "scale": [1, 0.5 * factor, 0.25 * factor]}]}
        for name, factor in (("full", 1), ("half", 2))
    ]
    image = {"name": "cells", "axes": axes, "datasets": levels}
    channels = {"channels": [{"label": "nuclei"}, {"label": "walls"}]}
    group = zarr.open_group(path, mode="w", zarr_format=3 if version == "0.5" else 2)
    if version == "0.5":
        group.attrs["ome"] = {"version": version, "multiscales": [image], "omero": channels}
    else:
        group.attrs.update({"multiscales": [{**image, "version": version}], "omero": channels})
    for name, level in (("full", values), ("half", values[:, ::2, ::2])):
        group.create_array(name, data=level, chunks=(1, 64, 64), **({"dimension_names": list("cyx")} if version == "0.5" else {}))
    return path


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_images_become_images(tmp_path, version):
    values = np.random.default_rng(1).integers(0, 60_000, (2, 70, 300)).astype("u2")
    path, few = ome(tmp_path / "cells.zarr", version, values), {"device": "cpu", "memory": "64M"}
    made, command = tmp_path / "python.zarr", tmp_path / "command.zarr"
    counts = teatime.write_gaussian_filter(path, made, 1, physical=True, pyramid=True, resume=True, **few)
    assert teatime.write_gaussian_filter(path, made, 1, physical=True, pyramid=True, resume=True, **few).found == counts.boxes
    # A micrometer is two pixels along y and four along x, and channels are not filtered.
    group = zarr.open_group(made, mode="r")
    np.testing.assert_array_equal(group["0"][:], teatime.gaussian_filter(values, [2, 4], axes=[1, 2], device="cpu"))
    assert group["1"].shape == (2, 35, 150)
    # The command line writes the same metadata and pixels.
    arguments = ["teatime", "blur", str(path), str(command), "--sigma", "1", "--physical", "--pyramid", "--device", "cpu"]
    assert teatime._teatime.command_line(arguments) == 0
    wanted = zarr.open_group(command, mode="r")
    assert dict(group.attrs) == dict(wanted.attrs) and group.metadata.zarr_format == wanted.metadata.zarr_format
    for level in "01":
        np.testing.assert_array_equal(group[level][:], wanted[level][:])
    smooth = tmp_path / "smooth.zarr"
    teatime.write_denoise_tv_chambolle(path, smooth, 0.2, level=1, **few)
    denoised = teatime.denoise_tv_chambolle(values[:, ::2, ::2], 0.2, channel_axis=0, device="cpu")
    np.testing.assert_array_equal(zarr.open_array(smooth / "0")[:], denoised)
    mapped = tmp_path / "mapped.zarr"
    teatime.map_overlap(ndimage.median_filter, path, mapped, (0, 1, 1), pyramid=True, size=(1, 3, 3), mode="nearest")
    np.testing.assert_array_equal(zarr.open_array(mapped / "0")[:], ndimage.median_filter(values, (1, 3, 3), mode="nearest"))
    physical = {"physical": True}
    for options, match in (
        ({"level": 2}, "`level`: 2, and .* has 2 levels"), ({"level": -1}, "`level` is -1"), ({**physical, "axes": 1}, "`axes` is None"),
        ({**physical, "sigma": -1}, "-1 micrometer along `y`"), ({**physical, "sigma": [1, 2, 3]}, "3 numbers, expected one or 2"),
    ):
        raises(ValueError, match, teatime.write_gaussian_filter, path, tmp_path / "refused", **{"sigma": 1, **options})
    for options, match in (({"level": 0}, "an array is none"), ({"pyramid": True}, "`pyramid`"), (physical, "`physical`")):
        raises(ValueError, match, teatime.write_gaussian_filter, path / "full", tmp_path / "refused", 1, **options)
    raises(OSError, "nowhere", teatime.write_gaussian_filter, tmp_path / "nowhere", tmp_path / "refused", 1, level=0)
    raises(TypeError, "`level`", teatime.write_gaussian_filter, values, tmp_path / "refused", 1, level=0)
    assert not (tmp_path / "refused").exists()


def test_a_stopped_image_is_none_until_it_is_continued(tmp_path):
    values = np.arange(2 * 70 * 300, dtype="u2").reshape(2, 70, 300)
    path, out = ome(tmp_path / "cells.zarr", "0.5", values), tmp_path / "out.zarr"
    boxes, last = [], [2]

    def fails(x):
        boxes.append(x.shape)
        if len(boxes) >= last[0]:
            raise Odd("it", 7)
        return x + np.uint16(1)

    how = {"chunks": (1, 64, 64), "resume": True, "pyramid": True, "device": ALONE}
    least_memory = least(lambda x: x, path, tmp_path / "none", 0, chunks=(1, 64, 64), pyramid=True)
    with pytest.raises(Odd):
        teatime.map_overlap(fails, path, out, memory=least_memory, **how)
    assert (out / "0").exists() and not (out / "zarr.json").exists()
    for options in ({"pyramid": False}, {"level": 1}):
        raises(OSError, "job", teatime.map_overlap, fails, path, out, memory=least_memory, **{**how, **options})
    last[0] = 99
    counts = teatime.map_overlap(fails, path, out, memory=least_memory, **how)
    assert counts.found >= 1 <= counts.boxes
    group = zarr.open_group(out, mode="r")
    np.testing.assert_array_equal(group["0"][:], values + np.uint16(1))
    assert group["1"].shape == (2, 35, 150)


def test_boxes_tell_where_they_are(image, tmp_path):
    path, values = image

    def lower(x, block_info=None, offset=0):
        """The difference from the element before, and the first elements as they are: without the halo."""
        (start, end), (left, right) = block_info[None]["array-location"]
        (above, _), (before, after) = block_info[0]["array-location"]
        assert block_info[0]["shape"] == (70, 90) and x.shape == (end - above, after - before) and above == max(start - 1, 0)
        assert (before, after) == (left, right)
        np.testing.assert_array_equal(x, values[above:end, left:right])
        return np.diff(x, axis=0, prepend=np.zeros((int(start == 0), x.shape[1]), "f4")) + offset

    how = {"trim": False, "offset": np.float32(2)}
    memory = least(lower, path, tmp_path / "none", {0: (1, 0)}, **how)
    result = teatime.map_overlap(lower, path, None, {0: (1, 0)}, memory=memory + values.nbytes, **how)
    np.testing.assert_array_equal(result, np.diff(values, axis=0, prepend=np.float32(0)) + 2)


class Odd(Exception):
    """An exception that takes arguments of its own."""

    def __init__(self, first, second):
        super().__init__(first)
        self.second = second


@pytest.mark.parametrize("threads", [1, 3])
def test_exceptions_arrive_as_they_were_raised_and_name_the_box(image, tmp_path, threads):
    path, _ = image
    raised = Odd("it", 7)

    def fails(x, block_info):
        if block_info[None]["array-location"][0][0] > 0:
            raise raised
        return x

    memory = least(fails, path, tmp_path / "none", 1)
    with pytest.raises(Odd) as error:
        teatime.map_overlap(fails, path, tmp_path / "out.zarr", 1, memory=memory, device=teatime.Device("cpu", threads=threads))
    assert error.value is raised and error.traceback[-1].name == "fails"
    if hasattr(raised, "add_note"):
        assert re.fullmatch(r"in the box \[\d+:\d+, \d+:\d+\]", raised.__notes__[0])
    assert json.loads((tmp_path / "out.zarr" / "zarr.json").read_text())["attributes"]["teatime"]["status"] == "incomplete"

    def full(x):
        raise MemoryError("of its own")

    raises(MemoryError, "of its own", teatime.map_overlap, full, path)
    raises(LookupError, "enough", teatime.map_overlap, np.abs, path, progress=lambda *_: (_ for _ in ()).throw(LookupError("enough")))


def test_what_was_begun_is_gone_on_with(image, tmp_path):
    path, values = image
    left = [3]

    def doubled(x, more=0):
        left[0] -= 1
        if left[0] < 0:
            raise InterruptedError
        return 2 * x + np.float32(more)

    memory = least(doubled, path, tmp_path / "none", 1)
    out, whole = tmp_path / "out.zarr", tmp_path / "whole.zarr"
    for _ in range(2):
        left[0] = 3
        with pytest.raises(InterruptedError):
            teatime.map_overlap(doubled, path, out, 1, resume=True, memory=memory, device=ALONE)
    left[0] = 1000
    raises(FileExistsError, "resume=True goes on", teatime.map_overlap, doubled, path, out, 1)
    for changed in ({"more": 1}, {"boundary": "periodic"}, {"trim": False}, {"chunks": 35}):
        raises(OSError, "of another job", teatime.map_overlap, doubled, path, out, 1, resume=True, **changed)
    other = {}
    exec("def doubled(x, more=0):\n    return 3 * x", other)
    other["doubled"].__module__, other["doubled"].__qualname__ = doubled.__module__, doubled.__qualname__
    raises(OSError, "of another job", teatime.map_overlap, other["doubled"], path, out, 1, resume=True)
    counts = teatime.map_overlap(doubled, path, out, 1, resume=True, memory=memory, device=ALONE)
    assert counts.found == 6 and counts.boxes > 0
    assert teatime.map_overlap(doubled, path, out, 1, resume=True).boxes == 0
    np.testing.assert_array_equal(zarr.open_array(str(out), mode="r")[...], 2 * values)
    teatime.map_overlap(doubled, path, whole, 1, resume=True)
    for file in (file for file in whole.rglob("*") if file.is_file()):
        assert file.read_bytes() == (out / file.relative_to(whole)).read_bytes(), file
    zarr.open_array(path, mode="r+")[0, 0] = 9
    raises(OSError, "of another job", teatime.map_overlap, doubled, path, out, 1, resume=True)


@pytest.mark.parametrize("where", ["in the function", "beside it"])
def test_ctrl_c_ends_a_sweep(image, tmp_path, where):
    path, values = image
    calls, pressed = [], []

    def slow(x):
        calls.append(time.monotonic())
        if len(calls) == 2:
            threading.Thread(target=lambda: (pressed.append(time.monotonic()), _thread.interrupt_main())).start()
        deadline = time.monotonic() + (0.3 if where == "in the function" else 0.02)
        while time.monotonic() < deadline:
            time.sleep(0.001)
        return x

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    memory = least(slow, path, tmp_path / "none")
    with pytest.raises(KeyboardInterrupt):
        teatime.map_overlap(slow, path, tmp_path / "out.zarr", memory=memory, device=ALONE)
    signal.signal(signal.SIGINT, before)
    assert len(calls) <= 8 and time.monotonic() - pressed[0] < 1
    np.testing.assert_array_equal(teatime.map_overlap(np.negative, path), -values)


def test_a_budget_that_is_too_small_names_the_least(image, tmp_path):
    path, values = image
    bytes_ = least(np.abs, path, tmp_path / "none", 3)
    # A function needs more memory if it takes more, by a quarter for parts, or pads. A chunk of 16 x 20 with its halo has 22 x 26 elements.
    more = 125 if teatime.Device("cpu").threads == 1 else 130  # Parts are copies of four bytes an element.
    assert least(np.abs, path, tmp_path / "none1", 3, temporary=104) == bytes_ + more * 22 * 26
    assert least(np.abs, path, tmp_path / "none2", 3, "reflect") == bytes_ + 15 * (28 * 32 - 22 * 26)
    assert teatime.map_overlap(np.abs, path, tmp_path / "out.zarr", 3, memory=bytes_).memory == bytes_
    np.testing.assert_array_equal(zarr.open_array(str(tmp_path / "out.zarr"), mode="r")[...], values)


@pytest.mark.parametrize("function, dtypes", [(np.negative, ("f4", "f4")), (np.isfinite, ("f8", "u1")), (lambda x: x.astype("f8"), ("u1", "f8"))])
@pytest.mark.parametrize("boundary", ["none", "reflect"])
@pytest.mark.parametrize("threads", [1, 4])
def test_what_a_call_takes_is_counted(function, dtypes, boundary, threads):
    x = np.ones((800, 600), dtypes[0])
    overlap = Overlap(function, x.shape, x.dtype, 8, boundary, dtypes[1], True, 0, {}, threads)
    tracemalloc.start()
    overlap(x[:780], [(0, 772), (0, 600)], [0, 0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    function = overlap.compiled()
    elements = np.prod([extent + more for extent, more in zip((780, 600), function["padding"])])
    assert peak < (function["held"] - x.itemsize) * elements + 20_000


def test_layout_of_the_input_stays(rng, tmp_path):
    values = rng.integers(0, 9, (20, 30)).astype("i2")
    older = stored(tmp_path / "v2.zarr", values, (8, 7), 2)
    teatime.map_overlap(np.negative, older, tmp_path / "out2.zarr")
    written = zarr.open_array(str(tmp_path / "out2.zarr"), mode="r")
    assert written.metadata.zarr_format == 2 and written.chunks == (8, 7)
    np.testing.assert_array_equal(written[...], -values)
    sharded = stored(tmp_path / "v3.zarr", values, (4, 5), 3, shards=(8, 10), dimension_names=("y", "x"))
    teatime.map_overlap(lambda x: x / 2, sharded, tmp_path / "out3.zarr", dtype="f8")
    written = zarr.open_array(str(tmp_path / "out3.zarr"), mode="r")
    assert (written.chunks, written.shards, written.metadata.dimension_names) == ((4, 5), (8, 10), ("y", "x"))
    np.testing.assert_array_equal(written[...], values / 2)
    np.save(tmp_path / "x.npy", values)
    for x in (tmp_path / "x.npy", np.load(tmp_path / "x.npy", mmap_mode="r"), values.T.copy().T):
        np.testing.assert_array_equal(teatime.map_overlap(np.negative, x, depth=1), -values)
    assert teatime.map_overlap(np.negative, np.empty((0, 4), "f4"), depth=1).shape == (0, 4)


def test_what_is_refused_is_named(image, tmp_path):
    path, values = image
    beyond = np.array([2**53 + 1], "i8")
    for function, x, options, error, words in (
        (np.abs, values, {"out": values}, TypeError, "`out` is <class 'numpy.ndarray'>; it is the path of a Zarr array"),
        (np.abs, da.ones(3), {}, TypeError, "`x` is a dask array"),
        (np.abs, zarr.open_array(path), {}, TypeError, "`x` is <class 'zarr.*the path of a Zarr array is read in boxes"),
        (np.abs, 3.0, {}, ValueError, "`x` has no axis"),
        (np.abs, np.ones((1,) * 6), {}, ValueError, "one to five axes|one to 5 axes"),
        (np.abs, np.ones(2, "c8"), {}, TypeError, "`x` has the type complex64"),
        (np.abs, beyond, {}, ValueError, "integers beyond 2\\*\\*53"),
        (np.abs, values, {"dtype": "i8"}, ValueError, "`dtype` of int64: a float, or an integer of up to 32 bits"),
        (np.abs, values, {"dtype": "f8"}, TypeError, "`func` gave float32, and `dtype` is float64"),
        (lambda x: x[1:], values, {}, ValueError, r"`func` gave an array of \(69, \d+\) for one of \(70, (\d+)\); with trim=True it is of \(70, \1\)"),
        (np.abs, path, {"depth": 1, "trim": False, "memory": "200 KB"}, ValueError, "the box without its halo"),
        (np.abs, values, {"depth": (1, 2, 3)}, ValueError, "`depth` has 3 values, and the array has 2 axes"),
        (np.abs, values, {"depth": {2: 1}}, ValueError, r"`depth` has the axes \[2\], and the array has 2"),
        (np.abs, values, {"depth": -1}, ValueError, "`depth` is -1; it is at least 0"),
        (np.abs, values, {"depth": {0: (1, 2)}, "boundary": "reflect"}, ValueError, "as large after a box as before"),
        (np.abs, values, {"boundary": "wrap"}, ValueError, "`boundary` is none, periodic, reflect, nearest or a number, not 'wrap'"),
        (np.abs, values, {"resume": True}, TypeError, "`resume`, `pyramid` and `chunks` are for a Zarr array or an image"),
        (np.abs, tmp_path / "nowhere", {}, OSError, "nowhere"),
    ):
        raises(error, words, teatime.map_overlap, function, x, **options)


def test_functions_on_a_gpu_get_arrays_there(image, tmp_path):
    path, values = image
    device = opened("cuda:0")
    kept = []

    def on_card(x):
        assert isinstance(x, teatime.CudaArray) and x.device == "cuda:0"
        kept.append(x)
        return teatime.to_cuda(teatime.gaussian_filter(x, 1, radius=3).get())

    def to_host(x):
        return -x.get()

    for function, want in ((on_card, teatime.gaussian_filter(values, 1, radius=3, device=device)), (to_host, -values)):
        teatime.map_overlap(function, path, tmp_path / f"{function.__name__}.zarr", 0 if function is on_card else 2, device=device)
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / f"{function.__name__}.zarr"), mode="r")[...], want)
    # An array that a function keeps does not change.
    np.testing.assert_array_equal(kept[0].get(), values)
    raises(MemoryError, "again", teatime.map_overlap, lambda x: (_ for _ in ()).throw(MemoryError("again")), path, device=device)
    full = [2]

    def sometimes_full(x):
        full[0] -= 1
        if full[0] > 0:
            raise MemoryError
        return x

    np.testing.assert_array_equal(teatime.map_overlap(sometimes_full, path, device=device), values)


def test_tasks_read_boxes_of_a_store(image):
    import teatime.dask as td

    path, values = image
    want = ndimage.median_filter(values, 5, mode="nearest")
    for chunks in (None, (30, 45)):
        result = td.map_overlap(ndimage.median_filter, path, depth=2, chunks=chunks, size=5, mode="nearest")
        assert result.dtype == values.dtype and (chunks is None or result.numblocks == (3, 2))
        np.testing.assert_array_equal(result.compute(scheduler="threads"), want)
    doubled = td.map_overlap(lambda x, more: 2.0 * x + more, path, dtype="f4", more=np.float32(1), compute=True)
    np.testing.assert_array_equal(doubled, 2 * values + 1)
    raises(TypeError, "dask.array.map_overlap takes a dask array", td.map_overlap, np.abs, da.ones(3))


def test_functions_that_write_to_their_argument_or_give_another_order():
    x = np.random.default_rng(3).random((40, 9))

    def in_place(x):
        x *= 2
        x[1:-1] += x[:-2].copy() + x[2:].copy()
        return x

    for func in (in_place, lambda x: np.asfortranarray(in_place(x))):
        one, four = (teatime.map_overlap(func, x, depth={0: 1, 1: 0}, device=teatime.Device("cpu", threads=count)) for count in (1, 4))
        np.testing.assert_array_equal(one, four)


def test_a_job_has_the_same_text_in_every_process():
    from teatime._overlap import _identity

    code = (
        "from teatime._overlap import _identity\nimport functools\n"
        "def f(x, among=frozenset('abc'), *, more={'d', 'e'}): return x in {'a', 'b', 'c'}\n"
        "class Call:\n    def __call__(self, x): return x\n"
        "print(_identity(f), _identity(functools.partial(f, more={'x', 'y'})), _identity(Call()))"
    )
    run = lambda seed: subprocess.run(  # noqa: E731
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
    ).stdout
    assert run("1") == run("2") == run("3")

    def first(x, by=1):
        return x

    before = _identity(first)
    first.__defaults__ = (2,)
    assert _identity(first) != before
