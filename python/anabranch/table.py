"""Tables of results, for whatever reads data frames."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _engine
from .errors import MissingError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

#: Rows that a notebook shows.
SHOWN = 20


class Table:
    """A table of results with the columns of ``docs/results.md``.

    It speaks the Arrow PyCapsule interface: ``polars.DataFrame(table)``, ``pyarrow.table(table)``
    and ``duckdb.sql("from table")`` take it as it is. Without any of them, ``table["goodput_bps"]``
    is a list and iterating gives a dict for each row. Names of columns end in their unit: ``_s``
    seconds, ``_bytes``, ``_bps`` bits per second. None stands for what was not measured.
    """

    def __init__(self, inner: _engine.Table) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """What it is called: "runs", "paths" and so on."""
        return self._inner.name

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return self._inner.columns

    def about(self) -> dict[str, str]:
        """What each column means."""
        return dict(self._inner.about)

    def __len__(self) -> int:
        return len(self._inner)

    def __getitem__(self, column: str) -> list[Any]:
        return self._inner.column(column)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self.columns
        for row in zip(*(self._inner.column(name) for name in names), strict=True):
            yield dict(zip(names, row, strict=True))

    def __arrow_c_schema__(self) -> object:
        return self._inner.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._inner.__arrow_c_stream__(requested_schema)

    def to_polars(self) -> polars.DataFrame:
        """The table as a frame of polars."""
        try:
            import polars
        except ImportError as error:
            raise _missing("polars") from error
        return polars.DataFrame(self)

    def to_arrow(self) -> pyarrow.Table:
        """The table as one of pyarrow."""
        try:
            import pyarrow
        except ImportError as error:
            raise _missing("pyarrow") from error
        return pyarrow.table(self)

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a frame of pandas."""
        try:
            import pandas
        except ImportError as error:
            raise _missing("pandas") from error
        return pandas.DataFrame({name: self[name] for name in self.columns})

    def __repr__(self) -> str:
        return f"<Table {self.name}: {len(self)} rows, {len(self.columns)} columns>"

    def _repr_html_(self) -> str:
        names = self.columns
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        rows = []
        for at, row in enumerate(self):
            if at == SHOWN:
                rows.append(f"<tr><td colspan={len(names)}>… {len(self)} rows in all</td></tr>")
                break
            cells = "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in names)
            rows.append(f"<tr>{cells}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _missing(package: str) -> MissingError:
    return MissingError(f"this needs the package {package}: pip install {package}")
