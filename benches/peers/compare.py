#!/usr/bin/env python3
"""Runs `teatime` and its peers in turn on the store of make_store.py; prints their times, memory and accuracy.

    python compare.py --data DIR --teatime PATH [--modes randomized,default,tolerance,approx] [--python PEERS_PYTHON]

Whole processes, interleaved so that a slow minute of the machine hits all of them; medians of --runs. Without
--teatime only the peers run. Standard library only. Exits with 1 if one of the accuracy rules is broken.
"""

import argparse
import ast
import csv
import json
import math
import operator
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import time

import blas  # noqa: F401, sets variables of children free

HERE = pathlib.Path(__file__).resolve().parent
K = 10


# --- running -------------------------------------------------------------------------------------------------


def run(command, threads):
    """(wall seconds, CPU seconds, peak resident MB, standard output) of a process and its children."""
    env = {**os.environ, "THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True, env=env)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, output


def interleave(commands, a):
    """Runs every command once per round; {name: [(wall, CPU, peak, output) of each run]}."""
    results = {name: [] for name in commands}
    for _ in range(a.runs):
        for name, command in commands.items():
            results[name].append(run(command, a.threads))
            wall, cpu, peak, _ = results[name][-1]
            print(f"  {name}: {wall:.2f} s, {cpu:.2f} CPU s, {peak:.0f} MB", file=sys.stderr)
    return results


# --- reading -------------------------------------------------------------------------------------------------


def read_npy(path):
    """A C-ordered f64 .npy, flat."""
    data = path.read_bytes()
    head = data[10 : 10 + struct.unpack("<H", data[8:10])[0]]
    what = ast.literal_eval(head.decode())
    if data[6] != 1 or what["descr"] != "<f8" or what["fortran_order"]:
        sys.exit(f"{path}: expected version 1, <f8, C order")
    count = math.prod(what["shape"])
    return struct.unpack(f"<{count}d", data[10 + len(head) : 10 + len(head) + 8 * count])


def read_lapack(prefix):
    values = read_npy(prefix.with_name(prefix.name + ".npy"))[:K]
    flat = read_npy(prefix.with_name(prefix.name + ".vectors.npy"))
    return values, [flat[j::K] for j in range(K)]


def read_eigenvec(path):
    """Columns PC1... of a plink2 .eigenvec, whose IDs take one column (#IID) or two (#FID IID)."""
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    first = header.index("PC1")
    return [[float(row[j]) for row in rows] for j in range(first, len(header))]


def read_teatime(out):
    with open(out / "eigenvalues.tsv") as file:
        rows = list(csv.DictReader((line for line in file if not line.startswith("##")), delimiter="\t"))
    values = [float(row["singular_value"]) for row in rows]
    return values, read_eigenvec(out / "pca.eigenvec"), json.loads((out / "run.json").read_text())


def find(tree, key):
    """The first value of `key` anywhere in nested JSON."""
    for k, v in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        hit = v if k == key else find(v, key)
        if hit is not None:
            return hit
    return None


# --- judging -------------------------------------------------------------------------------------------------


def errors(values, reference):
    """Relative errors; infinite for a NaN, which would slip through every comparison."""
    every = (abs(v / r - 1) for v, r in zip(values, reference, strict=True))
    return [math.inf if math.isnan(e) else e for e in every]


def correlation(x, y):
    mx, my = statistics.fmean(x), statistics.fmean(y)
    xy = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    xx, yy = math.fsum((a - mx) ** 2 for a in x), math.fsum((b - my) ** 2 for b in y)
    r = abs(xy) / math.sqrt(xx * yy)
    return 0.0 if math.isnan(r) else r


def correlations(xs, ys):
    return [correlation(x, y) for x, y in zip(xs, ys, strict=True)]


def angle(xs, ys):
    """The Frobenius norm of the sines of the angles between the spaces that two lists of vectors span."""
    bases = []
    for vectors in (xs, ys):
        basis = []
        for v in vectors:
            # Each vector is projected twice, so that the rest is orthogonal to all digits.
            for w in basis + basis:
                d = math.fsum(map(operator.mul, v, w))
                v = [a - d * b for a, b in zip(v, w, strict=True)]
            norm = math.sqrt(math.fsum(map(operator.mul, v, v)))
            basis.append([a / norm for a in v])
        bases.append(basis)
    outside = 0.0
    for v in bases[0]:
        # 1 less a sum of squares would lose small angles.
        for w in bases[1]:
            d = math.fsum(map(operator.mul, v, w))
            v = [a - d * b for a, b in zip(v, w, strict=True)]
        outside += math.fsum(map(operator.mul, v, v))
    return math.sqrt(outside)


def show(numbers):
    return " ".join(f"{n:.1e}" for n in numbers)


class Report:
    """A script's output. It starts with the processor and the OpenBLAS of peers, and refuses one that is not at full speed."""

    def __init__(self, a, what):
        self.failed = False
        told = subprocess.run([a.python, HERE / "blas.py"], stdout=subprocess.PIPE, text=True)
        if told.returncode:
            sys.exit(told.returncode)
        print(told.stdout, end="")
        load = os.getloadavg()[0]
        print(f"{what}, {os.cpu_count()} cores, {a.threads} threads, load {load:.1f}, medians of {a.runs}")

    def table(self, title, results, base):
        print(f"\n### {title}\n\n| process | seconds | all runs | CPU s | peak MB | times {base} |")
        print("|---|---:|---|---:|---:|---:|")
        middle = median(results, base)
        for name, runs in results.items():
            walls, cpus, peaks, _ = zip(*runs)
            wall, every = statistics.median(walls), ", ".join(f"{w:.2f}" for w in walls)
            cpu = statistics.median(cpus)
            print(f"| {name} | {wall:.2f} | {every} | {cpu:.2f} | {max(peaks):.0f} | {middle / wall:.2f} |")
        print()

    def rule(self, text, holds, detail=""):
        self.failed |= not holds
        print(f"- {'ok' if holds else '**BROKEN**'}: {text}{': ' + detail if detail else ''}")

    def note(self, text):
        print(f"- {text}")


def dask_seeds(a):
    """Values of dask for ten seeds, computed once for a store and kept next to it."""
    cache = a.data / f"{a.name}.dask_seeds.jsonl"
    if not cache.exists():
        command = [a.python, HERE / "dask_svd.py", a.store, "--seeds", "10"]
        cache.write_text(run(command, a.threads)[-1])
    return [json.loads(line)["singular_values"] for line in cache.read_text().splitlines()]


def teatime(a, out, *options, source=None):
    common = ["-k", K, "--overwrite", "--threads", a.threads, "--device", a.device]
    return [a.teatime, "pca", source or a.store, "--out", a.work / out, *common, *options]


def median(results, name):
    return statistics.median(wall for wall, *_ in results[name])


def faster(report, results, name, times, peer):
    ratio = median(results, peer) / median(results, name)
    report.rule(f"{name}: at least {times} times as fast as {peer}", ratio >= times, f"{ratio:.1f}")


POWER = ["--method", "randomized", "--power-iterations"]


def randomized(a, report, lapack):
    dask = [a.python, HERE / "dask_svd.py", a.store]
    # dask advises one BLAS thread a task, and fewer and larger tasks. sgkit asks for f32.
    tuned = ["env", "OPENBLAS_NUM_THREADS=1", *dask, "--dtype", "f4", "--store-chunks", "10"]
    commands = {"dask q=2": dask, "dask q=2, tuned": tuned}
    if a.separately:
        commands["dask q=2, u, s, v separately"] = [*dask, "--separately"]
    if a.allel:
        commands["scikit-allel q=3, in memory"] = [a.python, HERE / "allel_pca.py", a.store]
    ours = {}
    if a.teatime:
        ours = {"teatime q=2": teatime(a, "q2", *POWER, 2), "teatime q=2, .bed": teatime(a, "q2bed", *POWER, 2, source=a.bed)}
        if a.allel:
            ours["teatime q=3"] = teatime(a, "q3", *POWER, 3)
    results = interleave({**ours, **commands}, a)
    report.table("Randomized", results, "dask q=2")

    best = [min(e) for e in zip(*(errors(s, lapack[0]) for s in dask_seeds(a)), strict=True)]
    report.note(f"dask's best of 10 seeds, relative to LAPACK: {show(best)}")
    angles = {}
    for name in commands:
        found = json.loads(results[name][-1][-1])
        angles[name] = angle(lapack[1], found["components"])
        report.note(f"{name}, relative to LAPACK: {show(errors(found['singular_values'], lapack[0]))}; angle {angles[name]:.1e}")
    if a.teatime:
        worst = [0.0] * K
        for seed in range(a.seeds):
            run(teatime(a, "seed", *POWER, 2, "--seed", seed), a.threads)
            worst = list(map(max, worst, errors(read_teatime(a.work / "seed")[0], lapack[0])))
        holds = all(w <= b for w, b in zip(worst, best))
        report.rule(f"teatime's worst of {a.seeds} seeds is no further from LAPACK than that", holds, show(worst))
        pairs = [("q2", "teatime q=2", "dask q=2", 20)]
        if a.allel:
            pairs.append(("q3", "teatime q=3", "scikit-allel q=3, in memory", 12))
        for folder, name, peer, times in pairs:
            own = angle(lapack[1], read_teatime(a.work / folder)[1])
            report.rule(f"{name}: its space is no further from LAPACK's than {peer}'s", own <= angles[peer], f"{own:.1e}")
            faster(report, results, name, times, peer)
        peak = max(peak for _, _, peak, _ in results["teatime q=2"])
        report.rule("and takes 400 MB at most", peak <= 400, f"{peak:.0f}")


def default(a, report, lapack):
    peer = "plink2 --pca 10 (.bed)"
    commands = {peer: [HERE / "plink2.sh", a.bed.with_suffix(""), a.work / "plink2", K]}
    if a.teatime:
        ours = {"teatime, default": teatime(a, "default"), "teatime, default, .bed": teatime(a, "bed", source=a.bed)}
        commands = {**ours, **commands}
    results = interleave(commands, a)
    report.table("Default against plink2", results, peer)
    vectors = read_eigenvec(a.work / "plink2.eigenvec")
    report.note(f"plink2, |r| with LAPACK at least {min(correlations(vectors, lapack[1])):.7f}")
    if a.teatime:
        faster(report, results, "teatime, default, .bed", 2, peer)
        for folder in ["default", "bed"]:
            values, ours, info = read_teatime(a.work / folder)
            plink2 = list(map(float, (a.work / "plink2.eigenval").read_text().split()))
            written = list(map(float, (a.work / folder / "pca.eigenval").read_text().split()))
            report.note(f"{folder}: teatime's method: {find(info, 'method')}")
            off = errors(written, plink2)
            report.rule("pca.eigenval agrees with plink2's to 5 digits", max(off) <= 1e-5, show(off))
            r = correlations(ours, vectors)
            report.rule("|r| with plink2's eigenvectors >= 0.9999", min(r) >= 0.9999, f"least {min(r):.7f}")
            r = correlations(ours, lapack[1])
            report.rule("|r| with LAPACK's eigenvectors >= 0.9999", min(r) >= 0.9999, f"least {min(r):.7f}")
            report.note(f"values relative to LAPACK: {show(errors(values, lapack[0]))}")


def tolerance(a, report, lapack):
    if not a.teatime:
        return
    peer = "dask q=2"
    options = {"": [], ", randomized": ["--method", "randomized"]}
    commands = {peer: [a.python, HERE / "dask_svd.py", a.store]}
    folders = {}
    for name, option in options.items():
        for suffix, source in [("", a.store), (", .bed", a.bed)]:
            name_of = f"teatime --tolerance 1e-4{name}{suffix}"
            folders[name_of] = f"tolerance{len(folders)}"
            commands[name_of] = teatime(a, folders[name_of], *option, "--tolerance", "1e-4", source=source)
    results = interleave(commands, a)
    report.table("To a tolerance", results, peer)
    for name, folder in folders.items():
        values, ours, info = read_teatime(a.work / folder)
        report.note(f"{name}: {find(info, 'method')}, {find(info, 'passes')} passes")
        off = errors(values, lapack[0])
        report.rule("all values within 1e-5 of LAPACK", max(off) <= 1e-5, show(off))
        report.note(f"|r| with LAPACK's eigenvectors, least {min(correlations(ours, lapack[1])):.7f}")
        faster(report, results, name, 10, peer)


def approx(a, report, _):
    """Random genotypes of many samples: only the first component stands out; of the others values are compared."""
    bed = a.data / "dummy.bed"
    peer = "plink2 --pca 10 approx"
    commands = {peer: [HERE / "plink2.sh", bed.with_suffix(""), a.work / "approx", K, "approx"]}
    name = "teatime, default"
    if a.teatime:
        commands[name] = teatime(a, "dummy", source=bed)
    results = interleave(commands, a)
    report.table("10,000 samples x 50,000 variants", results, peer)
    theirs = list(map(float, (a.work / "approx.eigenval").read_text().split()))
    report.note(f"plink2's eigenvalues: {' '.join(f'{v:.5f}' for v in theirs)}")
    if a.teatime:
        ours = list(map(float, (a.work / "dummy" / "pca.eigenval").read_text().split()))
        # An approximation is at most the true value, except for the digits that plink2 prints.
        lower = all(v >= t * (1 - 1e-5) for v, t in zip(ours, theirs, strict=True))
        report.rule("no eigenvalue is below plink2's", lower, " ".join(f"{v:.5f}" for v in ours))
        _, vectors, info = read_teatime(a.work / "dummy")
        r = correlation(vectors[0], read_eigenvec(a.work / "approx.eigenvec")[0])
        report.rule("|r| of the first eigenvector with plink2's >= 0.9999", r >= 0.9999, f"{r:.7f}")
        report.note(f"passes: {find(info, 'passes')}")
        faster(report, results, name, 5, peer)


MODES = {"randomized": randomized, "default": default, "tolerance": tolerance, "approx": approx}


def arguments(doc, data, runs=3, required=True):
    """A parser with what every script takes that runs teatime and its peers in turn."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path, help=data)
    p.add_argument("--teatime", required=required, type=pathlib.Path, help="the binary")
    p.add_argument("--python", default=sys.executable, help="a Python with requirements.txt installed")
    p.add_argument("--runs", type=int, default=runs)
    p.add_argument("--threads", type=int, default=2)
    return p


def cohort(p, folder):
    """The arguments of a parser with those of a script on the genotypes of make_store.py, and its scratch folder."""
    p.add_argument("--name", default="big")
    p.add_argument("--work", type=pathlib.Path, help=f"scratch folder, default DATA/{folder}")
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    a.store, a.bed = a.data / f"{a.name}.vcz", a.data / f"{a.name}.bed"
    a.work = a.work or a.data / folder
    a.work.mkdir(parents=True, exist_ok=True)
    if a.teatime and not shutil.which(a.teatime):
        sys.exit(f"{a.teatime} is not a program")
    return a


def main():
    p = arguments(__doc__, "where make_store.py and lapack.py wrote", required=False)
    p.add_argument("--modes", default="randomized,default,tolerance")
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--allel", action="store_true", help="scikit-allel too")
    p.add_argument("--separately", action="store_true", help="dask with three computes too")
    a = cohort(p, "compare")
    modes = a.modes.split(",")
    if unknown := set(modes) - set(MODES):
        sys.exit(f"unknown mode {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")

    lapack = read_lapack(a.data / f"{a.name}.lapack")
    report = Report(a, a.store.name)
    for mode in modes:
        MODES[mode](a, report, lapack)
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
