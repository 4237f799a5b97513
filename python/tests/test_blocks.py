"""The rounds against the whole matrix, and the examples of other engines, where these are installed."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import bed, dosages, raises, write

import teatime
from teatime import blocks, genotype

EXAMPLES = Path(__file__).parent.parent / "examples"
CALLS = (np.random.default_rng(3).random((9000, 20, 2)) < np.linspace(0.1, 0.9, 9000)[:, None, None]).astype("i1")


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    return write(tmp_path_factory.mktemp("blocks") / "cohort.zarr", "call_genotype", CALLS, (1000, 20, 2))


def rounds_of(parts, shape, k, **options):
    rounds = blocks.Rounds(shape, k, **options)
    while (x := rounds.wanted()) is not None:
        rounds.add(sum(part(x) for part in parts))
        rounds = pickle.loads(pickle.dumps(rounds))
    return rounds


@pytest.mark.parametrize("n_iter", [None, 3])
def test_rounds_of_a_matrix(n_iter):
    rng = np.random.default_rng(0)
    a = rng.normal(size=(60, 8)) @ np.diag(0.5 ** np.arange(8)) @ rng.normal(size=(8, 30))
    parts = [lambda x, block=block: blocks.normal_product(block, x, "cpu") for block in np.array_split(a, 4)]
    rounds = rounds_of(parts, a.shape, 3, n_iter=n_iter, tol=1e-8)
    _, s, vt = np.linalg.svd(a)
    assert np.allclose(rounds.singular_values, s[:3], rtol=1e-9)
    assert np.allclose(np.abs(rounds.vectors.T @ vt[:3].T), np.eye(3), atol=1e-6)
    assert np.array_equal(rounds.scores, rounds.vectors * rounds.singular_values)


def test_variants_of_arrays_and_stores(cohort):
    expected = genotype.pca(CALLS, 3, device="cpu")
    shape, ranges = blocks.Variants.ranges(cohort, 3)
    assert shape == (9000, 20) and len(ranges) > 1
    stored = [blocks.Variants(cohort, rows, device="cpu") for rows in ranges]
    stored[0] = pickle.loads(pickle.dumps(stored[0]))
    here = [blocks.Variants(CALLS[slice(*rows)], device="cpu") for rows in ranges]
    results = [rounds_of([part.normal_product for part in parts], shape, 3, tol=1e-7) for parts in (stored, here)]
    for rounds in results:
        assert np.allclose(rounds.singular_values, expected.singular_values, rtol=1e-6)
        assert np.allclose(np.abs(rounds.vectors.T @ expected.vectors), np.eye(3), atol=1e-4)
    assert np.array_equal(results[0].scores, results[1].scores)
    whole = blocks.Variants(cohort, device="cpu").normal_product(np.eye(20))
    assert np.allclose(whole, sum(part.normal_product(np.eye(20)) for part in stored), rtol=1e-5, atol=1e-3)


def test_variants_on_contigs(tmp_path):
    on_first = np.arange(9000) % 3 > 0
    d = dosages(CALLS)
    store = bed(tmp_path / "all.bed", d, [("1" if first else "X", i + 1, "A", "C") for i, first in enumerate(on_first)])
    expected = genotype.pca(np.ascontiguousarray(d[on_first]), 3, device="cpu")
    shape, ranges = blocks.Variants.ranges(store, 3, contigs="autosomes")
    assert shape == (6000, 20) and len(ranges) > 1
    parts = [blocks.Variants(store, rows, contigs="autosomes", device="cpu") for rows in ranges]
    parts[0] = pickle.loads(pickle.dumps(parts[0]))
    rounds = rounds_of([part.normal_product for part in parts], shape, 3, tol=1e-7)
    assert np.allclose(rounds.singular_values, expected.singular_values, rtol=1e-6)
    whole = blocks.Variants(store, contigs="1", device="cpu").normal_product(np.eye(20))
    assert np.allclose(whole, sum(part.normal_product(np.eye(20)) for part in parts), rtol=1e-5, atol=1e-3)
    # With its rows, a store need not be there yet.
    blocks.Variants(tmp_path / "later.bed", (0, 9))
    raises(TypeError, "`contigs` and `n_autosomes` are for the path of a store", blocks.Variants, CALLS, contigs="1")


def test_bad_rounds():
    raises(ValueError, "`n_components` of 5: .* at most 4", blocks.Rounds, (9, 4), 5)
    rounds = blocks.Rounds((9, 4), 2)
    with pytest.raises(RuntimeError, match="another product is wanted"):
        _ = rounds.singular_values
    raises(ValueError, r"`product` is \(4, columns\), not \(9, 2\)", rounds.add, np.zeros((9, 2)))


def run(folder, *command):
    root = str(Path(teatime.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": root, "RAY_USAGE_STATS_ENABLED": "0"}
    # In containers, the only user is root.
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    command = [str(part) for part in command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("engine", ["ray", "mpi4py"])
def test_pca_of_other_engines(cohort, tmp_path, engine):
    pytest.importorskip(engine)
    command = [sys.executable, EXAMPLES / f"{engine}_pca.py", cohort, "--components", 3]
    if engine == "mpi4py":
        mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if mpiexec is None:
            pytest.skip("there is no mpiexec")
        command = [mpiexec, "-n", 2, *command]
    assert "singular values" in run(tmp_path, *command)
    scores, expected = np.load(tmp_path / "scores.npy"), genotype.pca(CALLS, 3, device="cpu").scores
    assert np.allclose(np.abs(scores), np.abs(expected), atol=1e-2 * np.abs(expected).max())


def test_singular_values_on_cubed(tmp_path):
    pytest.importorskip("cubed")
    a = np.random.default_rng(5).normal(size=(300, 20)) * 0.7 ** np.arange(20)
    write(tmp_path / "some.zarr", "matrix", a, (70, 8))
    run(tmp_path, sys.executable, EXAMPLES / "cubed_pca.py", tmp_path / "some.zarr" / "matrix")
    vt = np.linalg.svd(a)[2][:4]
    assert np.allclose(np.abs(vt @ np.load(tmp_path / "vectors.npy")), np.eye(4), atol=1e-3)


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_slides(tmp_path, engine):
    pytest.importorskip("distributed" if engine == "dask" else engine)
    images = {f"slide{i}.npy": np.random.default_rng(i).integers(0, 255, (40, 30, 3)).astype("u1") for i in range(3)}
    for name, image in images.items():
        np.save(tmp_path / name, image)
    (tmp_path / "blurred").mkdir()
    run(tmp_path, sys.executable, EXAMPLES / "slides.py", engine, "blurred", *images)
    assert sorted(path.name for path in (tmp_path / "blurred").iterdir()) == sorted(images)
    for name, image in images.items():
        assert np.array_equal(np.load(tmp_path / "blurred" / name), teatime.gaussian_filter(image, 2.0, axes=(0, 1), device="cpu"))
