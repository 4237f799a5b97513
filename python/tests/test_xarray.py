"""The accessor against the functions that it calls, in memory and lazy."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")

import teatime.xarray
from teatime import genotype

CALLS = np.random.default_rng(0).integers(-1, 3, (300, 12, 2)).astype("i1")
DOSAGES = np.where((CALLS < 0).any(axis=2), -1, (CALLS > 0).sum(axis=2)).astype("i1")


@pytest.fixture(params=["memory", "dask"])
def ds(request):
    found = xarray.Dataset(
        {
            "call_genotype": (("variants", "samples", "ploidy"), CALLS),
            "call_dosage": (("samples", "variants"), DOSAGES.T),
            "sample_id": ("samples", [f"s{i}" for i in range(12)]),
        },
        attrs={"source": "a test"},
    )
    if request.param == "dask":
        found = found.chunk(variants=100, samples=5, ploidy=1)
    return found


def lazy(ds, *names):
    """Whether results are what the genotypes are."""
    expected = isinstance(ds.call_genotype.data, da.Array)
    assert all(isinstance(ds[name].data, da.Array) == expected for name in names)


pytestmark = pytest.mark.filterwarnings("ignore:teatime. rechunked")


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
def test_pca(ds, variable):
    found = ds.teatime.pca(n_components=3, variable=variable, signs="v")
    names = ("sample_pca_projection", "sample_pca_explained_variance", "sample_pca_explained_variance_ratio")
    lazy(found, *names)
    expected = genotype.pca(DOSAGES, 3, signs="v")
    assert found.attrs == ds.attrs and "sample_id" in found
    assert found.sample_pca_projection.dims == ("samples", "components")
    for name, values in zip(names, (expected.scores, expected.explained_variance, expected.explained_variance_ratio)):
        assert np.allclose(found[name], values, atol=1e-6), name
    assert set(ds.teatime.pca(n_components=3, merge=False)) == set(names)


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
@pytest.mark.parametrize("method", ["vanraden1", "gcta"])
def test_genomic_relationship(ds, variable, method):
    found = ds.teatime.genomic_relationship(method, variable=variable, missing="mean", merge=False)
    lazy(ds.merge(found), "stat_genomic_relationship")
    assert found.stat_genomic_relationship.dims == ("samples_0", "samples_1")
    assert np.allclose(found.stat_genomic_relationship, genotype.grm(DOSAGES, method, missing="mean").matrix, atol=1e-6)


@pytest.mark.parametrize("skipna", [{}, {"skipna": True}])
def test_genomic_relationship_is_that_of_sgkit(ds, skipna):
    # As sgkit 0.10 computes it of float64, with skipna and the frequencies of the samples.
    called = DOSAGES >= 0
    p = np.where(called, DOSAGES, 0).sum(axis=1, keepdims=True) / (2 * np.maximum(called.sum(axis=1, keepdims=True), 1))
    m = np.where(called, DOSAGES - 2 * p, 0)
    expected = m.T @ m / ((called * 2 * p).T @ (called * (1 - p)))
    for estimator in (None, "VanRaden"):
        found = ds.teatime.genomic_relationship(estimator=estimator, **skipna)
        assert np.allclose(found.stat_genomic_relationship, expected, atol=1e-6)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"estimator": "Endelman-Jannink"}, "`estimator` of Endelman-Jannink"),
        ({"estimator": "Yang"}, 'gcta or vanraden1, not "Yang"'),
        ({"ancestral_frequency": "sample_frequency"}, "`ancestral_frequency`"),
        ({"skipna": False}, "`skipna`"),
        ({"skipna": True, "missing": "mean"}, "`skipna`"),
    ],
)
def test_what_is_sgkits_alone_is_refused(ds, options, words):
    with pytest.raises(ValueError, match=words):
        ds.teatime.genomic_relationship(**options)


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "correlation"])
def test_pairwise_distance(ds, variable, metric):
    found = ds.teatime.pairwise_distance(metric, variable=variable)
    lazy(found, "stat_pairwise_distance")
    assert found.stat_pairwise_distance.dims == ("samples_0", "samples_1")
    x = DOSAGES.T.astype("f8")
    expected = teatime.pairwise_distance(x, metric=metric, missing="ignore", negative=True)
    assert np.allclose(found.stat_pairwise_distance, expected, atol=1e-5)


def test_bad_variables(ds):
    with pytest.raises(KeyError, match="no 'calls', but call_genotype, call_dosage"):
        ds.teatime.pca(variable="calls")
    with pytest.raises(KeyError, match="but nothing"):
        xarray.Dataset().teatime.pca()
    with pytest.raises(ValueError, match=r"'sample_id' has the dimensions \('samples',\)"):
        ds.teatime.pairwise_distance(variable="sample_id")


def test_results_are_written_anew(ds):
    once = ds.teatime.pairwise_distance("cityblock")
    twice = once.teatime.pairwise_distance("euclidean")
    assert not np.allclose(once.stat_pairwise_distance, twice.stat_pairwise_distance)
