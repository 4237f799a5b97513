#!/usr/bin/env python3
"""Runs `teatime distance` and `plink1.9 --distance` in turn on the .bed of make_store.py, as it is and with 1 % of its calls missing.

    python sample_distances.py --data DIR --teatime PATH [--sgkit PYTHON]

Whole processes, from the .bed to a square of f64, interleaved; with --sgkit, a Python that has sgkit, that too, once. Medians of
--runs. Standard library only. Exits with 1 if one of the rules is broken.
"""

import json
import random
import shutil
import sys

from compare import HERE, Report, arguments, cohort, interleave, median, run


def with_missing(source, target):
    """A copy of a .bed's files in which one call in a hundred is missing."""
    data = bytearray(source.with_suffix(".bed").read_bytes())
    draw = random.Random(1)
    at = 12
    while True:
        # Gaps between missing calls are drawn for a probability of 0.01 each. A byte has four calls.
        at += 1 + int(draw.expovariate(0.01))
        byte, shift = at // 4, at % 4 * 2
        if byte >= len(data):
            break
        data[byte] = data[byte] & ~(3 << shift) | 1 << shift
    target.with_suffix(".bed").write_bytes(data)
    for ending in (".bim", ".fam"):
        shutil.copy(source.with_suffix(ending), target.with_suffix(ending))


def main():
    p = arguments(__doc__, "where make_store.py wrote", runs=5)
    p.add_argument("--sgkit", help="a Python with sgkit installed")
    a = cohort(p, "distances")
    work, whole, gaps = a.work, a.data / a.name, a.work / "missing"
    if not gaps.with_suffix(".bed").exists():
        with_missing(whole, gaps)
    report = Report(a, whole.name)
    metrics = ["cityblock", "ibs", "euclidean", "hamming", "correlation", "cosine", "inner_product"]
    for what, prefix in [("complete", whole), ("1 % missing", gaps)]:
        resources = ["--threads", a.threads, "--device", a.device, "--overwrite"]
        commands = {
            metric: [a.teatime, "distance", f"{prefix}.bed", "--out", work / f"{metric}.dist.bin", "--metric", metric,
                     "--missing", "rescale" if metric == "cityblock" else "ignore", *resources]
            for metric in metrics
        }
        plink = ["plink1.9", "--bfile", prefix, "--threads", a.threads, "--silent", "--distance", "square", "bin", "flat-missing"]
        commands["plink1.9"] = [*plink, "--out", work / "plink"]
        commands["plink1.9 ibs"] = [*plink, "ibs", "--out", work / "plink"]
        results = interleave(commands, a)
        report.table(f"{what}: from .bed to a square of f64", results, "plink1.9")
        for ours, theirs in [("cityblock", "plink1.9"), ("ibs", "plink1.9 ibs")]:
            ratio = median(results, theirs) / median(results, ours)
            report.rule(f"{ours}, {what}: at least twice as fast as plink1.9", ratio >= 2, f"{ratio:.2f}")
        same = (work / "cityblock.dist.bin").read_bytes() == (work / "plink.dist.bin").read_bytes()
        report.rule(f"cityblock, {what}: the bytes that plink1.9 writes", same, "")
        peak = max(peak for name in metrics for *_, peak, _ in results[name])
        report.rule(f"{what}: at most 150 MB", peak <= 150, f"{peak:.0f} MB")
        if a.sgkit and prefix == whole:
            for metric, faster in [("euclidean", 100), ("correlation", 300)]:
                *_, output = run([a.sgkit, HERE / "sgkit_distance.py", f"{whole}.vcz", metric], a.threads)
                seconds = json.loads(output)["seconds"]
                ratio = seconds / median(results, metric)
                detail = f"{seconds:.1f} s, {ratio:.0f}"
                report.rule(f"{metric}: at least {faster} times as fast as sgkit", ratio >= faster, detail)
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
