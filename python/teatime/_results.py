"""Results of genotypes with the names of their samples: datasets of xarray's, tables of pandas', plots, and tables of notebooks."""

from __future__ import annotations

import html
import importlib
from typing import Any, ClassVar

import numpy as np

#: The rows and columns that a notebook shows, and the samples whose names a plot shows.
_SHOWN, _NAMED = 10, 40


def _needed(module: str, method: str) -> Any:
    """A module that nothing else here needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{method} needs {module.split('.')[0]}, which is not installed") from error


class Result:
    """The part that all results share. A subclass is a dataclass, and says which axes its arrays have."""

    #: Arrays by the names of their axes. The first array is the table.
    _axes: ClassVar[dict[str, tuple[str, ...]]]

    def _table(self) -> Any:
        return getattr(self, next(iter(self._axes)))

    def _labels(self) -> dict[str, list[str] | None]:
        """The labels of each axis, if it has some."""
        names, others = (getattr(self, name, None) for name in ("names", "other_names"))
        components = [f"PC{number + 1}" for number in range(self._table().shape[1])]
        return {"samples": names, "samples_0": names, "samples_1": names, "others": others, "components": components}

    def to_xarray(self) -> Any:
        """The arrays as an ``xarray.Dataset``, whose coordinates are the names of the samples; counts and numbers are attributes.

        Arrays of dask's stay lazy.
        """
        arrays = {name: (axes, getattr(self, name)) for name, axes in self._axes.items() if getattr(self, name) is not None}
        used = {axis for axes, _ in arrays.values() for axis in axes}
        coordinates = {axis: labels for axis, labels in self._labels().items() if axis in used and labels is not None}
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, (str, int, float))}
        counts = getattr(self, "counts", None)
        if isinstance(counts, dict):
            numbers.update({f"variants_{name}": count for name, count in counts.items()})
        # netCDF has no booleans in attributes.
        attributes = {name: int(value) if isinstance(value, bool) else value for name, value in numbers.items()}
        return _needed("xarray", "to_xarray").Dataset(arrays, coordinates, attributes)

    def to_pandas(self) -> Any:
        """The scores or the matrix as a ``pandas.DataFrame``, with the names of the samples. Arrays of dask's are computed."""
        index, columns = (self._labels()[axis] for axis in next(iter(self._axes.values())))
        return _needed("pandas", "to_pandas").DataFrame(np.asarray(self._table()), index, columns)

    def _repr_html_(self) -> str:
        """A notebook's view: the first rows and columns."""
        table, axes = self._table(), next(iter(self._axes.values()))
        sizes = " × ".join(f"{extent:,} {axis.rstrip('_01')}" for extent, axis in zip(table.shape, axes))
        caption = f"<b>{type(self).__name__}</b>: {sizes}"
        if not isinstance(table, np.ndarray):
            return f"<p>{caption}, not computed yet</p>"
        counts = getattr(self, "counts", None) or {}
        if counts:
            caption += "; variants: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if count)
        labels = [self._labels()[axis] or range(extent) for axis, extent in zip(axes, table.shape)]
        rows, columns = ([html.escape(str(label)) for label in labels[axis][:_SHOWN]] for axis in (0, 1))
        more = "<td>…</td>" * (table.shape[1] > _SHOWN)
        lines = ["<th></th>" + "".join(f"<th>{column}</th>" for column in columns) + more]
        for row, values in zip(rows, table):
            lines.append(f"<th>{row}</th>" + "".join(f"<td>{value:.5g}</td>" for value in values[:_SHOWN]) + more)
        if table.shape[0] > _SHOWN:
            lines.append("<th>…</th>")
        return f"<table><caption>{caption}</caption>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


class Scores(Result):
    """Samples along components."""

    def plot(self, x: int = 1, y: int = 2, *, ax: Any = None, **options: Any) -> Any:
        """Draws the samples along two components, which are counted from 1, with matplotlib; below those that were projected, the
        reference's in grey. Returns the axes.

        Parameters
        ----------
        x, y
            The components. ValueError for one that there is not.
        ax
            The axes of matplotlib's to draw into. None: new ones.
        options
            As of ``Axes.scatter``: ``c`` for colours, ``s`` for sizes, ``label``.
        """
        reference = getattr(self, "reference", self)
        scores, shares = np.asarray(self._table()), np.asarray(reference.explained_variance_ratio)
        for name, component in (("x", x), ("y", y)):
            if not 1 <= component <= scores.shape[1]:
                raise ValueError(f"`{name}` of {component}: there are the components 1 to {scores.shape[1]}")
        ax = ax or _needed("matplotlib.pyplot", "plot").subplots()[1]
        if reference is not self:
            ax.scatter(reference.scores[:, x - 1], reference.scores[:, y - 1], color="0.8", s=8, zorder=0)
        ax.scatter(scores[:, x - 1], scores[:, y - 1], **{"s": 14, **options})
        ax.set(xlabel=f"PC{x} ({shares[x - 1]:.1%})", ylabel=f"PC{y} ({shares[y - 1]:.1%})")
        return ax


class Pairs(Result):
    """A number for each pair of samples."""

    def plot(self, *, ax: Any = None, **options: Any) -> Any:
        """Draws the matrix as a heat map with matplotlib, with the names of up to 40 samples. Returns the axes.

        Parameters
        ----------
        ax
            The axes of matplotlib's to draw into. None: new ones.
        options
            As of ``Axes.imshow``: ``cmap``, ``vmin``, ``vmax``.
        """
        ax = ax or _needed("matplotlib.pyplot", "plot").subplots()[1]
        ax.figure.colorbar(ax.imshow(np.asarray(self._table()), **options), ax=ax)
        rows, columns = (self._labels()[axis] for axis in next(iter(self._axes.values())))
        if columns is not None and len(columns) <= _NAMED:
            ax.set_xticks(range(len(columns)), columns, rotation=90)
        if rows is not None and len(rows) <= _NAMED:
            ax.set_yticks(range(len(rows)), rows)
        return ax
