"""PCA, relationship matrices, projections and distances of genotypes.

Genotypes are an array of calls (variants, samples, ploidy) or dosages (variants, samples), negative integers missing; or the path of a
store: VCF-Zarr, scikit-allel's and MalariaGEN's layout, or a PLINK .bed. Stores are streamed, in bounded memory.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from . import _teatime
from ._arrays import whole
from ._device import Device, run_options
from ._genotypes import Listed, Source, chosen, genotypes_of, open_store
from ._linalg import svd_options, warn_unconverged
from ._results import Pairs, Result, Scores
from ._teatime import Genotypes

__all__ = [
    "Distances", "DistancesBetween", "GRM", "GenotypePCA", "Genotypes", "Loadings", "Projection", "distances", "distances_between", "grm", "open_store",
    "pca", "project",
]

_A = TypeVar("_A")


@dataclass(frozen=True)
class _Components(Scores, Generic[_A]):
    """The fields that both kinds of principal components begin with."""

    _axes: ClassVar = {
        "scores": ("samples", "components"), "vectors": ("samples", "components"),
        **dict.fromkeys(("singular_values", "explained_variance", "explained_variance_ratio", "residuals"), ("components",)),
    }
    #: Eigenvectors times singular values, (samples, n_components): the coordinates of scikit-allel and scikit-learn.
    scores: _A
    #: Right singular vectors of the standardised matrix, of unit length, (samples, n_components): the eigenvectors of plink2.
    vectors: _A
    singular_values: _A
    #: s² / samples, as in scikit-allel.
    explained_variance: _A
    explained_variance_ratio: _A


@dataclass(frozen=True)
class PCA(_Components[_A]):
    """Principal components of samples, of :mod:`teatime.dask`: dask arrays, or NumPy's where they were computed."""

    #: ‖AᵀA v - s² v‖ / (s s₁) of each component, 0 with the exact method; whether it is at most ``tol``, or 1e-4 with ``n_iter``.
    residuals: _A
    converged: Any
    #: The number of passes, and the counts of variants: all, used, and left out for each reason. Delayed until they were computed.
    passes: Any
    counts: Any
    #: The names of the samples; None of an array.
    names: list[str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Loadings(Result):
    """Loadings of the variants that took part."""

    _axes: ClassVar = {
        "loadings": ("variants", "components"),
        **dict.fromkeys(("rows", "frequency", "mean", "scale", "contig", "position", "reference", "alternate"), ("variants",)),
    }
    #: Left singular vectors of the standardised matrix, of unit length, (variants, n_components).
    loadings: NDArray[np.float64]
    #: The place of each variant among all of the store or the array, from 0.
    rows: NDArray[np.uint64]
    #: The frequency of the alleles that dosages count.
    frequency: NDArray[np.float64]
    #: The number that is subtracted from dosages.
    mean: NDArray[np.float64]
    #: The number by which the difference is divided.
    scale: NDArray[np.float64]
    #: The names of a store's variants: contig, position from 1, id, and alleles; of a .bed, A2 is the reference. An array has none: None.
    contig: list[str] | None = field(default=None, repr=False)
    position: NDArray[np.uint64] | None = field(default=None, repr=False)
    id: list[str] | None = field(default=None, repr=False)
    reference: list[str] | None = field(default=None, repr=False)
    alternate: list[str] | None = field(default=None, repr=False)

    def _labels(self) -> dict[str, list[str] | None]:
        return {"variants": self.id, "components": [f"PC{number + 1}" for number in range(self.loadings.shape[1])]}

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row for each variant: its name and scaling, then its loadings."""
        table = super().to_pandas()
        columns = {name: getattr(self, name) for name, axes in self._axes.items() if len(axes) == 1}
        for place, (name, column) in enumerate((name, column) for name, column in columns.items() if column is not None):
            table.insert(place, name, column)
        return table


@dataclass(frozen=True)
class GenotypePCA(_Components[NDArray[np.float64]]):
    """Principal components of samples."""

    #: s² over the number of variants, as in plink2.
    eigenvalues: NDArray[np.float64]
    #: As in :class:`teatime.dask.PCA`.
    residuals: NDArray[np.float64]
    converged: list[bool]
    #: ``"exact"`` or ``"randomized"``, and the reason for it.
    method: str
    reason: str
    #: The number of passes over the genotypes.
    passes: int
    #: The sum of squares of the standardised matrix.
    sum_squares: float
    #: The counts of variants: all, those used, and those left out for each reason.
    counts: dict[str, int]
    #: The names of the samples; None of an array.
    names: list[str] | None = field(default=None, repr=False)
    #: The loadings of the variants, if they were asked for.
    loadings: Loadings | None = field(default=None, repr=False)


@dataclass(frozen=True)
class _Matrix(Pairs, Generic[_A]):
    """The fields that all matrices of pairs begin with."""

    _axes: ClassVar = dict.fromkeys(("matrix", "shared"), ("samples_0", "samples_1"))
    matrix: _A
    shared: _A | None
    #: The counts of variants: all, those used, and those left out for each reason.
    counts: Any


@dataclass(frozen=True)
class GRM(_Matrix[_A]):
    """A relationship matrix: of :mod:`teatime.dask`, dask arrays, or NumPy's where it was computed.

    ``matrix`` is (samples, samples); ``shared`` the number of variants called in both, if missing calls count by pairs; else None.
    """

    #: The names of the samples; None of an array.
    names: list[str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Distances(_Matrix[NDArray[np.float64]]):
    """Distances of samples.

    ``matrix`` is (samples, samples); ``shared`` the number of variants called in both, if a call is missing; else None.
    """

    counts: dict[str, int]
    #: The number of variants with more than two alleles, and whether all their alleles but the reference count as one.
    multiallelic: int
    merged: bool
    #: The names of the samples; None of an array.
    names: list[str] | None = field(default=None, repr=False)
    #: With ``tree``, scipy's linkage, (samples - 1, 4), as its ``dendrogram`` takes it, and the tree as Newick, where the samples of an array
    #: have their numbers for names; else None.
    linkage: NDArray[np.float64] | None = field(default=None, repr=False)
    newick: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class DistancesBetween(_Matrix[NDArray[np.float64]]):
    """Distances of samples from those of another store.

    ``matrix`` is (samples, samples of the others); ``shared`` the number of variants called in both, if a call is missing; else None.
    """

    counts: dict[str, int]
    _axes: ClassVar = dict.fromkeys(("matrix", "shared"), ("samples", "others"))
    #: The number of variants with more than two alleles. All their alleles but the reference count as one.
    multiallelic: int
    #: The numbers of variants that were matched, and of others by reason: of the other ``"reference"``, and of the ``"genotypes"``.
    matched: dict[str, dict[str, int]]
    #: The names of the samples, and of those of the other store.
    names: list[str] | None = field(default=None, repr=False)
    other_names: list[str] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Projection(Scores):
    """Samples on the components of a reference."""

    _axes: ClassVar = {"scores": ("samples", "components"), "called": ("samples",)}
    #: Coordinates on the scale of the reference's, (samples, n_components).
    scores: NDArray[np.float64]
    #: The number of matched variants that each sample has a call of.
    called: NDArray[np.uint64]
    #: The reference's own components.
    reference: GenotypePCA
    #: As in :class:`DistancesBetween`.
    matched: dict[str, dict[str, int]]
    #: The number of variants of the reference that were absent and taken as homozygous reference.
    as_reference: int = 0
    #: The names of the samples.
    names: list[str] | None = field(default=None, repr=False)


def pca_options(
    n_components: int = 10, *, scaler: str | None = "patterson", method: str = "auto", min_maf: float = 0.0, max_missing: float = 1.0,
    **svd: Any,
) -> dict[str, Any]:
    """Options of components, as the compiled part takes them."""
    return {
        "n_components": whole(n_components, "n_components"), "scaler": "none" if scaler is None else scaler, "method": method,
        "min_maf": min_maf, "max_missing": max_missing, "svd": svd_options(**svd),
    }


def pca(
    genotypes: Source, n_components: int = 10, *, scaler: str | None = "patterson", ploidy: int | None = None, method: str = "auto",
    min_maf: float = 0.0, max_missing: float = 1.0, n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4,
    random_state: int = 0, signs: str = "stable", keep: Listed | None = None, remove: Listed | None = None, extract: Listed | None = None,
    exclude: Listed | None = None, loadings: bool = False, device: Device | str | None = None, memory: int | str | None = None,
    progress: Any = None,
) -> GenotypePCA:
    """Principal components of the samples.

    A call's dosage is its number of non-reference alleles. A call with a missing allele is missing, and becomes the variant's mean.

    Parameters
    ----------
    genotypes
        An array, the path of a store, or what :func:`open_store` gives.
    n_components
        How many.
    scaler
        ``"patterson"``, ``"binom2"`` (plink2's), ``"standard"``, ``"center"`` or None.
    ploidy
        Of calls: those of another are missing. Of an array of two axes: 1 where it is of haplotypes.
    method
        ``"exact"``: one pass. ``"randomized"``: some passes. ``"auto"``: what costs less.
    min_maf, max_missing
        Variants with a lower minor allele frequency, or a larger share of missing calls, take no part.
    n_iter, n_oversamples, tol, random_state, signs
        As in :func:`teatime.truncated_svd`. A warning has the residuals of components that have not converged, with ``n_iter`` too.
    keep, remove, extract, exclude
        The samples and variants of a store that take part, as in :func:`open_store`.
    loadings
        True gives the variants' loadings too, in one more pass, if the device and the host do not hold the genotypes. They take
        8 (``n_components`` + 4) bytes of memory for each variant, and their names some 300, beside ``memory``.
    device, progress
        As in :func:`teatime.truncated_svd`.
    memory
        Most bytes of the host's memory, a number or text such as ``"2G"``, as the command line takes it; None: half of what is free.

    Examples
    --------
    >>> import numpy as np
    >>> from teatime import genotype
    >>> dosages = np.array([[0, 0, 2, 2], [2, 2, 0, 1], [0, 1, 2, 2], [2, 2, 0, 0]], "i1")
    >>> found = genotype.pca(dosages, 2)
    >>> bool(found.scores[0, 0] * found.scores[3, 0] < 0)
    True
    """
    options = pca_options(
        n_components, scaler=scaler, method=method, min_maf=min_maf, max_missing=max_missing, n_iter=n_iter,
        n_oversamples=n_oversamples, tol=tol, random_state=random_state, signs=signs,
    )
    source = chosen(genotypes, keep=keep, remove=remove, extract=extract, exclude=exclude)
    opened = genotypes_of(source, ploidy, "pca")
    fields, table = _teatime.pca(opened, options, run_options(device, progress, memory), loadings=loadings)
    components = GenotypePCA(**fields, names=opened.names, loadings=None if table is None else Loadings(**table))
    warn_unconverged(components.residuals, components.converged, options["svd"])
    return components


def grm(
    genotypes: Source, method: str = "gcta", *, missing: str = "pairwise", ploidy: int | None = None, min_maf: float = 0.0,
    max_missing: float = 1.0, keep: Listed | None = None, remove: Listed | None = None, extract: Listed | None = None,
    exclude: Listed | None = None, device: Device | str | None = None, memory: int | str | None = None, progress: Any = None,
) -> GRM[NDArray[np.float64]]:
    """The genomic relationship matrix of the samples.

    Parameters
    ----------
    genotypes, ploidy, min_maf, max_missing, keep, remove, extract, exclude, device, memory, progress
        As in :func:`pca`.
    method
        ``"gcta"`` as plink2's ``--make-rel``; ``"vanraden1"`` as sgkit's ``genomic_relationship``.
    missing
        ``"pairwise"``: sums are over the variants called in both. ``"mean"``: a missing call is the variant's mean.

    Examples
    --------
    >>> import numpy as np
    >>> from teatime import genotype
    >>> found = genotype.grm(np.array([[0, 0, 2], [2, 2, 0], [0, 1, 2], [2, 2, 0]], "i1"))
    >>> bool(found.matrix[0, 1] > 0.5 > found.matrix[0, 2])
    True
    """
    options = {"method": method, "missing": missing, "min_maf": min_maf, "max_missing": max_missing}
    source = chosen(genotypes, keep=keep, remove=remove, extract=extract, exclude=exclude)
    opened = genotypes_of(source, ploidy, "grm")
    return GRM(*_teatime.grm(opened, options, run_options(device, progress, memory)), opened.names)


def distances(
    genotypes: Source, metric: str = "euclidean", *, p: float = 2.0, missing: str | None = None, merge_alleles: bool = False,
    haplotypes: bool = False, tree: str | None = None, ploidy: int | None = None, min_maf: float = 0.0, max_missing: float = 1.0,
    keep: Listed | None = None, remove: Listed | None = None, extract: Listed | None = None, exclude: Listed | None = None,
    device: Device | str | None = None, memory: int | str | None = None, progress: Any = None,
) -> Distances:
    """Distances of the samples from one another.

    Parameters
    ----------
    genotypes, ploidy, min_maf, max_missing, keep, remove, extract, exclude, device, memory, progress
        As in :func:`pca`.
    metric
        ``"ibs"``, PLINK's identity by state; ``"ibs-of-alleles"``, sgkit's; or one of :func:`teatime.pairwise_distance`.
    p, missing
        As there. None: sums are rescaled to all variants, so that no sample is near because it lacks calls; of ibs, a mean, missing calls are
        ignored. sgkit's rule is ``"ignore"``.
    merge_alleles
        Of calls at variants of more than two alleles, different ones differ by euclidean, sqeuclidean, cityblock, ibs, ibs-of-alleles and, of
        a ``ploidy`` of 1, hamming. With True, and by other metrics, which warn, all alleles but the reference count as one.
    haplotypes
        True takes each haplotype of the calls for a sample: those of sample ``a`` are ``a_1``, ``a_2`` ... The order of alleles in a call is
        taken for that of haplotypes: it means nothing where calls are not phased. Not for dosages and .bed, which do not have it.
    tree
        Also cluster the samples: ``"single"``, ``"complete"``, ``"average"`` (UPGMA), ``"weighted"`` or ``"ward"``, which is of euclidean
        distances, as scipy's ``linkage``; of equal distances, another pair may be merged first. Of ibs, distances are 1 - ibs. Takes
        4 samples² bytes. Distances must not be NaN, nor similarities, such as ``"inner_product"``.

    Examples
    --------
    >>> import numpy as np
    >>> from teatime import genotype
    >>> genotype.distances(np.array([[0, 2], [1, -1], [0, 1]], "i1"), "cityblock").matrix
    array([[0. , 4.5],
           [4.5, 0. ]])
    >>> genotype.distances(np.array([[0, 2, 0], [1, 2, 1], [0, 1, 1]], "i1"), "cityblock", tree="average").newick
    '(1:1.75,(0:0.5,2:0.5):1.25);'
    """
    source = chosen(genotypes, keep=keep, remove=remove, extract=extract, exclude=exclude)
    opened, run = genotypes_of(source, ploidy, "pairwise_distance"), run_options(device, progress, memory)
    opened = opened.haplotypes() if haplotypes else opened
    options: dict[str, Any] = {"metric": metric, "p": p, "missing": missing, "min_maf": min_maf, "max_missing": max_missing}
    options.update(merge_alleles=merge_alleles, tree=tree)
    matrices, several, merged, clusters = _teatime.distances(opened, options, run)
    if several and merged and not merge_alleles:
        warnings.warn(
            f"{several} variants have more than two alleles, of which all but the reference count as one by {metric}", stacklevel=2
        )
    return Distances(*matrices, several, merged, opened.names, *(clusters or ()))


def distances_between(
    genotypes: Source, others: Source, metric: str = "euclidean", *, match: str = "position", p: float = 2.0, missing: str | None = None,
    ploidy: int | None = None, min_maf: float = 0.0, max_missing: float = 1.0, keep: Listed | None = None, remove: Listed | None = None,
    extract: Listed | None = None, exclude: Listed | None = None, device: Device | str | None = None, memory: int | str | None = None,
    progress: Any = None,
) -> DistancesBetween:
    """Distances of the samples of one store from those of another, over the variants that both have.

    Parameters
    ----------
    genotypes, others
        Paths of stores, or what :func:`open_store` gives: arrays do not say which variants they have.
    match
        ``"position"``: variants are the same by contig, position and alleles. ``"id"``: by id and alleles. Dosages of the others are turned
        round where reference and alternate allele have changed places; strands are taken as they are.
    metric, p, missing
        As in :func:`distances`.
    keep, remove, extract, exclude
        The samples and variants of the ``genotypes``, as in :func:`open_store`, which chooses those of the others.
    ploidy, min_maf, max_missing, device, memory, progress
        As in :func:`pca`; variants are counted over the samples of both.
    """
    genotypes = chosen(genotypes, keep=keep, remove=remove, extract=extract, exclude=exclude)
    ours, theirs = (genotypes_of(source, ploidy, "pairwise_distance") for source in (genotypes, others))
    options: dict[str, Any] = {"metric": metric, "p": p, "missing": missing, "min_maf": min_maf, "max_missing": max_missing}
    options.update(merge_alleles=False, tree=None)
    run = run_options(device, progress, memory)
    matrices, several, matched = _teatime.distances_between(ours, theirs, match, options, run)
    return DistancesBetween(*matrices, several, matched, ours.names, theirs.names)


def project(
    genotypes: Source, reference: Source, n_components: int = 10, *, match: str = "position", missing: str = "mean",
    scaler: str | None = "patterson", ploidy: int | None = None, method: str = "auto", min_maf: float = 0.0, max_missing: float = 1.0,
    n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4, random_state: int = 0, absent: str = "missing",
    keep: Listed | None = None, remove: Listed | None = None, extract: Listed | None = None, exclude: Listed | None = None,
    device: Device | str | None = None, memory: int | str | None = None, progress: Any = None,
) -> Projection:
    """Coordinates of the samples of one store on the principal components of another.

    Parameters
    ----------
    genotypes, reference, match
        As ``genotypes`` and ``others`` of :func:`distances_between`.
    missing
        ``"mean"``: a missing call is the reference's mean, so that scores are nearer to zero. ``"least-squares"``: the scores that explain
        best what is called, as EIGENSOFT's lsqproject; NaN for a sample whose calls do not determine them.
    absent
        Variants of the reference at places that the genotypes do not have: ``"missing"`` of all samples, or homozygous ``"reference"``, as
        where a call set has only the sites at which a sample varies, as the command line's ``--absent``.
    keep, remove, extract, exclude
        As in :func:`distances_between`.
    n_components, scaler, ploidy, method, min_maf, max_missing, n_iter, n_oversamples, tol, random_state, device, memory, progress
        Of the reference's components, as in :func:`pca`.
    """
    options = pca_options(
        n_components, scaler=scaler, method=method, min_maf=min_maf, max_missing=max_missing, n_iter=n_iter,
        n_oversamples=n_oversamples, tol=tol, random_state=random_state,
    )
    genotypes = chosen(genotypes, keep=keep, remove=remove, extract=extract, exclude=exclude)
    new, known = (genotypes_of(source, ploidy, "pca") for source in (genotypes, reference))
    run = run_options(device, progress, memory)
    scores, called, components, matched, taken = _teatime.project(new, known, match, options, (missing, absent), run)
    pca = GenotypePCA(**components, names=known.names)
    warn_unconverged(pca.residuals, pca.converged, options["svd"])
    used, variants = matched["reference"]["used"], matched["reference"]["variants"] - taken
    if used < 0.95 * variants:
        warnings.warn(f"teatime: {used} of the reference's {variants} variants were matched: scores are less exact", stacklevel=2)
    return Projection(scores, called, pca, matched, taken, new.names)
