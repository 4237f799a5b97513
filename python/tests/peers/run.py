"""Runs the tests of other projects with teatime's functions in place of theirs, and prints a table of what passes.

The project's package is installed at a fixed version into a virtual environment, which is made if there is none. Its tests are those of
the package; sgkit's package has none, so they are cloned from its repository, or taken from --tests. Nothing of them is copied here.

    python python/tests/peers/run.py scipy --venv /tmp/peer-scipy
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent


@dataclass(frozen=True)
class Suite:
    """Tests of a project."""

    #: A file beside this one: what is installed.
    pins: str
    #: What pytest is told.
    tests: list[str]
    #: What is replaced, for the table.
    replaced: str
    #: Files of a repository, where the package has no tests: address, tag, folder.
    repository: tuple[str, str, str] | None = None
    #: Why a test fails that we let fail, by a part of its name.
    known: dict[str, str] = field(default_factory=dict)


SGKIT = Suite(
    pins="old.txt",
    tests=["test_distance.py", "test_pca.py", "test_grm.py", "-k", "not hybrid and not invert"],
    replaced="`teatime.sgkit.install()`; the product of dosages in `genomic_relationship`",
    repository=("https://github.com/sgkit-dev/sgkit", "0.10.0", "sgkit/tests"),
)
SCIPY = Suite(
    pins="new.txt",
    tests=["--pyargs", "scipy.ndimage.tests.test_filters", "-k", "gauss"],
    replaced="`scipy.ndimage.gaussian_filter`, also where `gaussian_laplace` and `gaussian_gradient_magnitude` call it",
    known={
        "tuple_length_mismatch": "looks for a `RuntimeError`; we raise `ValueError`, and name the argument",
        "filter_float16": "looks for an error of float16, which we take",
    },
)
SCIPY_DISTANCE = Suite(
    pins="new.txt",
    tests=["--pyargs", "scipy.spatial.tests.test_distance", "-k", "dist"],
    replaced="`cdist` and `pdist` of `scipy.spatial.distance`, of the metrics that we have, without weights",
    known={"calling_conventions[jensenshannon]": "hands over negative numbers, which we refuse"},
)
SCIKIT_LEARN = Suite(
    pins="new.txt",
    tests=["--pyargs", "sklearn.metrics.tests.test_pairwise"],
    replaced="`euclidean_distances`, `nan_euclidean_distances`, `manhattan_distances` and `cosine_distances` of arrays that are not sparse",
)
DASK = Suite(
    pins="new.txt",
    tests=["--pyargs", "dask.array.tests.test_linalg", "-k", "svd_compressed"],
    replaced="`dask.array.linalg.svd_compressed`",
)
SUITES = {"sgkit": SGKIT, "scipy": SCIPY, "scipy-distance": SCIPY_DISTANCE, "scikit-learn": SCIKIT_LEARN, "dask": DASK}


def main() -> int:
    args = _arguments()
    suite = SUITES[args.suite]
    python = _environment(args.venv, suite, args.wheel)
    with tempfile.TemporaryDirectory() as folder:
        tests = args.tests or _cloned(suite, Path(folder))
        report = Path(folder, "report.xml")
        paths = [str(HERE)] + ([] if args.wheel else [str(args.package)])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TEATIME_PEER": args.suite}
        options = ["-p", "patches", "-p", "no:cacheprovider", "-q", "-W", "ignore", "--tb=short", f"--junitxml={report}"]
        command = [python, "-m", "pytest", *options, *suite.tests]
        done = subprocess.run(command, cwd=tests or folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if not report.exists():
            print(done.stdout, file=sys.stderr)
            return 2
        print(f"{_pin(args.suite, suite)}, with {suite.replaced}\n")
        unknown = _table(suite, ET.parse(report).getroot())
    if unknown or args.verbose:
        print(done.stdout, file=sys.stderr)
    return int(bool(unknown))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--venv", type=Path, required=True, help="virtual environment of the project, made if there is none")
    parser.add_argument("--tests", type=Path, help="folder of sgkit's tests, in place of a clone: sgkit/tests of its tag 0.10.0")
    parser.add_argument("--wheel", type=Path, help="wheel of teatime; without, the package of --package")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="folder of the package with its compiled module; this checkout's")
    parser.add_argument("-v", "--verbose", action="store_true", help="what pytest prints, too")
    return parser.parse_args()


def _environment(folder: Path, suite: Suite, wheel: Path | None) -> str:
    """The interpreter of the environment, with what the suite needs."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    wanted = ["--requirement", str(HERE / suite.pins), *([str(wheel)] if wheel else [])]
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], check=True)
    return str(python)


def _pin(name: str, suite: Suite) -> str:
    """The line that says which version of the project is installed."""
    return next(line for line in (HERE / suite.pins).read_text().splitlines() if line.startswith(name.removesuffix("-distance")))


def _cloned(suite: Suite, folder: Path) -> Path | None:
    if suite.repository is None:
        return None
    address, tag, within = suite.repository
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--branch", tag, address, folder / "clone"], check=True)
    return folder / "clone" / within


def _table(suite: Suite, report: ET.Element) -> list[str]:
    """Prints what passed, failed and was skipped; gives the failures that are not known."""
    passed, skipped, known, unknown = 0, Counter[str](), Counter[str](), []
    for case in report.iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        test = case.get("name", "")
        if bad is not None:
            why = next((why for part, why in suite.known.items() if part in test), None)
            if why is None:
                unknown.append((test, (bad.get("message") or "no message").splitlines()[0]))
            else:
                known[why] += 1
        elif (skip := case.find("skipped")) is not None:
            skipped[skip.get("message", "")] += 1
        else:
            passed += 1
    print("| result | tests | why |\n|---|---|---|")
    print(f"| passed | {passed} | |")
    for result, counted in (("failed", known), ("skipped", skipped)):
        for why, count in counted.items():
            print(f"| {result} | {count} | {why} |")
    for test, message in unknown:
        print(f"| **failed** | `{test}` | {message} |")
    return [test for test, _ in unknown]


if __name__ == "__main__":
    sys.exit(main())
