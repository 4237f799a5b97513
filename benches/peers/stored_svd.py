#!/usr/bin/env python3
"""Runs the truncated SVD of a stored matrix in turn: `teatime svd`, `--bench stored_svd`, dask's `svd_compressed`, scikit-learn in memory.

    python stored_svd.py --data DIR --teatime PATH --linked PATH [--python PEERS_PYTHON]

The matrix is made in DIR where it is not there: f32, of rank 20 plus noise, in uncompressed chunks (Zarr v2). All compute ten components and
both sides' vectors, with as many power iterations. Whole processes, interleaved; of the peers also the seconds without their imports.
Medians of --runs. Standard library only, but for the peers. Exits with 1 if teatime's singular values are lower than dask's, which are
projections: the larger ones are closer.
"""

import json
import pathlib
import statistics
import sys
import time

from compare import HERE, K, Report, arguments, interleave, run


def make(path, shape, chunks):
    import numpy as np
    import zarr

    random = np.random.default_rng(1)
    left, right = (random.standard_normal((n, 20), dtype=np.float32) for n in shape)
    left *= np.linspace(3, 1, 20, dtype=np.float32)
    partial = path.with_suffix(".partial")
    array = zarr.create_array(partial, shape=shape, chunks=chunks, dtype="f4", compressors=None, zarr_format=2, overwrite=True)
    for start in range(0, shape[0], chunks[0]):
        rows = left[start : start + chunks[0]] @ right.T
        array[start : start + chunks[0]] = rows + 5 * random.standard_normal(rows.shape, dtype=np.float32)
    partial.rename(path)


def peer(name, path, iterations, threads):
    import dask
    import dask.array as da
    import zarr
    from sklearn.utils.extmath import randomized_svd

    started = time.perf_counter()
    if name == "dask":
        with dask.config.set(scheduler="threads", num_workers=threads):
            u, s, v = dask.compute(*da.linalg.svd_compressed(da.from_zarr(path), K, n_power_iter=iterations, seed=0))
    else:
        u, s, v = randomized_svd(zarr.open_array(path, mode="r")[:], K, n_iter=iterations, random_state=0)
    return {"seconds": time.perf_counter() - started, "singular_values": s.tolist(), "shape": [*u.shape, *v.shape]}


def main():
    p = arguments(__doc__, "where the matrix is, or is made", runs=5)
    p.add_argument("--linked", type=pathlib.Path, help="the program of `--bench stored_svd`")
    p.add_argument("--shape", default="25000,20000", help="of the matrix, where it is made")
    p.add_argument("--chunks", default="1000,5000")
    p.add_argument("--power-iterations", type=int, default=2)
    a = p.parse_args()
    a.data.mkdir(parents=True, exist_ok=True)
    path, out = a.data / "matrix.zarr", a.data / "svd"
    peers = lambda *words: [a.python, HERE / "stored_svd.py", *words]
    if not path.exists():
        run(peers("make", path, a.shape, a.chunks), a.threads)
    steps = ["--power-iterations", a.power_iterations]
    svd = [a.teatime, "svd", path, "--out", out, "-k", K, *steps, "--left", "--right", "--overwrite"]
    commands = {
        "teatime": [*svd, "--method", "randomized", "--memory", "1G", "--device", "cpu", "--threads", a.threads],
        **({"linked": [a.linked, path, K, a.power_iterations]} if a.linked else {}),
        **{name: peers(name, path, a.power_iterations, a.threads) for name in ("dask", "sklearn")},
    }
    report = Report(a, path.name)
    results = interleave(commands, a)
    report.table(f"{path.name}, {a.power_iterations} power iterations, {K} components, both sides", results, "dask")
    last = {name: json.loads(results[name][-1][-1]) for name in commands if name != "teatime"}
    for name in last:
        seconds = statistics.median(json.loads(output)["seconds"] for *_, output in results[name])
        report.note(f"{name}, without start and imports: {seconds:.2f} s")
    ours = [float(line.split("\t")[1]) for line in (out / "singular_values.tsv").read_text().splitlines() if line[0].isdigit()]
    for name, values in {"teatime": ours, **{name: told["singular_values"] for name, told in last.items()}}.items():
        if name != "dask":
            lower = max(1 - ours / dask for ours, dask in zip(values, last["dask"]["singular_values"], strict=True))
            report.rule(f"{name}: singular values at least dask's, within 1e-6", lower <= 1e-6, f"lower by at most {max(lower, 0):.1e}")
    sys.exit(report.failed)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", path, shape, chunks]:
            make(pathlib.Path(path), *(tuple(map(int, of.split(","))) for of in (shape, chunks)))
        case ["dask" | "sklearn" as name, path, iterations, threads]:
            print(json.dumps(peer(name, path, int(iterations), int(threads))))
        case _:
            main()
