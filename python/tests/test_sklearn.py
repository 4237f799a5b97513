"""The estimators against scikit-learn's checks, and against its own estimators."""

import numpy as np
import pytest
from conftest import raises

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")
from sklearn import decomposition
from sklearn.utils.estimator_checks import parametrize_with_checks

from teatime.sklearn import PCA, TruncatedSVD


@parametrize_with_checks([PCA(), PCA(n_components=1, whiten=True), TruncatedSVD(n_components=1)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def data(shape=(60, 40), dtype="f8"):
    """Singular values that fall by a fifth each, and means that are not 0."""
    rng = np.random.default_rng(1)
    u, v = (np.linalg.qr(rng.normal(size=(n, min(shape))))[0] for n in shape)
    return (u * 100 * 0.8 ** np.arange(min(shape)) @ v.T + rng.normal(size=shape[1])).astype(dtype)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60)])
@pytest.mark.parametrize("whiten", [False, True])
# The first k vectors come from the iteration. In float32, components far below the first are noise.
@pytest.mark.parametrize(
    ("k", "dtype", "within", "of_values"), [(None, "f8", 1e-9, 1e-9), (5, "f8", 1e-6, 1e-11), (5, "f4", 2e-4, 1e-5)]
)
def test_pca_is_that_of_scikit_learn(shape, whiten, k, dtype, within, of_values):
    x = data(shape, dtype)
    ours = PCA(k, whiten=whiten, tol=1e-8)
    theirs = decomposition.PCA(k, whiten=whiten, svd_solver="full")
    # Centred data of 40 samples have 39 components.
    known = slice(0, 39)
    got, expected = ours.fit_transform(x), theirs.fit_transform(x.astype("f8"))
    assert got.dtype == x.dtype
    scale = np.abs(expected[:, known]).max()
    assert np.abs(got - expected)[:, known].max() <= within * scale
    assert np.abs(ours.transform(x) - expected)[:, known].max() <= within * scale
    assert np.abs(ours.inverse_transform(got) - theirs.inverse_transform(expected)).max() <= within * np.abs(x).max()
    for name in ("mean_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert np.abs(one - other).max() <= of_values * np.abs(theirs.singular_values_).max(), name
    assert np.abs(ours.components_ - theirs.components_)[known].max() <= within * 10
    assert ours.n_components_ == theirs.n_components_
    assert list(ours.get_feature_names_out()) == list(theirs.get_feature_names_out())


@pytest.mark.parametrize(("dtype", "within"), [("f8", 1e-6), ("f4", 2e-4)])
def test_truncated_svd_is_that_of_scikit_learn(dtype, within):
    x = data(dtype=dtype)
    ours, theirs = TruncatedSVD(5, tol=1e-8), decomposition.TruncatedSVD(5, algorithm="arpack")
    got, expected = ours.fit_transform(x), theirs.fit_transform(x.astype("f8"))
    assert got.dtype == x.dtype
    names = ("explained_variance_", "explained_variance_ratio_", "singular_values_", "components_")
    for one, other in [(got, expected), *((getattr(ours, name), getattr(theirs, name)) for name in names)]:
        assert np.abs(one - other).max() <= within * np.abs(other).max()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize(
    "estimator", [PCA(4), PCA(4, whiten=True), PCA(4, iterated_power=0), PCA(), TruncatedSVD(4), TruncatedSVD(4, n_iter=0)], ids=str
)
def test_fitting_gives_what_transform_gives(estimator, dtype):
    # The means are far from 0, so that float32 would keep little of the rest.
    x = (data() + 1000).astype(dtype)
    got = estimator.fit_transform(x)
    again = estimator.transform(x)
    assert got.dtype == again.dtype == (np.float32 if dtype == "f4" else np.float64)
    np.testing.assert_allclose(again, got, rtol=1e-6, atol=1e-6 * np.abs(got).max())


SOLVERS = ["auto", "full", "covariance_eigh", "arpack", "randomized"]


@pytest.mark.parametrize(("solver", "tol", "within"), [*((solver, None, 1e-10) for solver in SOLVERS[:4]), ("randomized", 1e-8, 1e-7)])
@pytest.mark.parametrize("shape", [(600, 90), (90, 600)])
@pytest.mark.parametrize("k", [5, 80])
def test_each_solver_of_scikit_learn(solver, tol, within, shape, k):
    x = np.random.default_rng(3).normal(size=shape) + np.arange(shape[1])
    if solver == "auto" and k == 5:
        tol, within = 1e-8, 1e-7
    ours = PCA(k, svd_solver=solver, tol=tol).fit(x)
    theirs = decomposition.PCA(k, svd_solver="full").fit(x)
    assert np.abs(ours.components_ - theirs.components_).max() <= within
    for name in ("score_samples", "transform"):
        got, expected = getattr(ours, name)(x), getattr(theirs, name)(x)
        assert np.abs(got - expected).max() <= within * np.abs(expected).max() * 10, name
    for name in ("get_covariance", "get_precision"):
        got, expected = getattr(ours, name)(), getattr(theirs, name)()
        assert np.abs(got - expected).max() <= within * np.abs(expected).max(), name
    assert abs(ours.score(x) - theirs.score(x)) <= within * abs(theirs.score(x))
    assert abs(ours.noise_variance_ - theirs.noise_variance_) <= within * theirs.explained_variance_[0]
    assert isinstance(ours, decomposition.PCA)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("options", [{"svd_solver": "arpack"}, {"svd_solver": "randomized", "tol": 0}], ids=str)
@pytest.mark.filterwarnings("error:teatime")
def test_arpack_and_a_tolerance_of_0_are_exact(dtype, options):
    # Smaller matrices are decomposed exactly by each solver.
    x = np.random.default_rng(3).normal(size=(1200, 500)).astype(dtype)
    vectors = np.linalg.svd((x - x.mean(axis=0)).astype("f8"), full_matrices=False)[2][:3]

    def error(**options):
        return np.abs(np.abs(PCA(3, iterated_power="auto", **options).fit(x).components_) - np.abs(vectors)).max()

    assert error(**options) < (1e-11 if dtype == "f8" else 2e-6)
    assert error(svd_solver="randomized") > 5e-6


def test_auto_does_not_find_all_components_for_a_few():
    x = np.random.default_rng(3).normal(size=(600, 40))
    for k, shape, chosen in [(5, (600, 40), "randomized"), (39, (600, 40), "covariance_eigh"), (5, (500, 40), "covariance_eigh"), (5, (300, 40), "full")]:
        assert PCA(k).fit(x[: shape[0], : shape[1]])._fit_svd_solver == chosen


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1 - 1e-12])
@pytest.mark.parametrize("stored", [False, True])
def test_a_share_of_the_variance(tmp_path, share, stored):
    x = data()
    np.save(tmp_path / "x.npy", x)
    ours, theirs = PCA(share, whiten=True), decomposition.PCA(share, svd_solver="full", whiten=True)
    got, expected = ours.fit_transform(tmp_path / "x.npy" if stored else x), theirs.fit_transform(x)
    assert got.shape == expected.shape and ours.n_components_ == theirs.n_components_
    k = min(39, ours.n_components_)
    assert np.abs(got - expected)[:, :k].max() <= 1e-9
    assert abs(ours.noise_variance_ - theirs.noise_variance_) <= 1e-9
    assert ours.components_.shape == theirs.components_.shape


