#!/usr/bin/env python3
"""Runs `teatime blur` and dask's `map_overlap` of scipy's Gaussian filter in turn, from a Zarr array to a Zarr array.

    python map_overlap.py --data DIR --teatime PATH [--python PEERS_PYTHON]

The volume is made in DIR where it is not there: smoothed noise of f32, by zarr-python (Zarr v3), once with its default codec,
zstd, and once uncompressed. Whole processes, interleaved; of dask also the seconds without its imports. Medians of --runs. Standard
library only, but for the peer. Exits with 1 if the two results are not the same.
"""

import json
import pathlib
import shutil
import statistics
import sys
import time

from compare import HERE, Report, arguments, interleave, median, run

# The radius of the weights in standard deviations: the default of scipy and of teatime.
TRUNCATE = 4.0


def make(folder, shape, chunks):
    import numpy as np
    import zarr
    from scipy.ndimage import gaussian_filter

    noise = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    volume = 100 + 50 * gaussian_filter(noise, 1)
    for name, compressors in [("zstd", "auto"), ("none", None)]:
        partial = folder / f"{name}.partial"
        array = zarr.create_array(partial, shape=shape, chunks=chunks, dtype="f4", compressors=compressors, overwrite=True)
        array[:] = volume
        partial.rename(folder / f"{name}.zarr")


def blur(source, target, sigma, threads):
    import dask
    import dask.array as da
    import zarr
    from scipy.ndimage import gaussian_filter

    started = time.perf_counter()
    x = zarr.open_array(source, mode="r")
    out = zarr.create_array(target, shape=x.shape, chunks=x.chunks, dtype=x.dtype, compressors=x.compressors or None, overwrite=True)
    # dask cuts off the overlap, the only part that scipy's boundary at the ends of a block changes.
    blurred = da.from_zarr(x).map_overlap(gaussian_filter, depth=int(TRUNCATE * sigma + 0.5), boundary="reflect", sigma=sigma)
    with dask.config.set(scheduler="threads", num_workers=threads):
        # No lock is needed, since dask's chunks are those of the array.
        da.store(blurred, out, lock=False)
    return {"seconds": time.perf_counter() - started, "dask": dask.__version__, "zarr": zarr.__version__}


def furthest(one, other):
    """The largest difference of two arrays, and the largest element."""
    import numpy as np
    import zarr

    one, other = (zarr.open_array(path, mode="r")[:] for path in (one, other))
    return {"difference": float(np.abs(one - other).max()), "largest": float(np.abs(other).max())}


def main():
    p = arguments(__doc__, "where the volume is, or is made")
    p.add_argument("--shape", default="50,1104,1104", help="of the volume, where it is made")
    p.add_argument("--chunks", default="50,276,276")
    p.add_argument("--sigma", type=float, default=3)
    p.add_argument("--memory", default="310M", help="what teatime blur may take")
    a = p.parse_args()
    a.data.mkdir(parents=True, exist_ok=True)
    peer = lambda *words: [a.python, HERE / "map_overlap.py", *words]
    if not (a.data / "none.zarr").exists():
        run(peer("make", a.data, a.shape, a.chunks), a.threads)
    report = Report(a, f"sigma {a.sigma}")
    for codec in ("zstd", "none"):
        source, ours, theirs = (a.data / f"{name}.zarr" for name in (codec, "teatime", "dask"))
        teatime = [a.teatime, "blur", source, ours, "--sigma", a.sigma, "--compression", codec, "--memory", a.memory]
        commands = {
            "teatime": [*teatime, "--device", "cpu", "--threads", a.threads, "--overwrite"],
            "dask": peer("blur", source, theirs, a.sigma, a.threads),
        }
        results = interleave(commands, a)
        report.table(f"{codec}: {source.name} to Zarr", results, "dask")
        told = [json.loads(output) for *_, output in results["dask"]]
        seconds = statistics.median(each["seconds"] for each in told)
        report.note(f"dask {told[0]['dask']} with zarr-python {told[0]['zarr']}, without imports: {seconds:.2f} s")
        ours_took = median(results, "teatime")
        report.note(f"times teatime: {median(results, 'dask') / ours_took:.2f}, without imports {seconds / ours_took:.2f}")
        found = json.loads(run(peer("compare", ours, theirs), a.threads)[-1])
        within = found["difference"] <= 1e-6 * found["largest"]
        report.rule("results within 1e-6 of the largest element", within, f"{found['difference']:.1e} of {found['largest']:.0f}")
        for path in (ours, theirs):
            shutil.rmtree(path)
    sys.exit(report.failed)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", folder, shape, chunks]:
            make(pathlib.Path(folder), *(tuple(map(int, of.split(","))) for of in (shape, chunks)))
        case ["blur", source, target, sigma, threads]:
            print(json.dumps(blur(source, target, float(sigma), int(threads))))
        case ["compare", one, other]:
            print(json.dumps(furthest(one, other)))
        case _:
            main()
