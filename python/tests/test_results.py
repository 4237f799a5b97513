"""Results of genotypes as datasets, tables, plots and HTML, with the names of samples."""

import dataclasses
import sys

import numpy as np
import pytest
from conftest import bed, calls, dosages, raises

from teatime import genotype


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Two cohorts with the same variants: of samples s0 to s19, and s20 to s32."""
    folder = tmp_path_factory.mktemp("beds")
    values, variants = dosages(calls(np.random.default_rng(5), 400, 33)), [("1", at, "C", "A") for at in range(1, 401)]
    return bed(folder / "one.bed", values[:, :20], variants), bed(folder / "other.bed", values[:, 20:], variants, 20)


ONE, OTHER = [f"s{i}" for i in range(20)], [f"s{i}" for i in range(20, 33)]


@pytest.fixture(scope="module")
def results(stores):
    one, other = stores
    return {
        "pca": genotype.pca(one, 3), "grm": genotype.grm(one), "distances": genotype.distances(one, "cityblock"),
        "between": genotype.distances_between(one, other), "projection": genotype.project(other, one, 3),
    }


KINDS = {
    "pca": (ONE, ["PC1", "PC2", "PC3"], "scores", ("samples", "components")),
    "grm": (ONE, ONE, "matrix", ("samples_0", "samples_1")),
    "distances": (ONE, ONE, "matrix", ("samples_0", "samples_1")),
    "between": (ONE, OTHER, "matrix", ("samples", "others")),
    "projection": (OTHER, ["PC1", "PC2", "PC3"], "scores", ("samples", "components")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_names(results, kind):
    pandas, xarray = (pytest.importorskip(name, reason=f"{name} is not installed") for name in ("pandas", "xarray"))
    rows, columns, main, axes = KINDS[kind]
    found, table, made = results[kind], results[kind].to_pandas(), results[kind].to_xarray()
    assert isinstance(table, pandas.DataFrame) and isinstance(made, xarray.Dataset)
    assert list(table.index) == rows and list(table.columns) == columns
    np.testing.assert_array_equal(table, getattr(found, main))
    assert made[main].dims == axes and [list(made[axis].values) for axis in axes] == [rows, columns]
    np.testing.assert_array_equal(made[main], getattr(found, main))
    if kind != "projection":
        assert made.attrs["variants_total"] == 400
    # An attribute of another type is an error in a file.
    assert {type(value) for value in made.attrs.values()} <= {int, float, str}
    for name in made:
        np.testing.assert_array_equal(made[name], getattr(found, name))


def test_lists_choose_names(stores):
    kept = genotype.grm(stores[0], keep=["s3", "s7"])
    assert list(kept.to_pandas().index) == ["s3", "s7"]
    assert genotype.project(stores[1], stores[0], 2, keep=["s25"]).names == ["s25"]


def test_arrays_have_no_names():
    found = genotype.grm(dosages(calls(np.random.default_rng(5), 90, 5)))
    assert found.names is None and list(found.to_pandas().index) == [0, 1, 2, 3, 4]
    assert "samples_0" not in found.to_xarray().coords and "<th>4</th>" in found._repr_html_()
    assert list(dataclasses.replace(found, names=[*"abcde"]).to_pandas().columns) == [*"abcde"]


@pytest.mark.parametrize("kind", KINDS)
def test_html(results, kind):
    rows, columns, main, _ = KINDS[kind]
    text = dataclasses.replace(results[kind], names=["<s>", *rows[1:]])._repr_html_()
    assert "<th>&lt;s&gt;</th>" in text and "<s>" not in text
    assert f"<th>{rows[9]}</th>" in text and rows[10] not in text and "…" in text
    assert f"{getattr(results[kind], main)[9, 1]:.5g}</td>" in text
    assert columns[min(9, len(columns) - 1)] in text


@pytest.mark.parametrize("kind", KINDS)
def test_plots(results, kind):
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("agg")
    from matplotlib import pyplot

    rows, columns, main, _ = KINDS[kind]
    values = getattr(results[kind], main)
    if main == "scores":
        axes = results[kind].plot(2, 3, c="red")
        np.testing.assert_array_equal(axes.collections[-1].get_offsets(), values[:, 1:3])
        assert len(axes.collections) == 1 + (kind == "projection") and axes.get_xlabel().startswith("PC2 (")
        raises(ValueError, "`y` of 4: there are the components 1 to 3", results[kind].plot, 1, 4)
    else:
        own = pyplot.subplots()[1]
        axes = results[kind].plot(ax=own, cmap="gray")
        assert axes is own
        np.testing.assert_array_equal(axes.images[0].get_array(), values)
        assert [label.get_text() for label in axes.get_yticklabels()] == rows
        assert [label.get_text() for label in axes.get_xticklabels()] == columns
    pyplot.close("all")


def test_of_dask(stores):
    pytest.importorskip("dask", reason="dask is not installed")
    import teatime.dask

    found = teatime.dask.grm(stores[0])
    assert found.names == ONE and "not computed yet" in found._repr_html_()
    made = found.to_xarray()
    assert made.matrix.chunks is not None
    np.testing.assert_array_equal(made.matrix, genotype.grm(stores[0]).matrix)
    computed = teatime.dask.pca(stores[0], 2, compute=True)
    assert list(computed.to_pandas().index) == ONE and "PC2" in computed._repr_html_()


def test_a_missing_package_is_named(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    raises(ImportError, "to_pandas needs pandas, which is not installed", results["grm"].to_pandas)
