"""How calls behave: locks, signals, progress, panics, forks, pickles."""

import _thread
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import raises

import teatime
from teatime import _teatime


def test_progress_and_what_it_raises(rng):
    x = rng.random((3000, 40)).astype("f4")
    told = []
    teatime.pairwise_distance(x, device="cpu", progress=lambda done, total: told.append((done, total)))
    assert told and all(0 <= done <= total for done, total in told)

    class Bar:
        total = 0
        n = 0

        def update(self, n):
            self.n += n

    # The second call ends before its maximum number of passes, and the third is one step without reports.
    for call in (
        teatime.pairwise_distance,
        lambda x, **options: teatime.truncated_svd(x.reshape(400, 300), 2, **options),
        lambda x, **options: teatime.truncated_svd(x, 2, **options),
    ):
        bar, told = Bar(), []
        call(x, device="cpu", progress=bar)
        call(x, device="cpu", progress=lambda *given: told.append(given))
        assert 0 < bar.n == bar.total
        assert told[-1] == (bar.total, bar.total) and told == sorted(told)

    def stop(done, total):
        raise LookupError("enough")

    raises(LookupError, "enough", teatime.pairwise_distance, x, device="cpu", progress=stop)


def test_memory_in_units(rng):
    dosages = rng.integers(0, 3, (500, 20)).astype("i1")
    one, other = (teatime.genotype.grm(dosages, memory=memory).matrix for memory in (64 << 20, "0.0625 GiB"))
    np.testing.assert_array_equal(one, other)
    raises(MemoryError, "budget of 1000 bytes", teatime.genotype.grm, dosages, memory="1KB")
    raises(ValueError, '`memory` of "2X": not a size such as', teatime.genotype.grm, dosages, memory="2X")
    raises(ValueError, "`memory` is -1; it is at least 0", teatime.genotype.grm, dosages, memory=-1)
    raises(TypeError, "`memory` is 2.5; it is a whole number", teatime.genotype.grm, dosages, memory=2.5)


LONG = {
    "truncated_svd": lambda x, device: teatime.truncated_svd(x, 5, tol=1e-9, device=device),
    "svd": lambda x, device: teatime.svd(np.tile(x.reshape(-1, 100), (4, 1)), device=device),
    "gaussian": lambda x, device: teatime.gaussian_filter(x.reshape(1500, 30, -1), 20, device=device),
    "gaussian of few long sums": lambda x, device: teatime.gaussian_filter(np.tile(x, 2), (0, 700), device=device),
    "pairwise": lambda x, device: teatime.pairwise_distance(x, metric="canberra", device=device),
}


@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_ends_a_long_call(rng, monkeypatch, name):
    x, device = rng.random((3000, 1500), dtype="f4"), teatime.Device("cpu", threads=2)
    function = name.partition(" ")[0]
    ended, pressed, whole, native = threading.Event(), [], [], getattr(_teatime, function)
    # Python looks for signals after each call. This call keeps its result before Python can look.
    monkeypatch.setattr(_teatime, function, lambda *given: whole.extend(map(native, *zip(given))))

    def press():
        while not (device.allocated or ended.is_set()):
            time.sleep(0.001)
        pressed.append(time.monotonic())
        _thread.interrupt_main()

    # A shell lets processes in the background ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=press)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        LONG[name](x, device)
        ended.set()
    took = time.monotonic() - pressed[0]
    thread.join()
    signal.signal(signal.SIGINT, before)
    assert took < 1, took
    assert whole == [] and device.allocated == 0
    np.testing.assert_array_equal(teatime.pack(np.array([[1, 2]], "u1"), device=device), [[9]])


def test_panics_are_runtime_errors():
    raises(RuntimeError, "a defect of it: asked for", _teatime._panic)
    assert teatime.pairwise_distance([[0.0], [1.0]], device="cpu")[0, 1] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told():
    code = """
import os, sys, numpy as np, teatime
from teatime import blocks
made = blocks.Variants(np.array([[0, 1], [2, 1], [1, 0]], "i1"), device="cpu")
x = np.ones((2, 1))
made.normal_product(x)
if os.fork() == 0:
    told = 0
    for call in (lambda: teatime.svd([[1.0]], device="cpu"), lambda: made.normal_product(x), teatime.devices):
        try:
            call()
        except RuntimeError as error:
            told += "spawn" in str(error)
    os._exit(told)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 3, ran


def test_devices_are_listed_compared_and_pickled():
    listed = teatime.devices()
    assert listed[0]["name"] == "cpu" and listed[0]["usable"]
    for device in listed:
        if device["name"].startswith("wgpu") and device["usable"]:
            name = teatime.Device("wgpu:" + device["identity"]).name
            assert next(other for other in listed if other["name"] == name)["identity"] == device["identity"]
    several = teatime.Device(["cpu", "cpu"])
    assert several == pickle.loads(pickle.dumps(several)) == teatime.Device("cpu, cpu") and several.name == "cpu,cpu"
    one = teatime.Device("cpu", threads=1)
    assert one.threads == 1 and "threads=1" in repr(one)
    assert one == pickle.loads(pickle.dumps(one)) and one != teatime.Device("cpu")


def test_the_command_line_is_in_the_wheel(tmp_path):
    ran = subprocess.run([sys.executable, "-m", "teatime", "--version"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0 and ran.stdout == f"teatime {teatime.__version__}\n"
    ran = subprocess.run([sys.executable, "-m", "teatime", "devices"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    ran = subprocess.run([sys.executable, "-m", "teatime", "pca", "nowhere", "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "nowhere" in ran.stderr


def test_importing_it_loads_numpy_alone():
    code = """
import sys, numpy
before = set(sys.modules)
import teatime
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names - {"numpy"}))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "teatime\n"


def test_adapters_move_arrays_and_nothing_else(rng):
    scipy_ndimage = pytest.importorskip("scipy.ndimage")
    x = rng.random((8, 9)).astype("f4")
    blur = teatime.adapter("cpu", "cpu")(scipy_ndimage.gaussian_filter)
    np.testing.assert_array_equal(blur(x, sigma=1), teatime.gaussian_filter(x, 1, rounding="scipy", device="cpu"))

    @teatime.adapter(output_device="cpu")
    def own(a, *, name):
        return {"sum": a.sum(axis=0), "name": name}, [a, None]

    result, (same, none) = own(x, name="slide")
    assert result["name"] == "slide" and same is x and none is None
    assert own.__name__ == "own"
    teatime.sync(x, result["sum"])
