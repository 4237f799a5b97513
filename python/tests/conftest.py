"""What tests share: the devices that there are, genotypes, and stored arrays."""

import os

import numpy as np
import pytest

# The emulator has three GPUs, on which the tests depend. Other devices are the machine's.
os.environ.setdefault("CUDA_EMULATOR_DEVICES", "3")
# Tests that name no device, and the processes that they start, run on the cpu device.
os.environ["TEATIME_DEVICE"] = "cpu"

import teatime  # noqa: E402

#: Devices for tests of all devices. If CI requires one that does not exist, the test fails.
WANTED = ["cpu", "wgpu:0", "cuda:0"]
REQUIRED = os.environ.get("TEATIME_REQUIRE_DEVICES", "cpu").split(",")


@pytest.fixture(params=WANTED, scope="session")
def device(request):
    try:
        return teatime.Device(request.param)
    except RuntimeError as error:
        if request.param.split(":")[0] in REQUIRED:
            raise
        pytest.skip(f"no device {request.param}: {error}")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def calls(rng, variants, samples, missing=0.02):
    """Calls of diploids, some of them missing."""
    frequency = rng.random(variants) * 0.5
    calls = (rng.random((variants, samples, 2)) < frequency[:, None, None]).astype("i1")
    calls[rng.random((variants, samples)) < missing] = -1
    return calls


def dosages(calls):
    """Copies of non-reference alleles, -1 for a missing call."""
    return np.where((calls < 0).any(2), -1, (calls > 0).sum(2)).astype("i1")


@pytest.fixture(scope="session")
def genotypes():
    return calls(np.random.default_rng(3), 9000, 40)


def write(path, name, values, chunks, zarr_format=2, **options):
    """An array of a store, as zarr-python writes it. Its version 2 knows format 2 alone."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    older = zarr.__version__.startswith("2.")
    group = zarr.open_group(str(path), mode="a", **({} if older else {"zarr_format": zarr_format}))
    create = group.create_dataset if older else group.create_array
    array = create(name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    if values.size:
        array[...] = values
    return array


@pytest.fixture(scope="session")
def store(genotypes, tmp_path_factory):
    """Calls in chunks that parts cross."""
    path = tmp_path_factory.mktemp("stores") / "cohort.zarr"
    array = write(path, "call_genotype", genotypes, (1000, 25, 2), fill_value=-1)
    array.attrs["_ARRAY_DIMENSIONS"] = ["variants", "samples", "ploidy"]
    return str(path)


@pytest.fixture(scope="session")
def many_samples(tmp_path_factory):
    """Samples of several tiles."""
    path = tmp_path_factory.mktemp("stores") / "many.zarr"
    write(path, "call_genotype", calls(np.random.default_rng(6), 300, 150), (100, 150, 2), fill_value=-1)
    return str(path)


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Stored arrays of several types, in both formats: (path, array's name, values)."""
    path, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(8)
    kinds = {
        "f4": (rng.random((23, 60, 41)), (7, 20, 13)),
        "u1": (rng.integers(0, 256, (50, 70)), (16, 70)),
        "i8": (rng.integers(-9, 9, (30, 31)), (30, 10)),
        "?": (rng.random((20, 21)) > 0.5, (7, 8)),
    }
    found = {}
    for format_ in (2, 3):
        for number, (dtype, (values, chunks)) in enumerate(kinds.items()):
            group, name, values = str(path / f"v{format_}.zarr"), f"a{number}", values.astype(dtype)
            write(group, name, values, chunks, format_)
            found[dtype, format_] = group, name, values
    return found
