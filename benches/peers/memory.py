#!/usr/bin/env python3
"""Seconds and peak memory of `teatime pairwise` and `teatime blur` within a budget, as what they are given grows.

    python memory.py --data DIR --teatime PATH [--python PEERS_PYTHON]

Inputs are made in DIR where they are not there, by numpy and zarr-python, and take 2.2 GB; a result takes up to 8.6 GB, and is removed.
"""

import pathlib
import shutil
import sys

from compare import HERE, Report, arguments, run

OBSERVATIONS = (4_096, 8_192, 16_384, 32_768)
VOLUMES = ((50, 1104, 1104), (50, 2208, 4416), (400, 1104, 1104))
CHUNKS = (50, 276, 276)


def make(folder):
    import numpy as np
    import zarr

    random = np.random.default_rng(1)
    for n in OBSERVATIONS:
        np.save(folder / f"{n}.npy", random.standard_normal((n, 256), dtype=np.float32))
    for shape in VOLUMES:
        path = folder / f"{'x'.join(map(str, shape))}.zarr"
        array = zarr.create_array(path, shape=shape, chunks=CHUNKS, dtype="f4", compressors=None, overwrite=True)
        for at in range(0, shape[0], CHUNKS[0]):
            array[at : at + CHUNKS[0]] = random.standard_normal((CHUNKS[0], *shape[1:]), dtype=np.float32)
    (folder / "made").touch()


def main():
    a = arguments(__doc__, "where the inputs are, or are made").parse_args()
    a.data.mkdir(parents=True, exist_ok=True)
    if not (a.data / "made").exists():
        run([a.python, HERE / "memory.py", "make", a.data], a.threads)
    report = Report(a, "budgets")
    for what, memory, sources in [
        ("pairwise", "300M", [a.data / f"{n}.npy" for n in OBSERVATIONS]),
        ("blur", "310M", [a.data / f"{'x'.join(map(str, shape))}.zarr" for shape in VOLUMES]),
    ]:
        results = {}
        for source in sources:
            out = a.data / "results" / "out.zarr"
            more = [out, "--sigma", 3, "--compression", "none"] if what == "blur" else ["--out", out]
            command = [a.teatime, what, source, *more, "--memory", memory, "--device", "cpu", "--threads", a.threads]
            for _ in range(a.runs):
                out.parent.mkdir()
                results.setdefault(source.stem, []).append(run(command, a.threads))
                shutil.rmtree(out.parent)
        report.table(f"{what} --memory {memory}", results, sources[0].stem)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", folder]:
            make(pathlib.Path(folder))
        case _:
            main()
