"""The notebooks are stored without outputs, run from their first cell to the last, say nothing on stderr, and show a picture."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat, which comes with nbclient, is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
# Matplotlib's fonts are found here, since a notebook that has to find them writes to stderr.
for needed in ("ipykernel", "matplotlib.font_manager", "dask.array", "scipy", "zarr"):
    pytest.importorskip(needed, reason=f"{needed} is not installed")


@pytest.mark.parametrize("name", ["genotype_svd", "malariagen_distances", "gaussian"])
def test_notebooks_run(name, tmp_path, monkeypatch):
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    monkeypatch.delenv("MPLBACKEND", raising=False)
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    # Without folders of other kernels, the kernel python3 is that of this interpreter.
    kernel = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
    notebook = nbformat.read(Path(__file__).parents[1] / f"notebooks/{name}.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert all(cell.cell_type != "code" or (cell.outputs, cell.execution_count) == ([], None) for cell in notebook.cells)
    working = tmp_path / "working"
    working.mkdir()
    nbclient.NotebookClient(notebook, km=kernel, timeout=120, resources={"metadata": {"path": working}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert any("image/png" in output.get("data", {}) for output in outputs)