def test_a_share_that_some_components_explain_takes_one_more():
    x = data((300, 8))
    shares = PCA().fit(x).explained_variance_ratio_.cumsum()
    assert [PCA(share).fit(x).n_components_ for share in shares[:6]] == [2, 3, 4, 5, 6, 7]


def test_no_component():
    x = data()
    ours, theirs = PCA(0, whiten=True).fit(x), decomposition.PCA(0).fit(x)
    assert ours.transform(x).shape == (60, 0)
    assert abs(ours.noise_variance_ - theirs.noise_variance_) <= 1e-9 and abs(ours.score(x) / theirs.score(x) - 1) <= 1e-9


@pytest.mark.parametrize("estimator", [PCA(2), PCA(2, svd_solver="arpack"), TruncatedSVD(2)], ids=str)
def test_sparse_matrices_are_refused(estimator):
    scipy = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    raises(TypeError, "Sparse data was passed for X, but dense data is required", estimator.fit, scipy.csr_array(data()))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_constant_data_have_no_variance(dtype):
    x = np.full((5, 4), 0.1, dtype)
    pca = PCA(2, whiten=True).fit(x)
    assert np.abs(pca.explained_variance_).max() < 1e-12
    assert np.isfinite(pca.transform(x)).all()
    assert np.isfinite(pca.explained_variance_ratio_).all()


