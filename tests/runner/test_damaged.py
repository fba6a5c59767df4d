"""Inputs of which a broker finds that they are not what was written."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.client import KafkaError
from oncelog.embedded import Server
from oncelog.flow import FlowFailed
from oncelog.flow.description import Stage
from oncelog.runner.damaged import Trouble
from tests.cli.running import Oncelog
from tests.runner.flows import Billing

CORRUPT = KafkaError(KafkaError.INVALID_MSG)
FIRST, LAST = range(8), range(8, 40)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.runner.damaged.DAMAGED_S", 0.0)


def test_an_input_that_is_damaged_stops_its_cell_and_no_other_until_it_is_restored(topic: str, tmp_path: Path) -> None:
    with Server(data_dir=str(tmp_path)) as server:
        billing = Billing(topic, server.bootstrap_servers)
        billing.make_topics()
        billing.send(FIRST)
        billing.send(LAST)
    (log,) = (tmp_path / f"{topic}-orders-0").glob("*.log")
    written = log.read_bytes()
    first_bytes = 12 + int.from_bytes(written[8:12], "big")
    log.write_bytes(written[: first_bytes + 80] + bytes([written[first_bytes + 80] ^ 1]) + written[first_bytes + 81 :])
    of_first = [number for number in FIRST if billing.orders.partition_of(f"o{number}".encode()) == 0]
    with Server(data_dir=str(tmp_path)) as server:
        billing = Billing(topic, server.bootstrap_servers)
        with pytest.raises(FlowFailed) as failed:
            billing.flow().run(billing.properties, until="end")
        oncelog = Oncelog(billing.servers)
        said = str(failed.value)
        who = (
            "( is damaged at offset {0}, as its broker says|: the batch at offset {0} cannot be read)"  # found it first
        )
        where = f"{topic}, stage orders, cell 0: {topic}-orders-0{who.format(len(of_first))}"
        assert re.match(where, said) and "Restore the file from a backup and start the flow again" in said, said
        assert f"`oncelog flow reset --to-latest -b {billing.servers} {topic}` begins anew" in said
        cells = oncelog("flow describe", topic, "-J").json["stages"][0]["cells"]
        assert [each["inputs"][0]["lag"] > 0 for each in cells] == [True, False]
        assert cells[0]["inputs"][0]["next_offset"] == len(of_first), "what was before is committed"
        assert all(each["holder"]["has_left"] for each in cells)
    log.write_bytes(written)
    for state in tmp_path.glob("scrub.state"):
        state.unlink()
    with Server(data_dir=str(tmp_path)) as server:
        billing = Billing(topic, server.bootstrap_servers)
        billing.flow().run(billing.properties, until="end")
        billing.check(40)


@pytest.mark.parametrize(
    ("error", "told", "how"),
    [
        (CORRUPT, KafkaError.INVALID_MSG, "leaves: t-3 is damaged at offset 7, as its broker says (CORRUPT_MESSAGE)"),
        (CORRUPT, 0, ""),
        (CORRUPT, None, ""),
        (KafkaError(KafkaError._BAD_MSG, "t-3: the batch"), None, "leaves: t-3: the batch. Restore the file from a"),
        (KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), 0, ""),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed"), 0, "fails: t: "),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "not allowed"), None, ""),
    ],
    ids=["stays", "has-passed", "is-read-no-more", "found-here", "unknown", "denied", "denied-to-nobody"],
)
def test_what_passes_by_itself_stops_no_cell(error: KafkaError, told: int | None, how: str) -> None:
    said: list[str] = []

    def says(*words: str) -> Callable[..., None]:
        return lambda *about: said.append(": ".join([*words, *about]))

    stage = cast(Stage, SimpleNamespace(title="f, stage s, cell 3"))
    reading: Any = None if told is None else SimpleNamespace(told=told, partition=("t", 3), fetches_from=7)

    async def meet() -> None:
        Trouble(stage, "`reset`", says("fails"), says("leaves")).met(lambda: reading, error)
        waited = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.0, waited.set_result, None)
        await waited

    asyncio.run(meet())
    assert bool(said) is bool(how) and "".join(said).startswith(how), said
