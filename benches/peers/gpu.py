"""CuPy and PyTorch on a CUDA device beside teatime-bench: gpu.py PROGRAM [rounds]

PROGRAM is teatime-bench, built with CUDA. In each round it measures what is below, and then each peer does, in processes of their own. A line for each measurement has the medians of the rounds in milliseconds, and how many times as long as teatime a peer took.
Float32 stays float32: no TF32. Nothing here checks what is computed: tests do.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

COLUMNS = 1024
# The measurements of teatime-bench that have a peer here, in addition to the flight's dense ones.
OWN = ["matmul", "truncated_svd", "copy on the device", "kernel"]


def cases():
    """By the name that teatime-bench gives: the size it says, operations or bytes where it says a rate, what is done, and on which shapes."""
    yield from ((f"Gram product {n}", f"{n}x{n}", n**3, "gram", (n, n)) for n in (2048, 4096, 8192, 16384))
    yield from ((f"matmul {n}", f"{n}x{n}x{n}", 2 * n**3, "matmul", (n, n, n)) for n in (2048, 4096, 8192))
    yield "matmul thin 165000", "165000x20x1000", 2 * 165000 * 20 * 1000, "matmul", (165000, 1000, 20)
    yield "matmul thin 165000 transposed", "1000x20x165000", 2 * 165000 * 20 * 1000, "matmul_tn", (165000, 1000, 20)
    for form in ("", "expanded "):
        yield f"{form}distances of 20000, 2000 features", "20000x2000", 0, f"{form}distances".replace(" ", "_"), (20000, 2000)
    yield from ((f"nearest of {n}, {k} features", f"{n}x{k}", 0, "nearest", (n, k)) for n, k in ((20000, 2000), (100000, 256)))
    yield "chain: standardise, svd, scores, nearest", "300000x1000", 0, "chain", (300000, 1000)
    yield "truncated_svd, 10 components", "16384x1000", 0, "svd", (16384, 1000)
    yield from ((f"Gaussian of {s}, 50 planes", "50x1104x1104", 0, "gaussian", (float(s),)) for s in ("1", "3"))
    gib = 1 << 30
    rows = gib // 4 // COLUMNS
    yield "copy on the device", "1 GiB", 2 * gib, "copy", (rows,)
    yield "kernel transpose", "1 GiB", 2 * gib, "transpose", (rows,)
    yield "kernel elementwise, rows", "1 GiB", 2 * gib, "times_row", (rows,)
    yield "kernel copy_rows", "1 GiB", 2 * gib, "gather", (rows,)
    yield "kernel reduce_axis, along rows", "1 GiB", gib, "sum_rows", (rows,)
    yield "kernel reduce_axis, along columns", "1 GiB", gib, "sum_columns", (rows,)
    yield "kernel pack 1", "1 GiB", gib * 9 / 8, "pack", (gib,)
    yield "kernel unpack 1", "1 GiB", gib * 9 / 8, "unpack", (gib // 8,)


class CuPy:
    def __init__(self):
        import cupy
        import cupyx.scipy.ndimage

        self.cp, self.ndimage = cupy, cupyx.scipy.ndimage
        self.random = cupy.random.default_rng(1)

    def matrix(self, *shape):
        return self.random.random(shape, dtype=self.cp.float32) - self.cp.float32(0.5)

    def seconds(self, work):
        from cupyx.profiler import benchmark

        work()
        return benchmark(work, n_repeat=25, n_warmup=1, max_duration=1.0).gpu_times[0].tolist()

    def gram(self, *shape):
        x = self.matrix(*shape)
        return lambda: x @ x.T

    def matmul(self, m, k, n):
        a, b = self.matrix(m, k), self.matrix(k, n)
        return lambda: a @ b

    def matmul_tn(self, k, m, n):
        a, b = self.matrix(k, m), self.matrix(k, n)
        return lambda: a.T @ b

    def gaussian(self, sigma):
        x = self.matrix(50, 1104, 1104)
        return lambda: self.ndimage.gaussian_filter(x, sigma)

    def copy(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: x.copy()

    def transpose(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: self.cp.ascontiguousarray(x.T)

    def times_row(self, rows):
        x, row = self.matrix(rows, COLUMNS), self.matrix(1, COLUMNS)
        return lambda: x * row

    def gather(self, rows):
        x, places = self.matrix(rows, COLUMNS), self.cp.arange(rows)[::-1].copy()
        return lambda: x[places]

    def sum_rows(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: x.sum(1)

    def sum_columns(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: x.sum(0)

    def pack(self, count):
        x = self.random.integers(0, 2, count, dtype=self.cp.uint8)
        return lambda: self.cp.packbits(x)

    def unpack(self, count):
        x = self.random.integers(0, 256, count, dtype=self.cp.uint8)
        return lambda: self.cp.unpackbits(x)


class PyTorch:
    def __init__(self):
        import torch

        self.torch = torch
        torch.manual_seed(1)
        torch.backends.cuda.matmul.allow_tf32 = False

    def matrix(self, *shape):
        return self.torch.rand(*shape, device="cuda") - 0.5

    def seconds(self, work):
        from triton.testing import do_bench

        return [t / 1e3 for t in do_bench(work, warmup=50, rep=500, return_mode="all")]

    gram = CuPy.gram
    matmul = CuPy.matmul
    matmul_tn = CuPy.matmul_tn

    def distances(self, observations, features):
        """Without the expansion in products, as teatime's."""
        x = self.matrix(observations, features)
        return lambda: self.torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")

    def expanded_distances(self, observations, features):
        x = self.matrix(observations, features)
        return lambda: self.torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist")

    def nearest_of(self, x):
        """By the expansion in products, in blocks."""
        squares = (x * x).sum(1)
        for block in x.split(10000):
            (squares - 2 * (block @ x.T)).topk(11, largest=False)

    def nearest(self, observations, features):
        x = self.matrix(observations, features)
        return lambda: self.nearest_of(x)

    def chain(self, observations, features):
        x = self.torch.randn(observations, features, device="cuda")

        def work():
            z = (x - x.mean(0)) / x.std(0, correction=0)
            _, _, v = self.torch.svd_lowrank(z, q=30, niter=2)
            self.nearest_of(z @ v[:, :20])

        return work

    def svd(self, rows, columns):
        x = self.matrix(rows, 12) @ self.matrix(12, columns) + 0.01 * self.matrix(rows, columns)
        return lambda: self.torch.svd_lowrank(x, q=20, niter=2)

    def copy(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: x.clone()

    def transpose(self, rows):
        x = self.matrix(rows, COLUMNS)
        return lambda: x.T.contiguous()

    def gather(self, rows):
        x, places = self.matrix(rows, COLUMNS), self.torch.arange(rows, device="cuda").flip(0)
        return lambda: x[places]

    times_row = CuPy.times_row
    sum_rows = CuPy.sum_rows
    sum_columns = CuPy.sum_columns


PEERS = {"CuPy": CuPy, "PyTorch": PyTorch}


def measure(name):
    """In a process of its own: a line of JSON for each case that the peer has."""
    peer = PEERS[name]()
    for case, _, _, what, shape in cases():
        if hasattr(peer, what):
            print(json.dumps([case, statistics.median(peer.seconds(getattr(peer, what)(*shape)))]), flush=True)


def ours(program):
    """What one run of teatime-bench measured, by name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for piece in [["--only", only] for only in OWN] + [["--flight", "dense", "--seconds", "200"]]:
            file = pathlib.Path(folder, "report.json")
            subprocess.run([program, "--device", "cuda", "--json", file, *piece], stdout=subprocess.DEVNULL)
            for device in json.loads(file.read_text())["devices"]:
                found |= {entry["id"]: entry for entry in device["entries"]}
    return found


def peer(name):
    ran = subprocess.run([sys.executable, __file__, "--peer", name], stdout=subprocess.PIPE, text=True)
    if ran.returncode:
        print(f"{name} ended with {ran.returncode}")
    return dict(json.loads(line) for line in ran.stdout.splitlines())


def main(program, rounds):
    turns = [(ours(program), *map(peer, PEERS)) for _ in range(rounds)]
    print(f"{'':40} {'size':>16} {'teatime':>9}" + "".join(f" {name:>9} {'ratio':>6}" for name in PEERS))
    for case, size, work, *_ in cases():
        entries = [turn[0][case] for turn in turns if case in turn[0]]
        if not entries or any(entry["size"] != size for entry in entries):
            print(f"{case:40} {size:>16} not measured, but {[entry['size'] for entry in entries]}")
            continue
        own = statistics.median(e["median"] / 1e3 if e["unit"] == "ms" else work / e["median"] / 1e9 for e in entries)
        line = f"{case:40} {size:>16} {own * 1e3:9.3f}"
        for i, _ in enumerate(PEERS, 1):
            found = [turn[i][case] for turn in turns if case in turn[i]]
            line += f" {statistics.median(found) * 1e3:9.3f} {statistics.median(found) / own:6.2f}" if found else " " * 17
        print(line)


if sys.argv[1] == "--peer":
    measure(sys.argv[2])
else:
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
