"""Singular vectors in parts, for any engine that calls functions elsewhere and adds up arrays: Ray, Cubed, MPI.

Of a matrix A in blocks of rows, ``Aᵀ (A x)`` is the sum of those of the blocks. :class:`Rounds` says which ``x`` is needed next, until it
has found the components; :func:`normal_product`, of a block of a matrix, and :class:`Variants`, of some variants of genotypes, make the
parts. Sums in one order give the same bits for any number of workers. With dask, :mod:`teatime.dask` does all this.

>>> import numpy as np
>>> from teatime import blocks
>>> a = np.arange(12.0).reshape(4, 3)
>>> rounds = blocks.Rounds(a.shape, 1)
>>> while (x := rounds.wanted()) is not None:
...     rounds.add(sum(blocks.normal_product(block, x) for block in (a[:2], a[2:])))
>>> bool(np.isclose(rounds.singular_values[0], np.linalg.norm(a, 2)))
True
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _worker
from ._arrays import host_array, whole
from ._cuda import given_array
from ._linalg import svd_options
from .genotype import open_store, pca_options

__all__ = ["Rounds", "Variants", "normal_product"]

_Array = NDArray[np.float64]


class Rounds:
    """The randomized iteration for the largest singular values of a matrix, of which others make the products.

    It can be pickled after any round, to go on later, or elsewhere: the pickle holds the products alone. In memory it also holds the basis
    of the iteration, until the components are found. Singular values below about 1e-3 of the largest are found as 0: they are those of
    squares, which products in float32 cannot tell from 0.

    Parameters
    ----------
    shape
        Of the matrix: (m, n), or (variants, samples).
    n_components
        How many.
    n_iter, n_oversamples, tol, random_state, signs
        As in :func:`teatime.truncated_svd`.
    """

    def __init__(
        self, shape: tuple[int, int], n_components: int, *, n_iter: int | None = None, n_oversamples: int | None = None, tol: float = 1e-4,
        random_state: int = 0, signs: str = "stable",
    ) -> None:
        if not 0 < whole(n_components, "n_components") <= min(shape):
            raise ValueError(f"`n_components` of {n_components}: it is at least 1, and at most {min(shape)}")
        self._shape = int(shape[0]), int(shape[1])
        self._options = svd_options(n_iter=n_iter, n_oversamples=n_oversamples, tol=tol, random_state=random_state, signs=signs)
        self._iteration = _worker.Iteration(self._shape, n_components, self._options)
        self._made: list[_worker.Product] = []
        self._svd: dict[str, Any] | None = None

    def wanted(self) -> _Array | None:
        """What is to be multiplied next, (n, columns); None where the components are found."""
        return _worker.next_vectors(self._iteration, self._made)  # type: ignore[no-any-return]

    def add(self, product: ArrayLike) -> None:
        """Takes ``Aᵀ (A x)`` of what was wanted, (n, columns)."""
        values = _float64(product, "product")
        if values.ndim != 2 or values.shape[0] != self._shape[1]:
            raise ValueError(f"`product` is ({self._shape[1]}, columns), not {values.shape}")
        self._made.append(_worker.Product(values, 0))
        self._svd = None

    def _result(self) -> dict[str, Any]:
        if self._svd is None:
            if self.wanted() is not None:
                raise RuntimeError("the components are not found yet: another product is wanted")
            self._svd = _worker.components(self._iteration, list(self._made), self._options)
        return self._svd

    @property
    def singular_values(self) -> _Array:
        """(n_components,), descending."""
        return self._result()["s"]  # type: ignore[no-any-return]

    @property
    def vectors(self) -> _Array:
        """Right singular vectors (n, n_components)."""
        return self._result()["v"]  # type: ignore[no-any-return]

    @property
    def scores(self) -> _Array:
        """Right singular vectors times singular values (n, n_components): of genotypes, scikit-allel's coordinates of samples."""
        return self.vectors * self.singular_values


def normal_product(block: ArrayLike, x: ArrayLike, device: str | None = None) -> _Array:
    """``Aᵀ (A x)`` of rows A of a matrix: a part of what :meth:`Rounds.wanted` wants.

    Parameters
    ----------
    block : (rows, n)
        Float64 and integers of 32 and 64 bits are computed in float64 where the CPU computes, else in float32. Where the largest is above
        2**500, or below 2**-500, the products would leave float64: ValueError. In a GPU's memory,
        those of float32 are read there, and their numbers not scaled; others are copied to the host.
    x : (n, columns)
    device
        The name of a device; None for the fastest.
    """
    return _worker.product_of_block(given_array(block, "block", "svd_compressed"), _float64(x, "x"), device)


def _float64(x: ArrayLike, name: str) -> _Array:
    return host_array(x, name, "svd_compressed").astype(np.float64, copy=False)


class Variants:
    """Some variants of genotypes, standardised, two bits each on a device, for many products. Pickled, it is read again where it arrives.

    Parameters
    ----------
    source
        The path of a store, which the worker has to see, or an array as of :func:`teatime.genotype.pca`.
    rows
        Which variants of a store, counted within its chosen contigs; :meth:`ranges` gives them. Of an array, all.
    scaler, ploidy, min_maf, max_missing
        As in :func:`teatime.genotype.pca`.
    fill, storage_options, contigs, n_autosomes
        As in :func:`teatime.genotype.open_store`. A call with contigs opens the store, wherever it is made.
    device
        The name of a device; None for the fastest.
    """

    def __init__(
        self, source: Any, rows: tuple[int, int] | None = None, *, scaler: str | None = "patterson", ploidy: int | None = None,
        min_maf: float = 0.0, max_missing: float = 1.0, fill: bool = False, storage_options: dict[str, Any] | None = None,
        contigs: str | Iterable[str] | None = None, n_autosomes: int | None = None, device: str | None = None,
    ) -> None:
        options = pca_options(1, scaler=scaler, method="exact", min_maf=min_maf, max_missing=max_missing)
        if isinstance(source, (str, os.PathLike)):
            path = os.fspath(source)
            chosen = None
            # Otherwise the store is opened where the variants are read.
            if rows is None or contigs is not None or n_autosomes is not None:
                opened = open_store(path, contigs=contigs, n_autosomes=n_autosomes, storage_options=storage_options)
                rows, chosen = rows or (0, opened.variants), None if contigs is None else opened.selected
            source = (path, None, fill, storage_options, chosen)
        elif fill or any(given is not None for given in (storage_options, contigs, n_autosomes)):
            raise TypeError("`fill`, `storage_options`, `contigs` and `n_autosomes` are for the path of a store")
        else:
            source = host_array(source, "source", "pca")
        self._band = _worker.Band(source, rows, ploidy, options, device)

    @staticmethod
    def ranges(
        path: str | os.PathLike[str], parts: int, storage_options: dict[str, Any] | None = None, *, contigs: str | Iterable[str] | None = None,
        n_autosomes: int | None = None,
    ) -> tuple[tuple[int, int], list[tuple[int, int]]]:
        """The shape (variants, samples) of a store or of some of its contigs, and ranges of these variants, about ``parts`` of them."""
        opened = open_store(path, contigs=contigs, n_autosomes=n_autosomes, storage_options=storage_options)
        return (opened.variants, opened.samples), opened.part_ranges(parts)

    def normal_product(self, x: ArrayLike) -> _Array:
        """``Aᵀ (A x)`` (samples, columns): a part of what :meth:`Rounds.wanted` wants."""
        return self._band.product(_float64(x, "x")).values
