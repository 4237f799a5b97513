"""PCA, relationship matrices, projections and distances of genotypes.

Genotypes are an array of calls (variants, samples, ploidy) or dosages (variants, samples), negative integers missing; or the path of a
store: VCF-Zarr, scikit-allel's and MalariaGEN's layout, or a PLINK .bed. Stores are streamed, in bounded memory.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from . import _teatime
from ._arrays import as_array, c_order, folder, host_array, text_options, whole
from ._device import Device, run_options
from ._linalg import svd_options, warn_unconverged
from ._teatime import Genotypes

__all__ = [
    "Distances", "DistancesBetween", "GRM", "GenotypePCA", "Genotypes", "Projection", "distances", "distances_between", "grm", "open_store",
    "pca", "project",
]

#: An array of genotypes, the path of a store, or the result of :func:`open_store`.
Source = Union[str, "os.PathLike[str]", NDArray[Any], Genotypes]


_A = TypeVar("_A")


@dataclass(frozen=True)
class _Components(Generic[_A]):
    """The fields that both kinds of principal components begin with."""

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


@dataclass(frozen=True)
class GRM(Generic[_A]):
    """A relationship matrix: of :mod:`teatime.dask`, dask arrays, or NumPy's where it was computed."""

    #: (samples, samples)
    matrix: _A
    #: The number of variants called in both, if missing calls count by pairs; else None.
    shared: _A | None
    counts: Any


@dataclass(frozen=True)
class Distances:
    """Distances of samples."""

    #: (samples, samples)
    matrix: NDArray[np.float64]
    #: The number of variants called in both, if a call is missing; else None.
    shared: NDArray[np.float64] | None
    counts: dict[str, int]
    #: The number of variants with more than two alleles, and whether all their alleles but the reference count as one.
    multiallelic: int
    merged: bool


@dataclass(frozen=True)
class DistancesBetween:
    """Distances of samples from those of another store."""

    #: (samples, samples of the others)
    matrix: NDArray[np.float64]
    #: The number of variants called in both, if a call is missing; else None.
    shared: NDArray[np.float64] | None
    counts: dict[str, int]
    #: The number of variants with more than two alleles. All their alleles but the reference count as one.
    multiallelic: int
    #: The numbers of variants that were matched, and of others by reason: of the other ``"reference"``, and of the ``"genotypes"``.
    matched: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Projection:
    """Samples on the components of a reference."""

    #: Coordinates on the scale of the reference's, (samples, n_components).
    scores: NDArray[np.float64]
    #: The number of matched variants that each sample has a call of.
    called: NDArray[np.uint64]
    #: The reference's own components.
    reference: GenotypePCA
    #: As in :class:`DistancesBetween`.
    matched: dict[str, dict[str, int]]


def open_store(
    path: str | os.PathLike[str], array: str | None = None, *, fill: bool = False, storage_options: dict[str, Any] | None = None,
) -> Genotypes:
    """The genotypes of a Zarr store or of a PLINK .bed, which nothing is read of yet.

    Parameters
    ----------
    path
        Of the folder or zip archive, or of the .bed, beside which are its .bim and .fam; or the URL of a Zarr store: ``s3://``, ``gs://``,
        ``az://``, ``abfss://``, ``https://`` ...
    array
        The array of a Zarr store, where it is not the one that is found.
    fill
        Whether a missing chunk has the array's fill value. Else it is an error, since it is more often damage.
    storage_options
        Of a URL: options of the Rust crate object_store, as ``{"region": "eu-west-1", "skip_signature": True}``. Without them, as in all
        functions that take a path, the environment says how to connect (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``).
    """
    return Genotypes.of_store(folder(path), array, fill, text_options(storage_options))


def _narrow(a: NDArray[Any]) -> NDArray[Any]:
    """Integers of 64 bits as int8, where that changes none: NumPy makes such ones unless told otherwise."""
    if a.dtype.kind not in "iu" or a.dtype.itemsize < 8:
        return a
    ends = np.iinfo(np.int8)
    return a.astype(np.int8) if ends.min <= a.min(initial=0) and a.max(initial=0) <= ends.max else a


def of_haplotypes(a: Any, ploidy: int | None) -> Any:
    """An array of genotypes as it is; with a ``ploidy`` of 1, one of two axes as calls of one allele each."""
    if a.ndim != 2 or ploidy in (None, 2):
        return a
    if ploidy != 1:
        raise ValueError(f"`ploidy` of {ploidy} and dosages of two axes: they are of diploids; calls have a third axis")
    return a[:, :, np.newaxis]


def genotypes_of(source: Source, ploidy: int | None, name: str, *, first: int = 0, variants: int | None = None) -> Genotypes:
    """What ``source`` names, as the compiled part takes it."""
    if isinstance(source, Genotypes):
        opened = source
    elif isinstance(source, (str, os.PathLike)):
        opened = open_store(source)
    else:
        a = of_haplotypes(as_array(_narrow(host_array(source, "genotypes", name)), "genotypes", name), ploidy)
        if a.ndim not in (2, 3):
            raise ValueError(f"`genotypes` are (variants, samples) or (variants, samples, ploidy), not {a.shape}")
        opened = Genotypes.of_array(c_order(a), first, variants, a.dtype.kind == "f")
        if a.ndim == 2:
            return opened
    # Calls of at most two alleles need no other ploidy. Of calls with more alleles, those of another ploidy become missing.
    return opened if ploidy is None or ploidy == opened.ploidy <= 2 else opened.with_ploidy(ploidy)


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
    random_state: int = 0, signs: str = "stable", device: Device | str | None = None, memory: int | str | None = None, progress: Any = None,
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
    opened = genotypes_of(genotypes, ploidy, "pca")
    components = GenotypePCA(**_teatime.pca(opened, options, run_options(device, progress, memory)))
    warn_unconverged(components.residuals, components.converged, options["svd"])
    return components


