"""The accessor against the functions that it calls, in memory and lazy."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")

from conftest import write

import teatime.dask
import teatime.xarray
from teatime import genotype

CALLS = np.random.default_rng(0).integers(-1, 3, (300, 12, 2)).astype("i1")
DOSAGES = np.where((CALLS < 0).any(axis=2), -1, (CALLS > 0).sum(axis=2)).astype("i1")


@pytest.fixture(params=["memory", "dask"])
def ds(request):
    made = xarray.Dataset(
        {
            "call_genotype": (("variants", "samples", "ploidy"), CALLS),
            "call_dosage": (("samples", "variants"), DOSAGES.T),
            "sample_id": ("samples", [f"s{i}" for i in range(12)]),
        },
        attrs={"source": "a test"},
    )
    return made.chunk(variants=100, samples=5, ploidy=1) if request.param == "dask" else made


def lazy(ds, *names):
    """Whether results are what the genotypes are."""
    expected = isinstance(ds.call_genotype.data, da.Array)
    assert all(isinstance(ds[name].data, da.Array) == expected for name in names)


pytestmark = pytest.mark.filterwarnings("ignore:teatime. rechunked")


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
def test_pca(ds, variable):
    result = ds.teatime.pca(n_components=3, variable=variable, signs="v")
    names = ("sample_pca_projection", "sample_pca_explained_variance", "sample_pca_explained_variance_ratio")
    lazy(result, *names)
    expected = genotype.pca(DOSAGES, 3, signs="v")
    assert result.attrs == ds.attrs and "sample_id" in result
    assert result.sample_pca_projection.dims == ("samples", "components")
    for name, values in zip(names, (expected.scores, expected.explained_variance, expected.explained_variance_ratio)):
        assert np.allclose(result[name], values, atol=1e-6), name
    assert set(ds.teatime.pca(n_components=3, merge=False)) == set(names)


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
@pytest.mark.parametrize(
    "given, method, missing",
    [
        ({}, "vanraden1", "pairwise"), ({"estimator": "VanRaden", "skipna": True}, "vanraden1", "pairwise"),
        ({"estimator": "gcta", "missing": "mean"}, "gcta", "mean"),
    ],
)
def test_genomic_relationship(ds, variable, given, method, missing):
    result = ds.teatime.genomic_relationship(**given, variable=variable, merge=False)
    lazy(ds.merge(result), "stat_genomic_relationship")
    assert result.stat_genomic_relationship.dims == ("samples_0", "samples_1")
    assert np.allclose(result.stat_genomic_relationship, genotype.grm(DOSAGES, method, missing=missing).matrix, atol=1e-6)


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
def test_pairwise_distance(ds, variable):
    result = ds.teatime.pairwise_distance("correlation", variable=variable)
    lazy(result, "stat_pairwise_distance")
    assert result.stat_pairwise_distance.dims == ("samples_0", "samples_1")
    expected = teatime.pairwise_distance(DOSAGES.T.astype("f8"), metric="correlation", missing="rescale", negative=True)
    assert np.allclose(result.stat_pairwise_distance, expected, atol=1e-5)
    # Results are written anew.
    again = result.teatime.pairwise_distance(variable=variable)
    assert not np.allclose(result.stat_pairwise_distance, again.stat_pairwise_distance)


#: Calls of one, two and three alleles, with each that there is: missing ones (-1), and ones that are absent (-2).
KINDS = {
    "haploid": np.random.default_rng(1).integers(-2, 3, (300, 12, 1)),
    "diploid": np.random.default_rng(2).integers(-2, 3, (300, 12, 2)),
    "triploid": np.random.default_rng(3).integers(-1, 3, (300, 12, 3)),
    "dosages": np.random.default_rng(4).integers(-3, 3, (300, 12)),
    "fractions": np.where(np.random.default_rng(5).random((300, 12)) < 0.05, np.nan, np.random.default_rng(6).uniform(0, 2, (300, 12))),
}


@pytest.mark.filterwarnings("ignore:.*more than two alleles")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["euclidean", "hamming", "canberra"])
def test_distances_of_genotypes_mean_the_same_everywhere(tmp_path, kind, metric):
    """Negative integers and NaN are missing for each: arrays, stores, and datasets in memory and not."""
    values = KINDS[kind].astype("f4" if kind == "fractions" else "i1")
    want = genotype.distances(values, metric, merge_alleles=True).matrix
    near = {"rtol": 1e-6, "atol": 1e-6}
    dims = ("variants", "samples", "ploidy")[: values.ndim]
    ds = xarray.Dataset({"call_genotype": (dims, values)})
    some = genotype.distances(values, metric, missing="propagate", merge_alleles=True).matrix
    # Of dosages in floating point, a negative number is an error.
    floats = ds.astype("f8") if values.ndim == 3 else ds.where(ds.call_genotype >= 0)
    for of in (ds, ds.chunk(variants=100, samples=5), floats.chunk(variants=70)):
        result = of.teatime.pairwise_distance(metric).stat_pairwise_distance
        assert result.dtype == np.float64
        np.testing.assert_allclose(result, want, **near)
        np.testing.assert_allclose(of.teatime.pairwise_distance(metric, missing="propagate").stat_pairwise_distance, some, **near)
    if kind == "dosages":
        blocks = da.from_array(values.T, chunks=(5, 100))
        np.testing.assert_allclose(teatime.dask.pairwise_distance(blocks, metric, missing="rescale", negative=True), want, **near)
    if values.dtype == np.int8:
        write(tmp_path / "cohort.zarr", "call_genotype", values, (100, *values.shape[1:]))
        apart = genotype.distances(values, metric).matrix
        np.testing.assert_allclose(teatime.dask.pairwise_distance(tmp_path / "cohort.zarr", metric), apart, **near)


@pytest.mark.parametrize("allele", [0.5, np.inf, 1e6])
def test_a_float_that_is_no_allele_is_refused(ds, allele):
    calls = CALLS.astype("f4")
    calls[3, 4, 1] = allele
    other = ds.assign(call_genotype=ds.call_genotype.copy(data=da.from_array(calls) if ds.call_genotype.chunks else calls))
    with pytest.raises(ValueError, match=f"`variable`: {allele} is no allele"):
        other.teatime.pairwise_distance().load()


def test_a_negative_dosage_of_floating_point_is_refused(ds):
    dosages = np.where(DOSAGES < 0, np.nan, DOSAGES).T.astype("f4")
    dosages[3, 4] = -0.25
    other = ds.assign(call_dosage=ds.call_dosage.copy(data=da.from_array(dosages) if ds.call_dosage.chunks else dosages))
    with pytest.raises((ValueError, OSError), match="-0.25 is negative"):
        other.teatime.pairwise_distance(variable="call_dosage").load()


@pytest.mark.parametrize("ploidy", [1, 2, 3])
def test_ploidy_of_distances(ploidy):
    calls = np.random.default_rng(7).integers(-2, 3, (300, 12, 3)).astype("i1")
    ds = xarray.Dataset({"call_genotype": (("variants", "samples", "ploidy"), calls)})
    want = ds.teatime.pairwise_distance("cityblock", ploidy=ploidy).stat_pairwise_distance
    assert want.values.any()
    for of in (ds.chunk(variants=100, samples=5), ds.astype("f4")):
        np.testing.assert_allclose(of.teatime.pairwise_distance("cityblock", ploidy=ploidy).stat_pairwise_distance, want)
    for of in (ds, ds.chunk(variants=100)):
        with pytest.raises((ValueError, OSError), match="allele -2 pads a call of lower ploidy than 3"):
            of.teatime.pairwise_distance().compute()
    haplotypes = xarray.Dataset({"call_genotype": (("variants", "samples"), calls[:, :, 0])})
    if ploidy < 3:
        both = [of.teatime.pairwise_distance("cityblock", ploidy=ploidy) for of in (haplotypes, haplotypes.chunk(samples=5))]
        np.testing.assert_allclose(*(of.stat_pairwise_distance for of in both))


def test_bad_variables(ds):
    with pytest.raises(KeyError, match="no 'calls', but call_genotype, call_dosage"):
        ds.teatime.pca(variable="calls")
    with pytest.raises(KeyError, match="but nothing"):
        xarray.Dataset().teatime.pca()
    with pytest.raises(ValueError, match=r"'sample_id' has the dimensions \('samples',\)"):
        ds.teatime.pairwise_distance(variable="sample_id")
