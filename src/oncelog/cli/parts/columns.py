"""Many records at once, as Arrow's columns (extra `[columns]`): what a loop over them in Python takes a second for.

To load what is needed takes about a second too, so it is for inputs and topics that have shown to be long.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oncelog.cli.parts.records import Form

ColumnRenderer = Callable[[Any], Any]  # a RecordBatch to bytes


def are_there() -> bool:
    """Whether the extra is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("numba", "numpy", "pyarrow"))


def renderer(form: "Form") -> ColumnRenderer | None:
    """None where the form is no matter of columns: lengths as bytes, headers, nothing of the record at all."""
    letters = [part for part in form.parts if isinstance(part, str)]
    if not set(letters) <= _OF_COLUMNS.keys() or not set(letters) & _VARYING:
        return None
    import pyarrow as pa
    from pyarrow import compute

    def render(batch: Any) -> Any:
        cells = [
            _OF_COLUMNS[part](pa, compute, batch) if isinstance(part, str) else pa.scalar(part, pa.binary())
            for part in form.parts
        ]
        nothing = pa.scalar(b"", pa.binary())  # what stands between the parts
        null = form.null.decode("utf-8", "surrogateescape")
        joined = compute.binary_join_element_wise(*cells, nothing, null_handling="replace", null_replacement=null)
        # One behind the other they lie in the column already.
        _, ends, data = joined.buffers()
        end = memoryview(ends).cast("i")[joined.offset + len(joined)]
        return memoryview(data)[:end] if data is not None else b""

    return render


def _number(pa: Any, column: Any) -> Any:
    return column.cast(pa.string()).cast(pa.binary())


def _length(pa: Any, compute: Any, column: Any) -> Any:
    return _number(pa, compute.fill_null(compute.binary_length(column), -1))


# By kcat's letters.
_OF_COLUMNS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "t": lambda pa, compute, batch: pa.scalar(batch["topic"][0].as_py().encode(), pa.binary()),
    "p": lambda pa, compute, batch: pa.scalar(b"%d" % batch["partition"][0].as_py(), pa.binary()),
    "o": lambda pa, compute, batch: _number(pa, batch["offset"]),
    "T": lambda pa, compute, batch: _number(pa, batch["timestamp"].cast(pa.int64())),
    "k": lambda pa, compute, batch: batch["key"],
    "s": lambda pa, compute, batch: batch["value"],
    "K": lambda pa, compute, batch: _length(pa, compute, batch["key"]),
    "S": lambda pa, compute, batch: _length(pa, compute, batch["value"]),
}
_VARYING = frozenset("oTksKS")


def table_of(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, partition: int | None) -> Any:
    """A RecordBatch that `Producer.send` takes."""
    import pyarrow as pa

    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    if partition is not None:
        columns["partition"] = pa.repeat(pa.scalar(partition, pa.int32()), len(values))
    return pa.RecordBatch.from_pydict(columns)
