"""Results on processes and on a cluster: the same bits for one to three workers, after two of them were killed, and what faults say."""

import contextlib
import multiprocessing
import os
import shutil
from typing import NamedTuple

import numpy as np
import pytest
from conftest import dosages
from on_workers import Killer, Meanwhile, abort, most_at_once, panic, threads

from teatime import genotype

da = pytest.importorskip("dask.array", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
import dask  # noqa: E402
from dask.utils import key_split  # noqa: E402

import teatime.dask as td  # noqa: E402
from teatime import _worker  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:teatime. rechunked")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("TEATIME_DEVICE", "cpu")


#: Processes are forked from one that has imported what they need, in a tenth of the time of new ones, also those after a killed one;
#: the example of slides has new ones.
FORKED = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@contextlib.contextmanager
def cluster(*workers):
    """A client of workers with these options."""
    spec = {name: {"cls": distributed.Nanny, "options": {"env": {"TEATIME_DEVICE": "cpu"}, **of}} for name, of in enumerate(workers)}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    # A cluster gives a worker up that is gone so long after it was lost, also where it was there again and was killed anew.
    lost = {"distributed.deploy.lost-worker-timeout": "1h"}
    with dask.config.set({"distributed.worker.multiprocessing-method": FORKED, **lost}):
        distributed.utils.get_mp_context()
        multiprocessing.set_forkserver_preload(["distributed", "dask.array", "teatime.dask"])
        with distributed.SpecCluster(workers=spec, scheduler=scheduler) as made, distributed.Client(made) as client:
            yield client


@pytest.fixture(scope="module")
def client():
    with cluster(*[{"nthreads": 1}] * 3) as client:
        yield client


class Job(NamedTuple):
    """A lazy result."""

    of: tuple
    #: Tasks with this in their names, as dask shows them while they run: the first two that end have their workers killed.
    midway: str
    #: Names of ours in the graph.
    names: frozenset


@pytest.fixture(scope="module")
def jobs(genotypes, store, images, many_samples):
    x = da.from_array(genotypes, chunks=(4096, 40, 2))
    d = dosages(genotypes).T
    rng = np.random.default_rng(5)
    matrix, image = rng.standard_normal((300, 30)), rng.random((60, 41))
    stored, array, _ = images["u1", 2]
    products = {"product", "add-products", "next-vectors", "components", "totals", "add-totals", "pca", "pca-result"}
    svd = {"product", "add-products", "orthonormal", "qr", "qr-of-all", "left-basis", "projected", "svd", "svd-result", "left-vectors"}

    def randomized(of):
        return td.pca(of, 3, method="randomized", rows_per_task=4096)

    def components(found):
        return found.vectors, found.singular_values, found.explained_variance_ratio

    made = {
        "pca": (components(td.pca(x, 5)), "part-of-block", {"part-of-block", "merge-parts", "pca", "pca-result"}),
        "pca of a store": (
            components(td.pca(store, 5, rows_per_task=4096)), "part-of-store", {"part-of-store", "merge-parts", "pca", "pca-result"},
        ),
        "grm of a store": (
            (td.grm(store, rows_per_task=4096).matrix,), "part-of-store", {"part-of-store", "merge-parts", "grm", "grm-result"},
        ),
        "randomized": (components(randomized(x)), "teatime-product", {"band-of-block", *products}),
        "randomized of a store": (components(randomized(store)), "teatime-product", {"band-of-store", *products}),
        "distances": (
            (td.pairwise_distance(da.from_array(d, chunks=(20, 4500)), missing="rescale", negative=True),), "pair-sums",
            {"pair-sums", "merge-distances", "distances"},
        ),
        "distances of a store": (
            (td.pairwise_distance(store, rows_per_task=4096),), "pair-sums", {"pair-sums-of-store", "merge-distances", "distances"},
        ),
        "tiles of a store": (
            (td.pairwise_distance(many_samples, samples_per_task=64),), "teatime-tiles", {"bands-of-store", "tiles", "tile"},
        ),
        "svd": (td.svd_compressed(da.from_array(matrix, chunks=(60, 30)), 4, n_power_iter=2), "projected", {"random-vectors", *svd}),
        "gaussian": ((td.gaussian_filter(da.from_array(image, chunks=(20, 41)), 2),), "gaussian", {"gaussian"}),
        "gaussian of a store": ((td.gaussian_filter(stored, 2, array=array, chunks=(20, 70)),), "gaussian", {"gaussian-of-store"}),
        "bits": ((td.unpack(td.pack(da.from_array((d + 1).astype("u1"), chunks=(10, -1))), 9000),), "unpack", {"pack", "unpack"}),
    }
    return {name: Job(of, midway, frozenset(f"teatime-{of}" for of in names)) for name, (of, midway, names) in made.items()}


@pytest.fixture(scope="module")
def wanted(jobs):
    with pytest.MonkeyPatch.context() as on_the_cpu:
        on_the_cpu.setenv("TEATIME_DEVICE", "cpu")
        found = dask.compute(*(job.of for job in jobs.values()), scheduler="sync")
    return dict(zip(jobs, found))


JOBS = [
    "pca", "pca of a store", "grm of a store", "randomized", "randomized of a store", "distances", "distances of a store", "tiles of a store",
    "svd", "gaussian", "gaussian of a store", "bits",
]


def same(found, wanted, name):
    for of, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(of, want, err_msg=name)


def gathered(futures):
    return [of.result(timeout=60) for of in futures]


def addresses(client):
    client.wait_for_workers(3, timeout=30)
    return sorted(client.run(os.getpid))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_bits_on_any_number_of_workers(client, jobs, wanted, count):
    def ran():
        return client.run(lambda dask_worker: dask_worker.state.executed_count)

    some, before = addresses(client)[:count], ran()
    found = {name: client.compute(job.of, workers=some) for name, job in jobs.items()}
    for name, of in found.items():
        same(gathered(of), wanted[name], name)
    assert {address for address, done in ran().items() if done > before[address]} == set(some)


def test_the_same_bits_on_processes(jobs, wanted):
    with dask.config.set({"multiprocessing.context": FORKED}):
        found = dask.compute(*(job.of for job in jobs.values()), scheduler="processes", num_workers=2)
    for name, of in zip(jobs, found):
        same(of, wanted[name], name)


def test_the_whole_has_the_same_bits(wanted, genotypes):
    same(wanted["pca"][:1], [genotype.pca(genotypes, 5, method="exact", device="cpu").vectors], "pca")
    same(wanted["pca of a store"], wanted["pca"], "pca")
    same(wanted["grm of a store"], [genotype.grm(genotypes, device="cpu").matrix], "grm")
    same(wanted["randomized of a store"], wanted["randomized"], "randomized")
    same(wanted["distances of a store"], [genotype.distances(genotypes, device="cpu").matrix], "distances")
    same(wanted["distances"], wanted["distances of a store"], "distances")


@pytest.mark.parametrize("name", JOBS)
def test_tasks_have_names_to_read(jobs, name):
    """As dask's pages and ``performance_report`` shorten keys: a word of eight letters that starts with one from a to f is a hash there."""
    keys = {key_split(key) for of in jobs[name].of for key in dict(of.__dask_graph__())}
    assert {key for key in keys if key.startswith("teatime")} == jobs[name].names


@contextlib.contextmanager
def killing(client, folder, task, count=2, **options):
    """So many workers die meanwhile."""
    addresses(client)
    pids = set(client.run(os.getpid).values())
    folder.mkdir()
    client.register_plugin(Killer(folder, task, pids, count, **options))
    yield
    client.unregister_worker_plugin(Killer.name)
    killed = {int(of.read_text()) for of in folder.iterdir()}
    assert len(killed) == count and killed < pids
    assert not killed & set(client.run(os.getpid).values())


@pytest.mark.parametrize("name", JOBS)
def test_two_killed_workers_change_no_bit(client, jobs, wanted, name, tmp_path):
    with killing(client, tmp_path / "killed", jobs[name].midway):
        found = gathered(client.compute(jobs[name].of))
    same(found, wanted[name], name)


def test_a_store_that_changes_between_passes_is_told(client, store, tmp_path):
    path = shutil.copytree(store, tmp_path / "written.zarr")
    changed = tmp_path / "changed"
    changed.mkdir()
    # One in each band.
    for chunk in ("0.0.0", "5.0.0", "8.0.0"):
        shutil.copyfile(path / "call_genotype" / "1.0.0", changed / chunk)
    with killing(client, tmp_path / "killed", "teatime-product", 1, after=3, changed=changed, stored=path / "call_genotype"):
        with pytest.raises(RuntimeError, match="changed between two products"):
            td.pca(str(path), 3, method="randomized", n_iter=None, tol=1e-7, rows_per_task=4096, compute=True)


def test_a_store_that_a_worker_does_not_see_is_named(client, store, images, tmp_path):
    path, image = (shutil.copytree(of, tmp_path / name) for of, name in ((store, "cohort.zarr"), (images["u1", 2][0], "slide.zarr")))
    made = (
        td.pca(str(path), 3).vectors,
        td.pca(str(path), 3, method="randomized").vectors,
        td.grm(str(path)).matrix,
        td.pairwise_distance(str(path)),
        td.gaussian_filter(str(image), 1, array=images["u1", 2][1]),
    )
    for of in (path, image):
        of.rename(of.with_name(f"moved-{of.name}"))
    for of in client.compute(made):
        with pytest.raises(OSError, match=r"(cohort|slide)\.zarr.*\(seen from .*, process \d+: every worker has to see the store"):
            of.result(timeout=30)


def test_a_band_that_cannot_be_read_again_is_an_error(client, store, tmp_path):
    path = shutil.copytree(store, tmp_path / "moved.zarr")
    one, other, _ = addresses(client)
    options = genotype.pca_options(2, method="randomized")
    band = client.submit(_worker.band_of_store, (str(path), None, False), (0, 4096), None, options, None, workers=[one])
    band.result(timeout=30)
    path.rename(tmp_path / "elsewhere.zarr")
    product = client.submit(_worker.product_of_band, band, np.ones((40, 1)), workers=[other])
    with pytest.raises(OSError, match="every worker has to see the store"):
        product.result(timeout=30)


def test_a_panic_is_an_error_in_the_client(client):
    x = da.ones((4, 4), chunks=2).map_blocks(panic, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(RuntimeError, match="asked for"):
        client.compute(x).result(timeout=30)
    assert client.submit(int, 3).result(timeout=30) == 3


def test_a_device_that_a_worker_has_not_is_named(client):
    with pytest.raises(RuntimeError, match="cuda:99"):
        client.compute(td.gaussian_filter(da.ones((4, 4), chunks=2), 1, device="cuda:99")).result(timeout=30)


def test_a_task_that_aborts_leaves_the_cluster_usable(client):
    client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 1))
    x = da.ones((2, 2), chunks=2).map_blocks(abort, dtype="f8", meta=np.empty((0, 0)))
    with pytest.raises(distributed.KilledWorker):
        client.compute(x).result(timeout=60)
    client.run_on_scheduler(lambda dask_scheduler: setattr(dask_scheduler, "allowed_failures", 3))
    got = client.compute(td.gaussian_filter(da.ones((4, 4), chunks=2), 1)).result(timeout=30)
    np.testing.assert_allclose(got, 1)