def grm(
    genotypes: Source, method: str = "gcta", *, missing: str = "pairwise", ploidy: int | None = None, min_maf: float = 0.0,
    max_missing: float = 1.0, device: Device | str | None = None, memory: int | str | None = None, progress: Any = None,
) -> GRM[NDArray[np.float64]]:
    """The genomic relationship matrix of the samples.

    Parameters
    ----------
    genotypes, ploidy, min_maf, max_missing, device, memory, progress
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
    return GRM(*_teatime.grm(genotypes_of(genotypes, ploidy, "grm"), options, run_options(device, progress, memory)))


def distances(
    genotypes: Source, metric: str = "euclidean", *, p: float = 2.0, missing: str | None = None, merge_alleles: bool = False,
    ploidy: int | None = None, min_maf: float = 0.0, max_missing: float = 1.0, device: Device | str | None = None,
    memory: int | str | None = None, progress: Any = None,
) -> Distances:
    """Distances of the samples from one another.

    Parameters
    ----------
    genotypes, ploidy, min_maf, max_missing, device, memory, progress
        As in :func:`pca`.
    metric
        ``"ibs"``, PLINK's identity by state; ``"ibs-of-alleles"``, sgkit's; or one of :func:`teatime.pairwise_distance`.
    p, missing
        As there. None: sums are rescaled to all variants, so that no sample is near because it lacks calls; of ibs, a mean, missing calls are
        ignored. sgkit's rule is ``"ignore"``.
    merge_alleles
        Of calls at variants of more than two alleles, different ones differ by euclidean, sqeuclidean, cityblock, ibs, ibs-of-alleles and, of
        a ``ploidy`` of 1, hamming. With True, and by other metrics, which warn, all alleles but the reference count as one.

    Examples
    --------
    >>> import numpy as np
    >>> from teatime import genotype
    >>> genotype.distances(np.array([[0, 2], [1, -1], [0, 1]], "i1"), "cityblock").matrix
    array([[0. , 4.5],
           [4.5, 0. ]])
    """
    opened, run = genotypes_of(genotypes, ploidy, "pairwise_distance"), run_options(device, progress, memory)
    matrices, several, merged = _teatime.distances(opened, metric, p, missing, merge_alleles, (min_maf, max_missing), run)
    if several and merged and not merge_alleles:
        warnings.warn(
            f"{several} variants have more than two alleles, of which all but the reference count as one by {metric}", stacklevel=2
        )
    return Distances(*matrices, several, merged)


def distances_between(
    genotypes: Source, others: Source, metric: str = "euclidean", *, match: str = "position", p: float = 2.0, missing: str | None = None,
    ploidy: int | None = None, min_maf: float = 0.0, max_missing: float = 1.0, device: Device | str | None = None,
    memory: int | str | None = None, progress: Any = None,
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
    ploidy, min_maf, max_missing, device, memory, progress
        As in :func:`pca`; variants are counted over the samples of both.
    """
    ours, theirs = (genotypes_of(source, ploidy, "pairwise_distance") for source in (genotypes, others))
    run = run_options(device, progress, memory)
    matrices, several, matched = _teatime.distances_between(ours, theirs, match, metric, p, missing, (min_maf, max_missing), run)
    return DistancesBetween(*matrices, several, matched)


def project(
    genotypes: Source, reference: Source, n_components: int = 10, *, match: str = "position", missing: str = "mean",
    scaler: str | None = "patterson", ploidy: int | None = None, method: str = "auto", min_maf: float = 0.0, max_missing: float = 1.0,
    n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4, random_state: int = 0,
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
    n_components, scaler, ploidy, method, min_maf, max_missing, n_iter, n_oversamples, tol, random_state, device, memory, progress
        Of the reference's components, as in :func:`pca`.
    """
    options = pca_options(
        n_components, scaler=scaler, method=method, min_maf=min_maf, max_missing=max_missing, n_iter=n_iter,
        n_oversamples=n_oversamples, tol=tol, random_state=random_state,
    )
    new, known = (genotypes_of(source, ploidy, "pca") for source in (genotypes, reference))
    run = run_options(device, progress, memory)
    scores, called, components, matched = _teatime.project(new, known, match, options, missing, run)
    pca = GenotypePCA(**components)
    warn_unconverged(pca.residuals, pca.converged, options["svd"])
    used, variants = matched["reference"]["used"], matched["reference"]["variants"]
    if used < 0.95 * variants:
        warnings.warn(f"teatime: {used} of the reference's {variants} variants were matched: scores are less exact", stacklevel=2)
    return Projection(scores, called, pca, matched)
