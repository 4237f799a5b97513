"""An accessor for datasets of genotypes, with sgkit's names: ``import teatime.xarray``, then ``ds.teatime.pca()``.

Of variables in memory results are NumPy arrays, computed at once. Of dask-backed ones they are lazy, by :mod:`teatime.dask`. sgkit need
not be installed.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import xarray
except ImportError as error:  # pragma: no cover
    raise ImportError("teatime.xarray needs xarray: pip install 'teatime-gpu[xarray]'") from error

from . import genotype
from ._genotypes import of_haplotypes

__all__ = ["GenotypeAccessor"]

_DIMS = ("variants", "samples", "ploidy")


@xarray.register_dataset_accessor("teatime")
class GenotypeAccessor:
    """Statistics of the genotypes of a dataset, as its attribute ``teatime``.

    All take the name of a ``variable``: calls with the dimensions ``variants``, ``samples`` and ``ploidy``, or dosages with the first two,
    in any order. Negative numbers, and NaN of floats, are missing. They give the dataset with what was computed, or with
    ``merge=False`` only that. ``options`` are those of the function that is named, of :mod:`teatime.dask` where the variable is
    dask-backed. KeyError for a variable that the dataset does not have, ValueError for one of other dimensions.

    Examples
    --------
    >>> import numpy as np, xarray, teatime.xarray
    >>> calls = np.array([[[0, 0], [0, 1], [1, 1]], [[1, 1], [0, 1], [0, 0]], [[0, 1], [1, 1], [0, 0]]], "i1")
    >>> ds = xarray.Dataset({"call_genotype": (("variants", "samples", "ploidy"), calls)})
    >>> ds = ds.teatime.pca(n_components=2)
    >>> ds.sample_pca_projection.sizes
    Frozen({'samples': 3, 'components': 2})
    >>> ds.teatime.pairwise_distance().stat_pairwise_distance.values.round(2)
    array([[0.  , 1.73, 3.  ],
           [1.73, 0.  , 2.45],
           [3.  , 2.45, 0.  ]])
    """

    def __init__(self, ds: xarray.Dataset) -> None:
        self._ds = ds

    def pca(
        self, n_components: int = 10, *, variable: str = "call_genotype", ploidy: int | None = None, merge: bool = True, **options: Any
    ) -> xarray.Dataset:
        """Principal components of the samples, by :func:`teatime.genotype.pca` or :func:`teatime.dask.pca`:
        ``sample_pca_projection`` (samples, components), ``sample_pca_explained_variance``, which is s² / samples as sgkit's, and
        ``sample_pca_explained_variance_ratio`` (components).
        """
        data, functions = self._genotypes(variable)
        pca = functions.pca(data, n_components, ploidy=ploidy, **options)
        return self._with(
            merge,
            sample_pca_projection=(("samples", "components"), pca.scores),
            sample_pca_explained_variance=("components", pca.explained_variance),
            sample_pca_explained_variance_ratio=("components", pca.explained_variance_ratio),
        )

    def genomic_relationship(
        self, estimator: str | None = None, *, ancestral_frequency: None = None, skipna: bool | None = None,
        variable: str = "call_genotype", ploidy: int | None = None, merge: bool = True, **options: Any,
    ) -> xarray.Dataset:
        """The relationship matrix of the samples, by :func:`teatime.genotype.grm` or :func:`teatime.dask.grm`:
        ``stat_genomic_relationship`` (samples_0, samples_1). ValueError for arguments of sgkit's that are not taken.

        Parameters
        ----------
        estimator
            sgkit's ``"VanRaden"``, which is the default, or a ``method`` of these functions. sgkit's ``"Endelman-Jannink"`` is not there.
        ancestral_frequency
            Not taken: frequencies are those of the samples, of the calls that are not missing.
        skipna
            True is sgkit's, and ``missing="pairwise"``, which is the default. With False sgkit gives NaN to samples with missing calls;
            here it is refused, and ``missing="mean"`` takes the variant's mean.
        """
        if estimator == "Endelman-Jannink":
            raise ValueError("`estimator` of Endelman-Jannink is sgkit's alone: VanRaden and gcta are here")
        if ancestral_frequency is not None:
            raise ValueError("`ancestral_frequency` is sgkit's alone: leave it out, and frequencies are those of the samples")
        if skipna is not None and (not skipna or options.setdefault("missing", "pairwise") != "pairwise"):
            raise ValueError("`skipna` is True (missing='pairwise') or left out: missing='mean' makes missing calls their variant's mean")
        method = "vanraden1" if estimator in (None, "VanRaden") else estimator
        data, functions = self._genotypes(variable)
        relationships = functions.grm(data, method, ploidy=ploidy, **options).matrix
        return self._with(merge, stat_genomic_relationship=(("samples_0", "samples_1"), relationships))

    def pairwise_distance(
        self, metric: str = "euclidean", *, variable: str = "call_genotype", ploidy: int | None = None, merge: bool = True, **options: Any
    ) -> xarray.Dataset:
        """Distances of the samples, by :func:`teatime.genotype.distances` or :func:`teatime.dask.pairwise_distance`:
        ``stat_pairwise_distance`` (samples_0, samples_1).

        Of calls, distances are of dosages: the number of alleles that are not the reference, missing where an allele is; a haploid call
        among diploid ones (its other allele is -2) counts twice. Sums are rescaled to all variants, unless ``missing="ignore"`` asks for
        sgkit's rule. At variants of more than two alleles all but the reference count as one; of what is in memory a warning counts
        those, and ``merge_alleles=False`` tells alleles apart.
        """
        data, functions = self._genotypes(variable)
        if functions is genotype:
            alleles = _whole(data) if data.ndim == 3 else data
            made = genotype.distances(alleles, metric, ploidy=ploidy, **{"merge_alleles": True, **options})
            distances = made.matrix
            if made.merged and made.multiallelic:
                why = "of which all but the reference count as one: `merge_alleles=False` tells them apart"
                warnings.warn(f"{made.multiallelic} variants have more than two alleles, {why}", stacklevel=2)
        else:
            calls = of_haplotypes(data, ploidy)
            dosages = calls.map_blocks(_dosages, ploidy=ploidy, drop_axis=2, dtype=np.int8) if calls.ndim == 3 else calls
            if dosages.dtype.kind == "f":
                dosages = dosages.map_blocks(_not_negative, dtype=dosages.dtype)
            options = {"missing": "rescale", "negative": True, **options}
            if options["missing"] == "propagate":
                dosages = np.where(dosages < 0, np.nan, dosages)
            distances = functions.pairwise_distance(dosages.T, metric, **options).astype(np.float64)
        return self._with(merge, stat_pairwise_distance=(("samples_0", "samples_1"), distances))

    def _genotypes(self, variable: str) -> tuple[Any, Any]:
        """(variants, samples) or (variants, samples, ploidy), and the module whose functions take it."""
        if variable not in self._ds:
            raise KeyError(f"`variable`: the dataset has no {variable!r}, but {', '.join(map(str, self._ds.data_vars)) or 'nothing'}")
        array = self._ds[variable]
        if set(array.dims) not in (set(_DIMS), set(_DIMS[:2])):
            raise ValueError(f"`variable`: {variable!r} has the dimensions {array.dims}, not variants, samples and, of calls, ploidy")
        array = array.transpose(*_DIMS[: array.ndim])
        if not hasattr(array.data, "__dask_graph__"):
            return array.values, genotype
        from . import dask

        return array.data, dask

    def _with(self, merge: bool, **variables: Any) -> xarray.Dataset:
        return self._ds.assign(variables) if merge else xarray.Dataset(variables)


def _whole(calls: NDArray[Any]) -> NDArray[Any]:
    """Calls as integers, where NaN of floats are -1. ValueError for a number that is no allele."""
    if calls.dtype.kind != "f":
        return calls
    alleles = np.nan_to_num(calls, nan=-1, posinf=np.inf, neginf=-np.inf)
    other = alleles[(alleles != np.rint(alleles)) | (np.abs(alleles) > np.iinfo(np.int16).max)]
    if other.size:
        raise ValueError(f"`variable`: {other[0]} is no allele")
    return alleles.astype(np.int16)


def _not_negative(dosages: NDArray[Any]) -> NDArray[Any]:
    """Dosages of floating point. ValueError for one below 0, which is no mark of a missing one."""
    lowest = np.fmin.reduce(dosages, axis=None, initial=0)
    if lowest < 0:
        raise ValueError(f"`variable`: a dosage of {lowest} is negative")
    return dosages


def _dosages(calls: NDArray[Any], ploidy: int | None = None) -> NDArray[np.int8]:
    """Alleles of each call that are not the reference; -1 where one is missing, or where there are not ``ploidy`` of them.

    A haploid call among diploid ones counts twice, as in :mod:`teatime.genotype`.
    """
    calls = _whole(calls)
    lowest = calls.min(initial=0)
    if lowest < -2:
        raise ValueError(f"`variable`: {lowest} is no allele")
    if ploidy is None and calls.shape[2] > 2 and lowest < -1:
        raise ValueError(f"`variable`: allele -2 pads a call of lower ploidy than {calls.shape[2]}: `ploidy` says which calls are taken")
    # Reductions over an axis of two elements take NumPy six times as long.
    alleles = np.moveaxis(calls, 2, 0)
    kinds = (alleles > 0, alleles >= 0, alleles == -2)
    dosages, called, absent = (sum((flags.astype(np.int8) for flags in kind), np.zeros(calls.shape[:2], np.int8)) for kind in kinds)
    haploid = (called == 1) & ((ploidy or calls.shape[2]) == 2)
    dosages[haploid] *= 2
    dosages[(called + absent < calls.shape[2]) | ((called != (ploidy or calls.shape[2])) & ~haploid)] = -1
    return dosages
