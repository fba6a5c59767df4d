"""Files of a flow: every record in one of them, whatever crashes; late ones in files of their own."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from oncelog.flow import Dead, Flow, Stopped, Topic, json_of, one_of, raw, text
from oncelog.flow.filing import Shape
from oncelog.flow.messages import Records
from oncelog.flow.part_running import PartWork
from oncelog.records.build import build_batch
from oncelog.records.columns import decode

HOUR_MS = 3_600_000
BEGIN_MS = 495_000 * HOUR_MS  # 2026-06-21T00


@dataclass(frozen=True)
class Order:
    customer: str
    amount: int


@dataclass(frozen=True)
class Bill:
    of: float | None
    at: datetime
    orders: list[Order]


orders = Topic("orders", text, json_of(Order), partitions=2)


def rows_of(files: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [row for rows in files.values() for row in rows]


def sent(topic: Topic[str, Order], times: Iterable[int]) -> list[Any]:
    return [topic.sent(f"o{number}", Order(f"c{number}", number), at_ms) for number, at_ms in enumerate(times)]


@pytest.mark.parametrize("every_ms", [0, 50])
def test_each_record_is_in_one_file_of_its_hour_whatever_crashes(every_ms: int) -> None:
    flow = Flow("f", version="1")
    flow.read(orders, wait_ms=2 * HOUR_MS).files("/place", every_ms=every_ms, most_records=7)
    times = [BEGIN_MS + number * HOUR_MS // 8 for number in range(16)]
    simulated = flow.simulate(sent(orders, times), crashes=True)
    files = simulated.files["/place"]
    assert simulated.crashes > 20
    assert sorted(row["amount"] for row in rows_of(files)) == list(range(16))
    for name, rows in files.items():
        folder, _, file = name.partition("/")
        stage, cell, first, end = file.removesuffix(".parquet").rsplit("-", 3)
        assert stage == "orders-files"
        for row in rows:
            assert folder == f"hour={row['kafka_timestamp']:%Y-%m-%dT%H}"
            assert row["kafka_partition"] == int(cell)
            assert int(first) <= row["kafka_offset"] < int(end) <= int(first) + 7


def test_sleeping_and_overlapping_holders_write_the_same_files() -> None:
    flow = Flow("f", version="1")
    read = flow.read(Topic("one", text, json_of(Order)), wait_ms=HOUR_MS)
    read.filter(lambda order: order.amount != 3).files("/place", every_ms=5, most_records=4)
    times = [BEGIN_MS + number * HOUR_MS // 3 for number in range(10)]
    one = Topic("one", text, json_of(Order))
    files = flow.simulate(sent(one, times), crashes="everywhere", seeds=range(4)).files["/place"]
    assert sorted(row["amount"] for row in rows_of(files)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_what_came_within_the_time_is_one_file() -> None:
    flow = Flow("f", version="1")
    one = Topic("one", text, json_of(Order))
    flow.read(one).files("/place")
    files = flow.simulate(sent(one, [BEGIN_MS] * 20), crashes=True).files["/place"]
    assert {name: len(rows) for name, rows in files.items()} == {"hour=2026-06-21T00/one-files-0-0-20.parquet": 20}


def test_late_records_get_files_of_their_own() -> None:
    flow = Flow("f", version="1")
    one = Topic("one", text, json_of(Order))
    flow.read(one, wait_ms=HOUR_MS).files("/place", every_ms=0, most_records=1, name="late")
    times = [BEGIN_MS, BEGIN_MS + 2 * HOUR_MS - 1, BEGIN_MS, BEGIN_MS + 2 * HOUR_MS, BEGIN_MS]
    files = flow.simulate(sent(one, times), crashes=True).files["/place"]
    assert sorted(files) == [
        "hour=2026-06-21T00/late-0-0-1.parquet",
        "hour=2026-06-21T00/late-0-2-3.parquet",
        "hour=2026-06-21T00/late-0-4-5-late.parquet",
        "hour=2026-06-21T01/late-0-1-2.parquet",
        "hour=2026-06-21T02/late-0-3-4.parquet",
    ]


def test_late_records_are_counted() -> None:
    flow = Flow("f", version="1")
    one = Topic("one", text, raw)
    flow.read(one).files("/place")
    work = PartWork(flow.program.parts[0], 0)
    work.begin({}, [BEGIN_MS + HOUR_MS])
    times = [BEGIN_MS, BEGIN_MS + HOUR_MS, BEGIN_MS + 1, BEGIN_MS + 2 * HOUR_MS]
    stepped = work.run(0, Records(range(4), [b"k"] * 4, [b"v"] * 4, times), 10)
    assert [(each.folder, each.is_late, len(each.rows)) for each in stepped.files] == [
        ("hour=2026-06-21T00", True, 2),
        ("hour=2026-06-21T01", False, 1),
        ("hour=2026-06-21T02", False, 1),
    ]
    assert work.late == 2


def test_columns_are_the_fields_of_the_values() -> None:
    shape = Shape(Bill, "text")
    bill = Bill(1.5, datetime(2026, 6, 21, tzinfo=UTC), [Order("anna", 5)])
    rows = shape.batch(3, [b"k", None], [bill, Bill(None, bill.at, [])], [7, 8], [BEGIN_MS, BEGIN_MS + 1])
    assert rows.to_pylist()[0] == {
        "of": 1.5,
        "at": bill.at,
        "orders": [{"customer": "anna", "amount": 5}],
        "kafka_key": "k",
        "kafka_partition": 3,
        "kafka_offset": 7,
        "kafka_timestamp": bill.at,
    }
    assert rows.column("of").to_pylist() == [1.5, None]


def test_records_as_they_come_have_the_columns_that_spark_gives_them() -> None:
    flow = Flow("f", version="1")
    plain = Topic("plain", raw, raw)
    flow.read(plain).files("/place")
    work = PartWork(flow.program.parts[0], 2)
    work.begin({}, [-1])
    (found,) = work.run(0, Records([4, 5], [b"k", None], [None, b"v"], [BEGIN_MS] * 2), 10).files
    times = [datetime(2026, 6, 21, tzinfo=UTC)] * 2
    expected = {"value": [None, b"v"], "key": [b"k", None], "partition": [2, 2], "offset": [4, 5], "timestamp": times}
    assert found.rows.to_pydict() == expected


def test_columns_give_the_same_rows_as_lists() -> None:
    flow = Flow("f", version="1")
    flow.read(Topic("plain", raw, raw)).files("/place")
    cells = [(b"k", b"first"), (None, b"second"), (b"k", None), (b"", b"hour after")]
    times = [BEGIN_MS, BEGIN_MS + 1, BEGIN_MS, BEGIN_MS + HOUR_MS]
    columns = decode(build_batch([(*each, (), at_ms) for each, at_ms in zip(cells, times, strict=True)]))
    found = []
    assert columns.offset is not None and columns.timestamp_ms is not None
    assert columns.key is not None and columns.value is not None
    keys, values = zip(*cells[1:], strict=True)
    for records in (
        Records(range(1, 4), keys, values, times[1:]),
        Records(columns.offset[1:].data, columns.key[1:], columns.value[1:], columns.timestamp_ms[1:].data),
    ):
        work = PartWork(flow.program.parts[0], 2)
        work.begin({}, [-1])
        found.append([(each.folder, each.rows.to_pydict()) for each in work.run(0, records, 10).files])
    assert found[0] == found[1] and len(found[0]) == 2


def first_amount(order: Order) -> int:
    return order.amount


def test_what_has_no_columns_is_refused_where_it_is_written_down() -> None:
    @dataclass(frozen=True)
    class Named:
        hour: int

    @dataclass(frozen=True)
    class Wide:
        by_name: dict[str, int]

    flow = Flow("f", version="1")
    read = flow.read(orders)
    with pytest.raises(ValueError, match="flow f: files of orders: of which type are the values"):
        read.map(first_amount).files("/place")
    read.map(first_amount).files("/place", rows=int, name="amounts")
    with pytest.raises(ValueError, match="/place has those of another part already"):
        read.files("/place")
    with pytest.raises(ValueError, match="Put `through` a topic between"):
        read.step("owed", int, lambda owed, order, at: (owed, [order])).files("/other", rows=Order)
    with pytest.raises(ValueError, match="the field hour has the name of a column"):
        flow.read(Topic("named", text, json_of(Named))).files("/named")
    with pytest.raises(ValueError, match="by_name is of a type that has no column"):
        flow.read(Topic("wide", text, json_of(Wide))).files("/wide")
    either = flow.read(Topic("either", text, one_of(Order, Named)))
    either.only(Order).files("/either")
    with pytest.raises(ValueError, match="of which type"):
        either.files("/both")
    with pytest.raises(ValueError, match="most_records: expected a whole number from 1 to"):
        read.files("/none", most_records=0)


def twice(order: Order) -> Iterable[Order]:
    yield order
    if order.amount == 2:
        raise OSError("half-way")
    yield order


def test_a_record_that_goes_to_dead_letters_leaves_no_row() -> None:
    one, dead = Topic("one", text, json_of(Order)), Dead("dead")
    flow = Flow("f", version="1")
    flow.read(one, otherwise=dead).flat_map(twice).files("/place", rows=Order, every_ms=0)
    simulated = flow.simulate(sent(one, [BEGIN_MS] * 4), crashes=True)
    assert [row["amount"] for row in rows_of(simulated.files["/place"])] == [0, 0, 1, 1, 3, 3]


def test_a_value_that_fits_no_column_stops_the_cell() -> None:
    one = Topic("one", text, json_of(int))
    flow = Flow("f", version="1")
    flow.read(one).files("/place", every_ms=0)
    with pytest.raises(Stopped, match="the records at offsets 0 to 0 do not fit the columns of the files"):
        flow.simulate([one.sent("k", 1 << 63, BEGIN_MS)])
