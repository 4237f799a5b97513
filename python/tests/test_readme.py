"""The Python programs of the READMEs and the documents run, on small data in place of the reader's."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from conftest import calls

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Modules that blocks import, but that may not be installed.
OPTIONAL = ("dask", "distributed", "zarr", "xarray", "pandas", "matplotlib", "scipy", "sklearn", "sgkit")
PROGRAMS = [
    pytest.param(block, id=f"{name}-{number}")
    for name in ("README.md", "docs/python.md", "docs/cluster.md", "docs/python-peers.md", "python/README.md")
    for number, block in enumerate(BLOCK.findall((ROOT / name).read_text()))
]


@pytest.fixture(scope="module")
def cohort(tmp_path_factory):
    """A folder with a store of 200 variants of 30 samples, `cohort.vcz` and in place of the demo's, and its calls."""
    zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")
    folder = tmp_path_factory.mktemp("readme")
    found = calls(np.random.default_rng(0), 200, 30)
    group = zarr.open_group(str(folder / "cohort.vcz"), mode="w", zarr_format=2)
    group.create_array("call_genotype", data=found, chunks=(100, 30, 2))
    group.create_array("sample_id", data=np.array([f"NA{12850 + i}" for i in range(30)]), chunks=(30,))
    (folder / "teatime-demo").mkdir()
    (folder / "teatime-demo/genotypes.vcz").symlink_to(folder / "cohort.vcz", target_is_directory=True)
    return folder, found


@pytest.fixture
def client():
    """Of threads of this process, which start at once."""
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
        yield client


def test_all_documents_have_programs():
    assert len(PROGRAMS) >= 8


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(program, cohort, request, monkeypatch):
    for name in OPTIONAL:
        if re.search(rf"\b{name}\b", program) and importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    folder, calls = cohort
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")
    given = {"x": np.random.default_rng(1).standard_normal((300, 40)).astype("f4")}
    if re.search(r"\bds\b", program):
        given["ds"] = pytest.importorskip("xarray").Dataset({"call_genotype": (("variants", "samples", "ploidy"), calls)})
    if "Client(" in program:
        client = request.getfixturevalue("client")
        monkeypatch.setattr("dask.distributed.Client", lambda **_: client)
    exec(compile(program, "<document>", "exec"), given)
    if "sgkit" in program:
        given["teatime"].sgkit.uninstall()