def test_bad_parameters():
    raises(ValueError, "n_components=-1 must be between 0 and", PCA(-1).fit, data())
    raises(ValueError, "n_components=0 must be between 1 and", PCA(0, svd_solver="randomized").fit, data())
    raises(ValueError, r"n_components=41 must be between 0 and min\(n_samples, n_features\)=40 with svd_solver='full'", PCA(41).fit, data())
    raises(ValueError, "n_components=40 must be strictly less than", PCA(40, svd_solver="arpack").fit, data())
    raises(TypeError, "`n_components` is a whole number, not 0.5", PCA(0.5, svd_solver="randomized").fit, data())
    raises(TypeError, "`n_components` is a whole number, or a fraction above 0 and below 1, not 1.5", PCA(1.5).fit, data())
    raises(ValueError, "n_components='mle' is not there", PCA("mle").fit, data())
    raises(ValueError, "n_components='mle' cannot be a string with svd_solver='arpack'", PCA("mle", svd_solver="arpack").fit, data())
    words = "`svd_solver` is one of auto, full, covariance_eigh, arpack, randomized, not 'lobpcg'"
    raises(ValueError, words, PCA(svd_solver="lobpcg").fit, data())
    raises(ValueError, r"n_components=41 must be between 1 and .*=40 with algorithm='randomized'", TruncatedSVD(41).fit, data())
    raises(TypeError, "`n_components` is a whole number, not None", TruncatedSVD(None).fit, data())
    raises(ValueError, "`algorithm` is one of randomized, arpack, not 'full'", TruncatedSVD(algorithm="full").fit, data())
    raises(ValueError, "`n_iter` is -1: it is a whole number, at least 0, or None", TruncatedSVD(2, n_iter=-1).fit, data())
    raises(ValueError, "`iterated_power` is 'some': it is a whole number, at least 0, or 'auto'", PCA(2, iterated_power="some").fit, data())
    raises(ValueError, "`tol` is -1", PCA(2, tol=-1).fit, data())
    raises(ValueError, "`n_oversamples` is 1.5", PCA(2, n_oversamples=1.5).fit, data())
    raises(Exception, "no such", PCA(2, device="no such").fit, data())


def test_random_state():
    x = np.random.default_rng(2).normal(size=(300, 200)).astype("f4")
    def values(state):
        return TruncatedSVD(3, n_iter=0, n_oversamples=2, random_state=state).fit(x).components_
    assert np.array_equal(values(3), values(3))
    assert not np.array_equal(values(3), values(4))
    assert np.array_equal(values(np.random.RandomState(3)), values(np.random.RandomState(3)))
    assert not np.array_equal(values(None), values(None))


@pytest.mark.parametrize("ours", [PCA(5), PCA(5, whiten=True), TruncatedSVD(5)])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_of_a_path_as_of_the_array(tmp_path, ours, dtype):
    x = data(dtype=dtype)
    np.save(tmp_path / "x.npy", x)
    ours.set_params(tol=1e-8)
    stored = sklearn.base.clone(ours)
    got, expected = stored.fit_transform(tmp_path / "x.npy"), ours.fit_transform(x)
    within = 1e-6 if dtype == "f8" else 1e-3
    assert got.dtype == x.dtype and np.abs(got - expected).max() <= within * np.abs(expected).max()
    assert np.abs(stored.transform(x) - expected).max() <= within * np.abs(expected).max()
    names = [name for name in vars(ours) if name.endswith("_")]
    assert names and set(names) == {name for name in vars(stored) if name.endswith("_")}
    for name in names:
        one, other = getattr(stored, name), getattr(ours, name)
        assert np.abs(one - other).max() <= within * np.abs(other).max(), name
    with pytest.raises(OSError, match="`region` is not an option"):
        stored.set_params(storage_options={"region": "x"}).fit("http://[::1]/x")
    stored.set_params(storage_options=None, memory=1)
    with pytest.raises(MemoryError):
        stored.fit(tmp_path / "x.npy")
    stored.set_params(memory="1G")
    with pytest.raises(ValueError, match="41 components of a matrix of 60 x 40"):
        type(ours)(41).fit(tmp_path / "x.npy")
    other = TruncatedSVD(algorithm="arpack") if isinstance(ours, TruncatedSVD) else PCA(svd_solver="full")
    raises(ValueError, "of a path it is '(auto|randomized)', which takes the method that costs least", other.fit, tmp_path / "x.npy")
