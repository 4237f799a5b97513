"""The notebooks run from their first cell to the last, say nothing on stderr, and show a picture."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, which comes with nbclient, is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
# Matplotlib's fonts are found here: a notebook that has to find them says so on stderr.
for needed in ("ipykernel", "matplotlib.font_manager", "dask.array", "scipy", "zarr"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} >= {"genotype_svd", "malariagen_distances", "gaussian"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs, cell.execution_count) == ([], None), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, tmp_path, monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    monkeypatch.setenv("TEATIME_DEVICE", "cpu")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    # Without folders of other kernels, python3 is that of this interpreter.
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    notebook = nbformat.read(path, as_version=4)
    working = tmp_path / "working"
    working.mkdir()
    nbclient.NotebookClient(notebook, km=kernel, timeout=120, resources={"metadata": {"path": working}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
