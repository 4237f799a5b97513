#!/usr/bin/env python3
"""Runs `teatime grm`, `plink2 --make-grm-bin` and numpy's product in turn on the store of make_store.py.

    python grm.py --data DIR --teatime PATH [--python PEERS_PYTHON]

Whole processes of teatime (from the compressed store to the files) and plink2 (from .bed), interleaved; of numpy only
`x.T @ x` with the standardised f32 matrix in memory counts. Medians of --runs. Standard library only. Exits with 1 if
one of the rules is broken.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import struct
import sys

from compare import HERE, Report, interleave, read_npy, run


def lower(flat):
    """The lower triangle of a square matrix."""
    n = round(len(flat) ** 0.5)
    return [flat[j * n + k] for j in range(n) for k in range(j + 1)]


def read_triangle(path):
    return [value for (value,) in struct.iter_unpack("<f", path.read_bytes())]


def furthest(xs, ys):
    return max(abs(x - y) for x, y in zip(xs, ys, strict=True))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path, help="where make_store.py wrote")
    p.add_argument("--name", default="big")
    p.add_argument("--teatime", required=True, type=pathlib.Path, help="the binary")
    p.add_argument("--python", default=sys.executable, help="a Python with requirements.txt installed")
    p.add_argument("--work", type=pathlib.Path, help="scratch folder, default DATA/grm")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    store, work = a.data / f"{a.name}.vcz", a.work or a.data / "grm"
    work.mkdir(parents=True, exist_ok=True)
    if not shutil.which(a.teatime):
        sys.exit(f"{a.teatime} is not a program")
    load = os.getloadavg()[0]
    print(f"{store.name}, {os.cpu_count()} cores, {a.threads} threads, load {load:.1f}, medians of {a.runs}")
    report = Report(a.python)
    for method, faster, extra in [("vanraden1", 1.5, ["cov"]), ("gcta", 1.0, [])]:
        out, reference = work / method, work / f"{method}.npy"
        resources = ["--threads", a.threads, "--device", a.device, "--overwrite"]
        ours = [a.teatime, "grm", store, "--out", out, "--method", method, "--missing", "mean", *resources]
        bed = ["plink2", "--bfile", a.data / a.name, "--threads", a.threads, "--out", work / "plink2"]
        # The output of plink2 is also in its .log.
        plink2 = ["sh", "-c", '"$@" >/dev/null', "sh", *bed, "--make-grm-bin", "meanimpute", *extra]
        numpy = [a.python, HERE / "grm_numpy.py", store, "--method", method]
        run([*numpy, "--products", 0, "--reference", reference], a.threads)
        names = ["teatime grm", "plink2", "numpy, whole process"]
        results = interleave(dict(zip(names, [ours, plink2, numpy])), a)
        report.table(f"{method}: teatime from the store, plink2 --make-grm-bin from .bed", results, "plink2")
        walls = {name: statistics.median(wall for wall, *_ in runs) for name, runs in results.items()}
        products = [json.loads(output) for *_, output in results["numpy, whole process"]]
        product = statistics.median(second for each in products for second in each["seconds"])
        report.note(f"numpy's x.T @ x alone: {product:.2f} s")
        ratio = product / walls["teatime grm"]
        report.rule(f"teatime is at least {faster} times as fast as that product", ratio >= faster, f"{ratio:.2f}")
        ratio = walls["plink2"] / walls["teatime grm"]
        report.rule("and twice as fast as plink2", ratio >= 2, f"{ratio:.2f}")
        triangle = read_triangle(out / "grm.grm.bin")
        off = furthest(triangle, lower(read_npy(reference)))
        report.rule("entries within 1e-5 of f64", off <= 1e-5, f"{off:.1e}")
        if method == "gcta":
            off = furthest(triangle, read_triangle(work / "plink2.grm.bin"))
            report.rule("and of plink2's", off <= 1e-5, f"{off:.1e}")
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
