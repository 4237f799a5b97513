#!/usr/bin/env python3
"""Peers at full speed: OpenBLAS with the kernels of this very processor.

    python blas.py

prints the processor, and of numpy's, scipy's and the system's OpenBLAS (plink2's) the version and the kernels that threadpoolctl
names. Exits with 1 where these are not for the widest vectors of the processor: a ratio would then flatter us.
"""

import contextlib
import ctypes
import os
import pathlib
import sys

# These variables hold OpenBLAS to the kernels and the cache of an older processor. OpenBLAS reads them when it is loaded.
for held in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(held, None)

# The kernels of each width of vectors, widest first, with the processor's flag.
KERNELS = {
    "avx512f": {"SkylakeX", "Cooperlake", "SapphireRapids"},
    "avx2": {"Haswell", "Zen", "Excavator"},
}


def processor():
    """The name and the flags of the first core."""
    lines = (line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    found = {}
    for key, value in lines:
        found.setdefault(key.strip(), value.strip())
    return found.get("model name", "unknown"), set(found.get("flags", "").split())


def loaded():
    """A line for each OpenBLAS that this process or plink2 loads. Exits where one does not run at full speed."""
    # plink2 is linked to this library, if it is installed.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libblas.so.3")
    import threadpoolctl

    name, flags = processor()
    own = next((kernels for flag, kernels in KERNELS.items() if flag in flags), None)
    lines = [f"processor: {name}"]
    for blas in threadpoolctl.threadpool_info():
        if blas["user_api"] != "blas":
            continue
        kernel = blas.get("architecture")
        text = f"{pathlib.Path(blas['filepath']).name}: {blas['internal_api']} {blas['version']}, kernels {kernel}"
        if own is not None and kernel not in own:
            sys.exit(f"{text}, and not one of {sorted(own)}, as this processor ({name}) can run: no ratio is fair")
        lines.append(text)
    return lines


if __name__ == "__main__":
    import numpy  # noqa: F401, for its OpenBLAS
    import scipy.linalg  # noqa: F401, for its OpenBLAS

    print("\n".join(loaded()))
