"""The examples of flows do what they say, as a user starts them, and whatever is killed meanwhile."""

import os
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.dataset as ds
import pytest

from oncelog.client import Consumer, TopicPartition
from oncelog.embedded import Server
from oncelog.flow import Sent, Topic
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples" / "flows"
NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "demo")
DAYS = 200  # of records for each life
KILLS = 3
SLOWLY = ("-X", "fetch.message.max.bytes=1000")

Written = dict[str, list[tuple[Any, Any]]]  # by topic, partition by partition


@pytest.fixture(params=("oncelog", pytest.param("kafka", marks=pytest.mark.thorough)))
def cluster(request: pytest.FixtureRequest) -> Iterator[str]:
    """Their topics have names of their own: each example has a server to itself, or shares it only with others."""
    if request.param == "kafka":
        yield str(request.getfixturevalue("kafka").bootstrap_servers)
        return
    with Server() as server:
        yield server.bootstrap_servers


@pytest.fixture(params=NAMES)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("LAKE", str(tmp_path / "lake"))
    yield import_module(request.param)
    for name in (request.param, "demo"):
        sys.modules.pop(name, None)


def test_it_does_what_it_says(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = sys.modules["demo"]
    with Server() as server:
        monkeypatch.setattr(sys, "argv", [example.__name__, "--servers", server.bootstrap_servers])
        demo.show(example.flow, example.records(), *example.outputs)
        check(example, example.records(), server.bootstrap_servers)


@pytest.mark.thorough
@pytest.mark.timeout(200)
def test_whatever_is_killed_it_comes_to_the_same(example: ModuleType, cluster: str, tmp_path: Path) -> None:
    demo = sys.modules["demo"]
    chance, pause = random.Random(example.__name__), threading.Event()
    command = [sys.executable, "-m", "oncelog", "flow", "run", f"{example.__name__}:flow", "-b", cluster]
    sent: list[Sent] = []
    for number in range(KILLS):
        more = [record for day in range(DAYS) for record in example.records(number * DAYS + day)]
        demo.send({"bootstrap.servers": cluster}, more, example.outputs)
        sent += more
        stood = made(example, cluster)
        with open(tmp_path / f"life-{number}.log", "wb") as log:
            life = subprocess.Popen([*command, *SLOWLY], cwd=EXAMPLES, stdout=log, stderr=log)
            try:
                until(partial(is_more, example, cluster, stood), "outputs", give_up_seconds=60)
                pause.wait(chance.uniform(0, 0.3))
                assert life.poll() is None
            finally:
                life.kill()
                life.wait()
    subprocess.run([*command, "--until", "end"], cwd=EXAMPLES, check=True, timeout=120)
    check(example, sent, cluster)


def is_more(example: ModuleType, servers: str, stood: int) -> bool:
    return made(example, servers) > stood


def made(example: ModuleType, servers: str) -> int:
    """How much stands in its outputs."""
    places = [TopicPartition(topic.name, index) for topic in example.outputs for index in range(topic.partitions)]
    with Consumer({"bootstrap.servers": servers}) as consumer:
        found = [consumer.get_watermark_offsets(place, timeout=30) for place in places]
    return sum(bounds[1] for bounds in found if bounds) + len(list(Path(os.environ["LAKE"]).rglob("*.parquet")))


def check(example: ModuleType, sent: Sequence[Sent], servers: str) -> None:
    properties = {"bootstrap.servers": servers}
    written = sys.modules["demo"].written
    found = {topic.name: list(written(properties, topic)) for topic in example.outputs}
    own = CHECKS.get(example.__name__)
    if own is not None:
        own(example, sent, found)
        return
    simulated = example.flow.simulate(sent)
    assert found and all(found.values())
    for topic in example.outputs:
        assert by_key(found[topic.name]) == by_key(simulated[topic])


def by_key(records: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, value in records:
        found[key].append(value)
    return found


def decoded(sent: Iterable[Sent], topic: Topic[Any, Any]) -> list[tuple[Any, Any]]:
    return [
        (topic.key.decode(each.key or b""), topic.value.decode(each.value or b""))
        for each in sent
        if each.topic == topic
    ]


def balances(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """How often they are told hangs on the commits; the last ones are the sums."""
    sums: Counter[str] = Counter()
    for account, booking in decoded(sent, example.bookings):
        sums[account] += booking.cents
    assert {account: told[-1] for account, told in by_key(found["accounts.balances"]).items()} == sums


def numbered(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """An order of both, whichever; and that of each of the two."""
    entries = by_key(found["ledger.entries"])
    for customer, own in entries.items():
        assert [entry.number for entry in own] == list(range(1, len(own) + 1))
        for kind, topic in (("Order", example.orders), ("Payment", example.payments)):
            came = [event.id for key, event in decoded(sent, topic) if key == customer]
            assert [entry.id for entry in own if entry.what == kind] == came
    assert sum(map(len, entries.values())) == len(sent)


def filed(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    folder = os.environ["LAKE"]
    rows = ds.dataset(folder, partitioning="hive").to_table().to_pylist()
    assert Counter((row["kafka_key"], row["customer"], row["cents"]) for row in rows) == Counter(
        (key, order.customer, order.cents) for key, order in decoded(sent, example.orders)
    )
    assert all((Path(folder) / f"hour={row['hour']}" / "_SUCCESS").exists() for row in rows)


def warmest(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """Each reading is in the window of its minute, or late."""
    late = {degrees for _, degrees in found["weather.late"]}
    windows = defaultdict(list)
    for each, (_, degrees) in zip(sent, decoded(sent, example.readings), strict=True):
        if degrees not in late:
            windows[each.at_ms - each.at_ms % example.MINUTE_MS].append(degrees)
    assert late
    assert Counter((window.start_ms, window.state) for _, window in found["weather.warmest"]) == Counter(
        (start_ms, max(each)) for start_ms, each in windows.items()
    )


def reminded(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """Each is reminded at most once. Who never pays is."""
    told = by_key(found["reminders.reminders"])
    assert all(len(reminders) == 1 for reminders in told.values())
    owes_all = {event.customer for _, event in decoded(sent, example.orders) if event.customer.startswith("bert")}
    assert {customer: each.amount for customer, (each,) in told.items() if customer in owes_all} == dict.fromkeys(
        owes_all, 7
    )


def offered(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """One answer for each order, and the same in both outputs."""
    offers = found["offers.offers"]
    assert found["offers.audit"] == offers
    assert by_key((key, offer.order) for key, offer in offers) == by_key(decoded(sent, example.orders))


def ranked(example: ModuleType, sent: Sequence[Sent], found: Written) -> None:
    """Each order once, with a row that its customer had, and never with an older one than the order before."""
    rows = by_key(decoded([each for each in sent if each.value is not None], example.customers))
    for customer, came in by_key(decoded(sent, example.orders)).items():
        told = [each for key, each in found["ranks.ranked"] if key == customer]
        assert [each.id for each in told] == [order.id for order in came]
        met = [each.customer for each in told if each.customer is not None]
        assert all(row in rows[customer] for row in met)
        assert met == sorted(met, key=lambda row: row.since_day)
    assert all(each.customer for key, each in found["ranks.ranked"] if key == "anna")
    assert not any(each.customer for key, each in found["ranks.ranked"] if key == "carla")


CHECKS: dict[str, Callable[[ModuleType, Sequence[Sent], Written], None]] = {
    "changelog": balances,
    "merge_log": numbered,
    "parquet_files": filed,
    "service_calls": offered,
    "table_join": ranked,
    "timers": reminded,
    "windows": warmest,
}
