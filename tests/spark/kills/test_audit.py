"""The auditor itself: what it must find, it finds, in topics that are wrong on purpose."""

import numpy as np

from tests.peers.server_process import ServerProcess
from tests.raw import RawConnection, batch
from tests.spark.kills.audit import audit, compare
from tests.spark.kills.inputs import expand_many, expected_from, make_topics, write_integers
from tests.spark.kills.queries import COPIES, MOST_COPIES

EACH_WRONG = [[0, 2, 4, 6], [0, 2, 2, 4, 6], [0, 4, 2, 6], [0, 2, 4, 6, 99]]


def _write(raw: RawConnection, topic: str, values: list[int]) -> None:
    assert raw.produce(topic, 0, batch([str(value).encode() for value in values])).error_code.value == 0


def test_what_is_missing_twice_foreign_or_out_of_order_is_counted(oncelog_server: ServerProcess, topic: str) -> None:
    address = oncelog_server.bootstrap_servers
    make_topics(address, {f"{topic}-in": 2, **{f"{topic}-{number}": 2 for number in range(len(EACH_WRONG))}})
    write_integers(address, f"{topic}-in", 2, 0, 8)
    expected = expected_from(address, f"{topic}-in")
    with RawConnection(oncelog_server.port) as raw:
        for number, even in enumerate(EACH_WRONG):
            _write(raw, f"{topic}-{number}", [1, 3, *even, 5, 7])
    missing, twice, swapped, foreign = (audit(address, f"{topic}-{number}", expected) for number in range(4))
    assert missing.is_right
    assert (twice.missing, twice.duplicates, twice.foreign, twice.out_of_order) == (0, 1, 0, 0)
    assert (swapped.missing, swapped.duplicates, swapped.foreign, swapped.out_of_order) == (0, 0, 0, 1)
    assert (foreign.missing, foreign.duplicates, foreign.foreign, foreign.out_of_order) == (0, 0, 1, 0)
    with RawConnection(oncelog_server.port) as raw:
        _write(raw, f"{topic}-in", [1000])
    late = audit(address, f"{topic}-0", expected_from(address, f"{topic}-in"))
    assert (late.missing, late.first) == (1, ("missing: 1000",))


def test_a_replay_that_comes_late_is_a_duplicate_and_out_of_order(oncelog_server: ServerProcess, topic: str) -> None:
    make_topics(oncelog_server.bootstrap_servers, {topic: 1})
    write_integers(oncelog_server.bootstrap_servers, topic, 1, 0, 100)
    expected = expected_from(oncelog_server.bootstrap_servers, topic)
    found = compare([np.concatenate([np.arange(60), np.arange(40, 100)])], expected)
    assert (found.rows, found.missing, found.duplicates, found.out_of_order) == (120, 0, 20, 1)


def test_none_one_or_many_rows_come_of_an_integer() -> None:
    values, sources = expand_many(np.arange(1000))
    assert [int(count) for count in np.bincount(sources, minlength=1000)[:5]] == list(COPIES)
    assert values[:4].tolist() == [0, 2 * MOST_COPIES, 2 * MOST_COPIES + 1, 2 * MOST_COPIES + 2]
    assert len(np.unique(values)) == len(values) == 1000
