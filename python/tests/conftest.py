"""What tests share: the devices that there are, and a cluster of two processes."""

import os

import numpy as np
import pytest

import teatime

#: What tests of all devices run on; one that CI requires is a failure where it is not there.
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


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def calls(rng, variants, samples, missing=0.02):
    """Calls of diploids, some of them missing."""
    frequency = rng.random(variants) * 0.5
    calls = (rng.random((variants, samples, 2)) < frequency[:, None, None]).astype("i1")
    calls[rng.random((variants, samples)) < missing] = -1
    return calls


def dosages(calls):
    """Copies of non-reference alleles, -1 for a missing call."""
    return np.where((calls < 0).any(2), -1, (calls > 0).sum(2)).astype("i1")
