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


def opened(name):
    """The device of that name; a test that needs one that does not exist is skipped, or fails where CI requires such devices."""
    try:
        return teatime.Device(name)
    except RuntimeError as error:
        if name in WANTED and name.split(":")[0] in REQUIRED:
            raise
        pytest.skip(f"no device {name}: {error}")


@pytest.fixture(params=WANTED, scope="session")
def device(request):
    return opened(request.param)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def raises(error, words, call, /, *given, **options):
    """Looks that a call ends with an error of these words, a regular expression."""
    with pytest.raises(error, match=words):
        call(*given, **options)


def calls(rng, variants, samples, missing=0.02):
    """Calls of diploids, some of them missing."""
    frequency = rng.random(variants) * 0.5
    calls = (rng.random((variants, samples, 2)) < frequency[:, None, None]).astype("i1")
    calls[rng.random((variants, samples)) < missing] = -1
    return calls


def dosages(calls):
    """Copies of non-reference alleles, -1 for a missing call."""
    return np.where((calls < 0).any(2), -1, (calls > 0).sum(2)).astype("i1")


def bed(path, dosages, variants, first=0):
    """Writes copies of A1 as a PLINK .bed with the variants, each (contig, position, A1, A2), and samples named from ``first`` on."""
    codes = np.array([3, 2, 0, 1], "u1")[np.asarray(dosages)]
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 4))).reshape(len(codes), -1, 4)
    path.write_bytes(b"\x6c\x1b\x01" + (codes << np.array([0, 2, 4, 6], "u1")).sum(2, dtype="u1").tobytes())
    lines = (f"{contig} v{at} 0 {at} {a1} {a2}\n" for contig, at, a1, a2 in variants)
    path.with_suffix(".bim").write_text("".join(lines))
    path.with_suffix(".fam").write_text("".join(f"f s{i + first} 0 0 0 -9\n" for i in range(len(dosages[0]))))
    return path


@pytest.fixture(scope="session")
def genotypes():
    return calls(np.random.default_rng(3), 9000, 40)


def write(path, name, values, chunks, zarr_format=2, attributes=None, **options):
    """Writes an array of a store as zarr-python does, whose version 2 knows format 2 alone, and returns the path of the store."""
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    older = zarr.__version__.startswith("2.")
    group = zarr.open_group(str(path), mode="a", **({} if older else {"zarr_format": zarr_format}))
    create = group.create_dataset if older else group.create_array
    array = create(name, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    if values.size:
        array[...] = values
    if attributes:
        array.attrs.update(attributes)
    return str(path)


@pytest.fixture(scope="session")
def store(genotypes, tmp_path_factory):
    """Calls in chunks that parts cross."""
    path, attributes = tmp_path_factory.mktemp("stores") / "cohort.zarr", {"_ARRAY_DIMENSIONS": ["variants", "samples", "ploidy"]}
    return write(path, "call_genotype", genotypes, (1000, 25, 2), attributes=attributes, fill_value=-1)


@pytest.fixture(scope="session")
def many_samples(tmp_path_factory):
    """Samples of several tiles."""
    path, values = tmp_path_factory.mktemp("stores") / "many.zarr", calls(np.random.default_rng(6), 300, 150)
    return write(path, "call_genotype", values, (100, 150, 2), fill_value=-1)


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
