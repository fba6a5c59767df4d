"""Whole fetch responses to columns and back, without a Python object for each record (extra `[columns]`).

`decode` takes the bytes that a fetch brought of one partition: batch after batch, the last one perhaps cut off.
`encode` takes columns and gives batches. `arrow.py` makes Arrow data of columns, and columns of Arrow data, uncopied.
"""

from oncelog.records.column_types import ALL, Batches, BytesColumn, Columns, HeadersColumn
from oncelog.records.decode_columns import decode
from oncelog.records.encode_columns import EncodedBatch, encode

__all__ = ["ALL", "Batches", "BytesColumn", "Columns", "EncodedBatch", "HeadersColumn", "decode", "encode"]