def test_resources_that_no_worker_has_are_refused(client, genotypes):
    # Of a cluster without workers, tasks wait for one; those that a test has killed may not be back yet.
    client.wait_for_workers(2, timeout=60)
    x = da.from_array(genotypes, chunks=(4096, 40, 2))
    with pytest.raises(ValueError, match="no worker has 1 of 'GPU'"):
        td.pca(x, resources={"GPU": 1}, compute=True)
    with pytest.raises(ValueError, match="compute=True"):
        td.pca(x, resources={"GPU": 1})


def test_resources_choose_workers_and_bound_tasks(genotypes, store):
    x = da.from_array(genotypes, chunks=(4096, 40, 2))
    blocks = da.from_array(dosages(genotypes).T, chunks=(10, 4500))

    options = {"env": {"TEATIME_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}}
    with cluster({"nthreads": 4, "resources": {"GPU": 1}, **options}, {"nthreads": 1, **options}) as client:
        client.register_plugin(Meanwhile())
        declared = client.run(lambda dask_worker: dask_worker.state.nthreads)
        with_gpu, without = sorted(declared, key=declared.get, reverse=True)
        assert client.submit(threads, workers=[with_gpu]).result(timeout=30) == (4, "1")
        gpu = {"resources": {"GPU": 1}, "compute": True}
        td.pca(x, 2, **gpu)
        td.pca(store, 2, method="randomized", n_iter=None, rows_per_task=4096, **gpu)
        td.pairwise_distance(blocks, **gpu)
        td.gaussian_filter(blocks.astype("f4"), 1, **gpu)
        assert client.run(most_at_once) == {with_gpu: 1, without: 0}
        td.pairwise_distance(blocks, compute=True)
        most = client.run(most_at_once)
        assert most[with_gpu] > 1 and most[without] == 1
