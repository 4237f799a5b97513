"""Results on processes and on a cluster: the same bits for one to three workers, and after two of them were killed."""

import contextlib
import json
import multiprocessing
import os
import re

import numpy as np
import pytest
from conftest import dosages
from on_workers import Killer, Meanwhile, most_at_once, threads

da = pytest.importorskip("dask.array", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
import dask  # noqa: E402
from dask.utils import key_split  # noqa: E402

import teatime  # noqa: E402
import teatime.dask as td  # noqa: E402

#: Processes are forked from one that has imported the modules, in a tenth of the time of new ones. Replacements of killed workers are too.
#: Only the example of slides starts new ones.
FORKED = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@contextlib.contextmanager
def cluster(*workers):
    """A client of workers with these options."""
    spec = {name: {"cls": distributed.Nanny, "options": options} for name, options in enumerate(workers)}
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard_address": ":0"}}
    # A cluster gives up a worker this long after it was lost, even if the worker came back and was killed again.
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


@pytest.fixture(scope="module")
def jobs(genotypes, store, images, many_samples):
    x = da.from_array(genotypes, chunks=(4096, 40, 2))
    d = dosages(genotypes).T
    rng = np.random.default_rng(5)
    matrix, image = rng.standard_normal((300, 30)), rng.random((60, 41))
    stored, array, _ = images["u1", 2]

    def components(pca):
        return pca.vectors, pca.singular_values, pca.explained_variance_ratio

    def randomized(source):
        return components(td.pca(source, 3, method="randomized", rows_per_task=4096))

    return {
        "pca": components(td.pca(x, 5)),
        "pca of a store": components(td.pca(store, 5, rows_per_task=4096)),
        "grm of a store": (td.grm(store, rows_per_task=4096).matrix,),
        "randomized": randomized(x),
        "randomized of a store": randomized(store),
        "distances": (td.pairwise_distance(da.from_array(d, chunks=(20, 4500)), missing="rescale", negative=True),),
        "distances of a store": (td.pairwise_distance(store, rows_per_task=4096),),
        "tiles of a store": (td.pairwise_distance(many_samples, samples_per_task=64),),
        "svd": td.svd_compressed(da.from_array(matrix, chunks=(60, 30)), 4, n_power_iter=2),
        "gaussian": (td.gaussian_filter(da.from_array(image, chunks=(20, 41)), 2),),
        "gaussian of a store": (td.gaussian_filter(stored, 2, array=array, chunks=(20, 70)),),
        "function of a store": (td.map_overlap(lambda x, lower: x // 2 - lower, os.path.join(stored, array), 3, chunks=(20, 70), lower=1),),
        "bits": (td.unpack(td.pack(da.from_array((d + 1).astype("u1"), chunks=(10, -1))), 9000),),
    }


#: A part of the names of tasks. The workers of the first two of these tasks that end are killed.
MIDWAY = {
    "pca": "part-of-block", "pca of a store": "part-of-store", "grm of a store": "part-of-store", "randomized": "teatime-product",
    "randomized of a store": "teatime-product", "distances": "pair-sums", "distances of a store": "pair-sums",
    "tiles of a store": "teatime-tiles", "svd": "projected", "gaussian": "gaussian", "gaussian of a store": "gaussian", "function of a store": "map-overlap",
    "bits": "unpack",
}


@pytest.fixture(scope="module")
def wanted(jobs):
    return dict(zip(jobs, dask.compute(*jobs.values(), scheduler="sync")))


def same(results, wanted, name):
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, want, err_msg=name)


def gathered(futures):
    return [future.result(timeout=60) for future in futures]


def addresses(client):
    client.wait_for_workers(3, timeout=30)
    return sorted(client.run(os.getpid))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_same_bits_on_any_number_of_workers(client, jobs, wanted, count):
    def ran():
        return client.run(lambda dask_worker: dask_worker.state.executed_count)

    some, before = addresses(client)[:count], ran()
    futures = {name: client.compute(results, workers=some) for name, results in jobs.items()}
    for name, of_job in futures.items():
        same(gathered(of_job), wanted[name], name)
    assert {address for address, done in ran().items() if done > before[address]} == set(some)


def test_the_same_bits_on_processes(jobs, wanted):
    with dask.config.set({"multiprocessing.context": FORKED}):
        computed = dask.compute(*jobs.values(), scheduler="processes", num_workers=2)
    for name, results in zip(jobs, computed):
        same(results, wanted[name], name)


def test_a_timeline_has_what_workers_do(client, jobs, tmp_path):
    some = addresses(client)
    with teatime.Timeline(client) as timeline:
        # Work of this process too.
        teatime.pairwise_distance(np.ones((3, 4), np.float32), device="cpu")
        gathered(client.compute(jobs["distances of a store"], workers=some[:2]))
    timeline.write_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    kinds = {(lanes[event["tid"]].rpartition(": ")[0], event["cat"]) for event in events if event["ph"] == "X"}
    assert {("", "kernel"), *((worker, kind) for worker in some[:2] for kind in ("decode", "kernel"))} <= kinds
    assert some[2] not in {process for process, _ in kinds}


def test_tasks_have_names_to_read(jobs):
    """As dask's pages and ``performance_report`` shorten keys: a word of eight letters that starts with one from a to f is a hash there."""
    keys = {key[0] if isinstance(key, tuple) else key for results in jobs.values() for array in results for key in dict(array.__dask_graph__())}
    names = {key: re.sub("-[0-9a-f]{32}.*", "", key) for key in keys if key.startswith("teatime")}
    assert len(set(names.values())) > 30 and all(key_split(key) == name for key, name in names.items())


@pytest.mark.parametrize("name", MIDWAY)
def test_two_killed_workers_change_no_bit(client, jobs, wanted, name, tmp_path):
    addresses(client)
    pids = set(client.run(os.getpid).values())
    client.register_plugin(Killer(tmp_path, MIDWAY[name], pids, 2))
    computed = gathered(client.compute(jobs[name]))
    client.unregister_worker_plugin(Killer.name)
    killed = {int(file.read_text()) for file in tmp_path.iterdir()}
    assert len(killed) == 2 and killed < pids
    assert not killed & set(client.run(os.getpid).values())
    same(computed, wanted[name], name)


def test_resources_choose_workers_and_bound_tasks(genotypes, store):
    x = da.from_array(genotypes, chunks=(4096, 40, 2))
    blocks = da.from_array(dosages(genotypes).T, chunks=(10, 4500))
    options = {"env": {"OMP_NUM_THREADS": "1"}}
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
