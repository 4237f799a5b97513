"""The accessor against the functions that it calls, in memory and lazy."""

import numpy as np
import pytest

xarray = pytest.importorskip("xarray", reason="xarray is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")

from conftest import raises, write

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


def pca_results():
    expected = genotype.pca(DOSAGES, 3, signs="v")
    return {
        "sample_pca_projection": (("samples", "components"), expected.scores),
        "sample_pca_explained_variance": (("components",), expected.explained_variance),
        "sample_pca_explained_variance_ratio": (("components",), expected.explained_variance_ratio),
    }


def relationships(method, missing):
    return {"stat_genomic_relationship": (("samples_0", "samples_1"), genotype.grm(DOSAGES, method, missing=missing).matrix)}


def correlations():
    expected = teatime.pairwise_distance(DOSAGES.T.astype("f8"), metric="correlation", missing="rescale", negative=True)
    return {"stat_pairwise_distance": (("samples_0", "samples_1"), expected)}


@pytest.mark.parametrize("variable", ["call_genotype", "call_dosage"])
@pytest.mark.parametrize(
    "method, given, expected, atol",
    [
        ("pca", {"n_components": 3, "signs": "v"}, pca_results, 1e-6),
        ("genomic_relationship", {}, lambda: relationships("vanraden1", "pairwise"), 1e-6),
        ("genomic_relationship", {"estimator": "VanRaden", "skipna": True}, lambda: relationships("vanraden1", "pairwise"), 1e-6),
        ("genomic_relationship", {"estimator": "gcta", "missing": "mean"}, lambda: relationships("gcta", "mean"), 1e-6),
        ("pairwise_distance", {"metric": "correlation"}, correlations, 1e-5),
    ],
)
def test_results(ds, variable, method, given, expected, atol):
    """They are those of the functions, beside what the dataset has, and lazy where the genotypes are. Earlier ones are written anew."""
    results = expected()
    earlier = ds.assign({name: "earlier" for name in results})
    made = getattr(earlier.teatime, method)(**given, variable=variable)
    assert made.attrs == ds.attrs and "sample_id" in made
    for name, (dims, values) in results.items():
        assert made[name].dims == dims and np.allclose(made[name], values, atol=atol), name
        assert isinstance(made[name].data, da.Array) == isinstance(ds.call_genotype.data, da.Array)
    assert set(getattr(ds.teatime, method)(**given, variable=variable, merge=False)) == set(results)


def test_what_is_sgkits_alone_is_refused(ds):
    raises(ValueError, "`estimator` of Endelman-Jannink", ds.teatime.genomic_relationship, estimator="Endelman-Jannink")
    raises(ValueError, 'gcta or vanraden1, not "Yang"', ds.teatime.genomic_relationship, estimator="Yang")
    raises(ValueError, "`ancestral_frequency`", ds.teatime.genomic_relationship, ancestral_frequency="sample_frequency")
    raises(ValueError, "`skipna`", ds.teatime.genomic_relationship, skipna=False)
    raises(ValueError, "`skipna`", ds.teatime.genomic_relationship, skipna=True, missing="mean")


#: Calls of one, two and three alleles, with all values that occur: missing (-1) and absent (-2) alleles too.
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
    # A negative dosage in floating point is an error.
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
    raises(KeyError, "no 'calls', but call_genotype, call_dosage", ds.teatime.pca, variable="calls")
    with pytest.raises(KeyError, match="but nothing"):
        xarray.Dataset().teatime.pca()
    raises(ValueError, r"'sample_id' has the dimensions \('samples',\)", ds.teatime.pairwise_distance, variable="sample_id")
