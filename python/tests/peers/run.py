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


@dataclass(frozen=True)
class Suite:
    """Tests of a project: what pytest is told, and what is replaced, for the table."""

    tests: list[str]
    replaced: str
    #: The file beside this one that lists the packages to install.
    pins: str = "new.txt"
    #: The repository with the tests, if the package has none: address, tag, folder.
    repository: tuple[str, str, str] | None = None
    #: Reasons for which a test may fail, by a part of its name or of what it says.
    known: dict[str, str] = field(default_factory=dict)


SUITES = {
    "sgkit": Suite(
        pins="old.txt",
        tests=["test_distance.py", "test_pca.py", "test_grm.py", "-k", "not hybrid and not invert"],
        replaced="`teatime.sgkit.install()`; the product of dosages in `genomic_relationship`",
        repository=("https://github.com/sgkit-dev/sgkit", "0.10.0", "sgkit/tests"),
    ),
    "scipy": Suite(
        tests=["--pyargs", "scipy.ndimage.tests.test_filters", "-k", "gauss"],
        replaced="`scipy.ndimage.gaussian_filter`, also where `gaussian_laplace` and `gaussian_gradient_magnitude` call it",
        known={
            "tuple_length_mismatch": "looks for a `RuntimeError`; we raise `ValueError`, and name the argument",
            "filter_float16": "looks for an error of float16, which we take",
        },
    ),
    "scipy-distance": Suite(
        tests=["--pyargs", "scipy.spatial.tests.test_distance", "-k", "dist"],
        replaced="`cdist` and `pdist` of `scipy.spatial.distance`, of the metrics that we have, without weights",
        known={"calling_conventions[jensenshannon]": "hands over negative numbers, which we refuse"},
    ),
    "scikit-learn": Suite(
        tests=["--pyargs", "sklearn.metrics.tests.test_pairwise"],
        replaced="`euclidean_distances`, `nan_euclidean_distances`, `manhattan_distances` and `cosine_distances` of arrays that are not sparse",
    ),
    "scikit-learn-pca": Suite(
        tests=["--pyargs", "sklearn.decomposition.tests.test_pca", "sklearn.decomposition.tests.test_truncated_svd"],
        replaced="`PCA` and `TruncatedSVD` of `teatime.sklearn`",
        known={
            "Sparse data was passed": "hands over a sparse matrix, which we refuse",
            "n_components='mle' is not there": "asks for `n_components=\"mle\"`, which we refuse",
        },
    ),
    "dask": Suite(
        tests=["--pyargs", "dask.array.tests.test_linalg", "-k", "svd_compressed"],
        replaced="`dask.array.linalg.svd_compressed`",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--venv", type=Path, required=True, help="virtual environment of the project, made if there is none")
    parser.add_argument("--tests", type=Path, help="folder of sgkit's tests, in place of a clone: sgkit/tests of its tag 0.10.0")
    parser.add_argument("--package", type=Path, default=HERE.parent.parent, help="folder of the package with its compiled module; this checkout's")
    parser.add_argument("-v", "--verbose", action="store_true", help="what pytest prints, too")
    args = parser.parse_args()
    suite = SUITES[args.suite]
    python = _environment(args.venv, suite)
    with tempfile.TemporaryDirectory() as folder:
        tests, report = args.tests, Path(folder, "report.xml")
        if suite.repository and not tests:
            address, tag, within = suite.repository
            subprocess.run(["git", "clone", "--quiet", "--depth", "1", "--branch", tag, address, f"{folder}/clone"], check=True)
            tests = Path(folder, "clone", within)
        environment = {**os.environ, "PYTHONPATH": f"{HERE}{os.pathsep}{args.package}", "TEATIME_PEER": args.suite}
        options = ["-p", "patches", "-p", "no:cacheprovider", "-q", "-W", "ignore", "--tb=short", f"--junitxml={report}"]
        command = [python, "-m", "pytest", *options, *suite.tests]
        done = subprocess.run(command, cwd=tests or folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if not report.exists():
            print(done.stdout, file=sys.stderr)
            return 2
        project = args.suite.removesuffix("-distance").removesuffix("-pca")
        pin = next(line for line in (HERE / suite.pins).read_text().splitlines() if line.startswith(project))
        print(f"{pin}, with {suite.replaced}\n")
        unknown = _table(suite, ET.parse(report).getroot())
    if unknown or args.verbose:
        print(done.stdout, file=sys.stderr)
    return int(bool(unknown))


def _environment(folder: Path, suite: Suite) -> str:
    """The interpreter of the environment, with what the suite needs."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", HERE / suite.pins]
    subprocess.run([python, *install], check=True)
    return str(python)


def _table(suite: Suite, report: ET.Element) -> list[str]:
    """Prints what passed, failed and was skipped; gives the failures that are not known."""
    passed, skipped, known, unknown = 0, Counter[str](), Counter[str](), []
    for case in report.iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        test = case.get("name", "")
        if bad is not None:
            message = bad.get("message") or "no message"
            why = next((why for part, why in suite.known.items() if part in test or part in message), None)
            if why is None:
                unknown.append((test, message.splitlines()[0]))
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
