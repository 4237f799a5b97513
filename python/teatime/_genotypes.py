"""Genotypes as the compiled part takes them: of arrays and of stores, and the samples and variants that lists leave."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any, Union, cast

import numpy as np
from numpy.typing import NDArray

from ._arrays import as_array, c_order, folder, host_array, text_options
from ._teatime import Genotypes

#: An array of genotypes, the path of a store, or the result of :func:`open_store`.
Source = Union[str, "os.PathLike[str]", NDArray[Any], Genotypes]

#: A list: the path of a file, or ids.
Listed = Union[str, "os.PathLike[str]", Iterable[str]]


def open_store(
    path: str | os.PathLike[str], array: str | None = None, *, fill: bool = False, storage_options: dict[str, Any] | None = None,
    bim: str | os.PathLike[str] | None = None, fam: str | os.PathLike[str] | None = None, contigs: str | Iterable[str] | None = None,
    n_autosomes: int | None = None, keep: Listed | None = None, remove: Listed | None = None, extract: Listed | None = None,
    exclude: Listed | None = None,
) -> Genotypes:
    """The genotypes of a Zarr store or of a PLINK .bed, of which no genotype is read yet.

    Parameters
    ----------
    path
        The folder or zip archive; or the .bed, beside which are its .bim and .fam; or the URL of a Zarr store: ``s3://``, ``gs://``,
        ``az://``, ``abfss://``, ``https://`` ...
    array
        The array of a Zarr store, where it is not the one that is found.
    fill
        True if a missing chunk has the array's fill value. Else it is an error, since it is more often damage.
    storage_options
        Options for a URL, of the Rust crate object_store, as ``{"region": "eu-west-1", "skip_signature": True}``. Without them, as in all
        functions that take a path, the environment says how to connect (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``).
    bim, fam
        The tables of a .bed, where they are not beside it.
    contigs
        The contigs whose variants are taken: a sequence of names, or text such as ``"1-22,X"``, as the command line's ``--chr`` reads it;
        ``"autosomes"`` is its ``--autosome``. Chunks of other contigs are not read. A warning names listed contigs that no variant is on.
    n_autosomes
        The number of autosomes, as in PLINK's ``--chr-set``; the four numbers after theirs are X, Y, XY and MT. None: 22, of humans,
        unless contigs of other numbers show that the store is not of humans.
    keep, remove
        Samples that are taken, and those of these that are left out: a sequence of their ids, as ``names`` has them, or the path of a file
        as the command line's ``--keep`` reads it, which tells families apart. Results are in the store's order.
    extract, exclude
        Variants that are taken, and those of these that are left out: a sequence of their ids or of places such as ``"1:1000"``, or the
        path of a file as the command line's ``--extract`` reads it: ``FILE.bed`` and ``bed0:FILE`` are regions. A warning counts the ids
        that no sample or variant has.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from teatime import genotype
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "cohort.bed"
    >>> _ = path.write_bytes(bytes([0x6C, 0x1B, 1, 0b111000, 0b110001]))
    >>> _ = path.with_suffix(".bim").write_text("1 v1 0 100 C A\\n1 v2 0 200 T G\\n")
    >>> _ = path.with_suffix(".fam").write_text("f a 0 0 0 -9\\nf b 0 0 0 -9\\nf c 0 0 0 -9\\n")
    >>> opened = genotype.open_store(path, keep=["c", "a"], exclude=["v2"])
    >>> opened.names, opened.variants
    (['a', 'c'], 1)
    """
    opened = Genotypes.of_store(folder(path), array, fill, text_options(storage_options), (bim, fam))
    if contigs is not None:
        listed = contigs if isinstance(contigs, str) else ",".join(_texts("contigs", "names", contigs))
        opened, absent = opened.on_contigs(None if contigs == "autosomes" else listed, n_autosomes)
        if absent:
            warnings.warn(f"teatime: no variant is on {', '.join(absent)}", stacklevel=2)
    elif n_autosomes is not None:
        raise ValueError("`n_autosomes` says which numbers are autosomes among `contigs`, of which none are given")
    return cast(Genotypes, chosen(opened, keep=keep, remove=remove, extract=extract, exclude=exclude))


def _texts(name: str, what: str, given: Any, other: str = "") -> list[str]:
    """The texts of a sequence, the argument ``name``, which may also be of an ``other`` kind."""
    texts = [*given] if isinstance(given, Iterable) else [given]
    for one in texts:
        if not isinstance(one, str):
            raise TypeError(f"`{name}` has {one!r}, and {what} are text: it is {other}a sequence of {what}")
    return texts


def chosen(source: Source, **lists: Listed | None) -> Source:
    """The samples and variants of ``source`` that lists leave; itself without a list."""
    if all(ids is None for ids in lists.values()):
        return source
    if isinstance(source, (str, os.PathLike)):
        source = open_store(source)
    if not isinstance(source, Genotypes):
        raise TypeError("`keep`, `remove`, `extract` and `exclude` are for stores: an array has no names of samples and variants")
    given: dict[str, Any] = dict(lists)
    for name, ids in lists.items():
        if ids is not None and not isinstance(ids, (str, os.PathLike)):
            given[name] = _texts(name, "ids", ids, "the path of a file, or ")
    opened, told = source.choose(given)
    for name, entries, absent in told:
        warnings.warn(f"teatime: {absent} of {entries} ids of `{name}` are of no sample or variant", stacklevel=3)
    return opened


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
    """The stores that ``source`` names, as the compiled part takes them."""
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
