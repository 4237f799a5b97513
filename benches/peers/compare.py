#!/usr/bin/env python3
"""Runs `teatime` and its peers in turn on the store of make_store.py; prints their times, memory and accuracy.

    python compare.py --data DIR --teatime PATH [--modes randomized,default,tolerance] [--python PEERS_PYTHON]

Whole processes, interleaved so that a slow minute of the machine hits all of them; medians of --runs. Without
--teatime only the peers run. Standard library only. Exits with 1 if one of the accuracy rules is broken.
"""

import argparse
import ast
import csv
import json
import math
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import time

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


def show(numbers):
    return " ".join(f"{n:.1e}" for n in numbers)


class Report:
    def __init__(self):
        self.failed = False

    def table(self, title, results, base):
        print(f"\n### {title}\n\n| process | seconds | all runs | CPU s | peak MB | times {base} |")
        print("|---|---:|---|---:|---:|---:|")
        middle = statistics.median(wall for wall, *_ in results[base])
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


def teatime(a, out, *options):
    common = ["-k", K, "--overwrite", "--threads", a.threads, "--device", a.device]
    return [a.teatime, "pca", a.store, "--out", a.work / out, *common, *options]


def randomized(a, report, lapack):
    dask = [a.python, HERE / "dask_svd.py", a.store]
    # dask's own advice: one BLAS thread a task, fewer and larger tasks. f32 as sgkit asks for.
    tuned = ["env", "OPENBLAS_NUM_THREADS=1", *dask, "--dtype", "f4", "--store-chunks", "10"]
    commands = {"dask q=2": dask, "dask q=2, tuned": tuned}
    if a.separately:
        commands["dask q=2, u, s, v separately"] = [*dask, "--separately"]
    if a.allel:
        commands["scikit-allel q=3, in memory"] = [a.python, HERE / "allel_pca.py", a.store]
    power = ["--method", "randomized", "--power-iterations", "2"]
    if a.teatime:
        commands = {"teatime q=2": teatime(a, "randomized", *power, "--seed", 0), **commands}
    results = interleave(commands, a)
    report.table("Randomized, 2 power iterations", results, "dask q=2")

    best = [min(e) for e in zip(*(errors(s, lapack[0]) for s in dask_seeds(a)), strict=True)]
    report.note(f"dask's best of 10 seeds, relative to LAPACK: {show(best)}")
    for name, runs in results.items():
        if not name.startswith("teatime"):
            values = json.loads(runs[-1][-1])["singular_values"]
            report.note(f"{name}, relative to LAPACK: {show(errors(values, lapack[0]))}")
    if a.teatime:
        worst = [0.0] * K
        for seed in range(a.seeds):
            run(teatime(a, "seed", *power, "--seed", seed), a.threads)
            worst = list(map(max, worst, errors(read_teatime(a.work / "seed")[0], lapack[0])))
        holds = all(w <= b for w, b in zip(worst, best))
        report.rule(f"teatime's worst of {a.seeds} seeds is no further from LAPACK than that", holds, show(worst))


def default(a, report, lapack):
    commands = {"plink2 --pca 10 (.bed)": [HERE / "plink2.sh", a.data / a.name, a.work / "plink2", K]}
    if a.teatime:
        commands = {"teatime, default": teatime(a, "default"), **commands}
    results = interleave(commands, a)
    report.table("Default against plink2", results, "plink2 --pca 10 (.bed)")
    vectors = read_eigenvec(a.work / "plink2.eigenvec")
    report.note(f"plink2, |r| with LAPACK at least {min(correlations(vectors, lapack[1])):.7f}")
    if a.teatime:
        values, ours, info = read_teatime(a.work / "default")
        plink2 = list(map(float, (a.work / "plink2.eigenval").read_text().split()))
        written = list(map(float, (a.work / "default" / "pca.eigenval").read_text().split()))
        report.note(f"teatime's method: {find(info, 'method')}")
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
    name = "teatime --tolerance 1e-4"
    results = interleave({name: teatime(a, "tolerance", "--method", "randomized", "--tolerance", "1e-4")}, a)
    report.table("To a tolerance", results, name)
    values, ours, info = read_teatime(a.work / "tolerance")
    report.note(f"passes over the store: {find(info, 'passes')}")
    off = errors(values, lapack[0])
    report.rule("all values within 1e-5 of LAPACK", max(off) <= 1e-5, show(off))
    report.note(f"|r| with LAPACK's eigenvectors, least {min(correlations(ours, lapack[1])):.7f}")


MODES = {"randomized": randomized, "default": default, "tolerance": tolerance}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, type=pathlib.Path, help="where make_store.py and lapack.py wrote")
    p.add_argument("--name", default="big")
    p.add_argument("--teatime", type=pathlib.Path, help="the binary; without it only the peers run")
    p.add_argument("--python", default=sys.executable, help="a Python with requirements.txt installed")
    p.add_argument("--work", type=pathlib.Path, help="scratch folder, default DATA/compare")
    p.add_argument("--modes", default=",".join(MODES))
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--seeds", type=int, default=10)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--device", default="cpu")
    p.add_argument("--allel", action="store_true", help="scikit-allel too")
    p.add_argument("--separately", action="store_true", help="dask with three computes too")
    a = p.parse_args()
    a.store = a.data / f"{a.name}.vcz"
    a.work = a.work or a.data / "compare"
    a.work.mkdir(parents=True, exist_ok=True)
    if a.teatime and not shutil.which(a.teatime):
        sys.exit(f"{a.teatime} is not a program")
    modes = a.modes.split(",")
    if unknown := set(modes) - set(MODES):
        sys.exit(f"unknown mode {', '.join(sorted(unknown))}; there are {', '.join(MODES)}")

    lapack = read_lapack(a.data / f"{a.name}.lapack")
    report = Report()
    load = os.getloadavg()[0]
    print(f"{a.store.name}, {os.cpu_count()} cores, {a.threads} threads, load {load:.1f}, medians of {a.runs}")
    for mode in modes:
        MODES[mode](a, report, lapack)
    sys.exit(report.failed)


if __name__ == "__main__":
    main()
