#!/usr/bin/env python3
"""Runs `teatime grm`, `plink2 --make-grm-bin` and numpy's product in turn on the store of make_store.py.

    python grm.py --data DIR --teatime PATH [--python PEERS_PYTHON]

Whole processes of teatime (from the compressed store to the files) and plink2 (from .bed), interleaved; of numpy only
`x.T @ x` with the standardised f32 matrix in memory counts. Medians of --runs. Standard library only. Exits with 1 if
one of the rules is broken.
"""

import json
import statistics
import struct
import sys

from compare import HERE, Report, arguments, cohort, interleave, median, read_npy, run


def lower(flat):
    """The lower triangle of a square matrix."""
    n = round(len(flat) ** 0.5)
    return [flat[j * n + k] for j in range(n) for k in range(j + 1)]


def read_triangle(path):
    return [value for (value,) in struct.iter_unpack("<f", path.read_bytes())]


def furthest(xs, ys):
    return max(abs(x - y) for x, y in zip(xs, ys, strict=True))


def main():
    a = cohort(arguments(__doc__, "where make_store.py wrote"), "grm")
    store, work = a.store, a.work
    report = Report(a, store.name)
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
        products = [json.loads(output) for *_, output in results["numpy, whole process"]]
        product = statistics.median(second for each in products for second in each["seconds"])
        report.note(f"numpy's x.T @ x alone: {product:.2f} s")
        ratio = product / median(results, "teatime grm")
        report.rule(f"teatime is at least {faster} times as fast as that product", ratio >= faster, f"{ratio:.2f}")
        ratio = median(results, "plink2") / median(results, "teatime grm")
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
