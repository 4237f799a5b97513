"""Seconds of scipy's, scikit-image's and OpenCV's Gaussian filters and of the `gaussian` benchmark, in turns: gaussian.py PROGRAM [rounds] [runs].

PROGRAM is the benchmark as `cargo bench -p teatime-bench --bench gaussian --no-run` names it. In each round each program makes some runs of each case, in a
process of its own (PROGRAM criterion's ten samples, whose files are read; a sample of short runs is their mean, and opencv's runs are single ones); printed are the shortest and the
median of all, in seconds, and the most memory that a process took, in MiB. OpenCV is given the same radius, and all filters an output of their own where they take one.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

CASES = [([50, 1104, 1104], "F32", 3.0)] + [([8192, 8192], dtype, sigma) for sigma in (1.0, 3.0, 10.0) for dtype in ("F32", "U8")]


def filters(name, x, sigma):
    import numpy as np

    out = np.empty_like(x)
    if name == "scipy":
        from scipy.ndimage import gaussian_filter

        return lambda: gaussian_filter(x, sigma, output=out)
    if name == "skimage":
        from skimage.filters import gaussian

        return lambda: gaussian(x, sigma, preserve_range=True, out=out if x.dtype == np.float32 else None)
    import cv2

    size = 2 * int(4 * sigma + 0.5) + 1
    return lambda: cv2.GaussianBlur(x, (size, size), sigma, dst=out, borderType=cv2.BORDER_REFLECT)


def one(name, runs):
    """In a process of its own: a line for each case."""
    import numpy as np

    for shape, dtype, sigma in CASES:
        if name == "opencv" and len(shape) == 3 or name == "skimage" and len(shape) == 2:
            continue
        x = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
        run = filters(name, x.astype(np.float32) if dtype == "F32" else x, sigma)
        seconds = []
        for _ in range(runs if name == "opencv" else 1):
            started = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - started)
        print(json.dumps({"shape": shape, "type": dtype, "sigma": sigma, "s": seconds}), flush=True)


def run(command, home):
    """(standard output, most MiB) of a process; criterion's files go to `home`."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "CRITERION_HOME": home})
    text = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return text, usage.ru_maxrss >> 10


def samples(home):
    """Of each case that criterion timed, as `one` prints them."""
    for path in pathlib.Path(home).glob("**/new/sample.json"):
        about, sample = (json.loads(path.with_name(name).read_text()) for name in ("benchmark.json", path.name))
        _, dtype, _, sigma = about["group_id"].split()
        seconds = [ns / n / 1e9 for ns, n in zip(sample["times"], sample["iters"], strict=True)]
        yield {"shape": map(int, about["value_str"].split("x")), "type": dtype, "sigma": float(sigma), "s": seconds}


def main():
    program, rounds, runs = sys.argv[1], int((sys.argv[2:] or [3])[0]), (sys.argv[3:] or ["5"])[0]
    commands = {name: [sys.executable, __file__, "--one", name, runs] for name in ("opencv", "scipy", "skimage")}
    commands["teatime"] = [program, "--bench", "--noplot", "(8192x8192|1104x1104)$"]
    results, memory = {}, {}
    for _ in range(rounds):
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as home:
                text, peak = run(command, home)
                lines = list(samples(home)) if name == "teatime" else map(json.loads, text.splitlines())
            memory[name] = max(memory.get(name, 0), peak)
            for line in lines:
                case = (tuple(line["shape"]), line["type"], line["sigma"])
                results.setdefault(case, {}).setdefault(name, []).extend(line["s"])
    for case, of in results.items():
        print(*case, *(f"{name} {min(s):.4f} {sorted(s)[len(s) // 2]:.4f};" for name, s in of.items()))
    print("MiB", memory)


if sys.argv[1] == "--one":
    one(sys.argv[2], int(sys.argv[3]))
else:
    main()
