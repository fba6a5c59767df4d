"""Tries a store that is not of this machine, by hand: a flow that writes files there is killed, and all is counted.

    python -m tests.soak.stores URL [--kills 8] [--records 5000]

The stores of docs/flow.md were started so:

    npm install azurite && npx azurite-blob
        AZURE_STORAGE_CONNECTION_STRING=... python -m tests.soak.stores abfs://CONTAINER/orders
    go install github.com/fsouza/fake-gcs-server@latest && fake-gcs-server -scheme http -backend memory
        python -m tests.soak.stores 'gs://anonymous@BUCKET/orders?scheme=http&endpoint_override=127.0.0.1:4443'
    java -cp ... org.apache.hadoop.test.MiniDFSClusterManager -format -datanodes 1 -httpport 9870
        (of hadoop-client-minicluster, with JUnit's and Mockito's jars)
        python -m tests.soak.stores webhdfs://USER@127.0.0.1:9870/lake/orders
"""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import uuid4

import click

from oncelog.client import AdminClient, NewTopic, Producer
from oncelog.embedded import Server
from oncelog.flow import Flow, Topic, json_of, raw
from oncelog.runner.storing.place import UNFINISHED, FilePlace
from tests.runner.flows import KEEP, Order
from tests.waiting import until

HOUR_MS = 3_600_000
BEGIN_MS = 495_000 * HOUR_MS
AN_HOUR = 2_000  # records
WIDE_BITS = 1_200  # of a customer; they do not compress
WITHIN_S = 120.0
LIFE = """
import sys
from tests.soak.stores import flow

flow(*sys.argv[2:]).run({"bootstrap.servers": sys.argv[1]})
"""


def flow(topic: str, url: str) -> Flow:
    made = Flow(f"{topic}-flow", version="1")
    read = made.read(Topic(topic, raw, json_of(Order), partitions=2), name="orders")
    read.files(url, every_ms=100, most_records=500)
    return made


def send(servers: str, topic: str, numbers: range, dice: random.Random) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in numbers:
            value = json_of(Order).encode(Order(f"{dice.getrandbits(WIDE_BITS):x}", number))
            producer.produce(topic, key=f"k{number}", value=value, timestamp=BEGIN_MS + number * HOUR_MS // AN_HOUR)
        producer.flush()


def names(place: FilePlace) -> list[str]:
    try:
        return [name for folder in place.folders() for name in place.files(folder)]
    except NotADirectoryError:  # as pyarrow calls a folder that fsspec makes while it looks
        return []


def kill_once(servers: str, topic: str, url: str, more: int) -> str:
    """When so many files have come."""
    place = FilePlace(url)
    wanted = len(names(place)) + more
    with subprocess.Popen([sys.executable, "-c", LIFE, servers, topic, url]) as process:
        try:
            until(lambda: len(names(place)) >= wanted or process.poll(), "more files", give_up_seconds=WITHIN_S)
            assert process.poll() is None, "the flow has ended by itself"
        finally:
            process.kill()
    found = names(place)
    under_way = len(list(Path(place.scratch).glob(f".*{UNFINISHED}")))
    hidden = sum(name.endswith(UNFINISHED) for name in found)
    return f"killed: {len(found) - hidden} files there, {under_way} under way, {hidden} hidden ones left there"


def audit(url: str, count: int) -> str:
    place = FilePlace(url)
    found = names(place)
    parquet = [name for name in found if name.endswith(".parquet")]
    done = [name for name in found if name.endswith("/_SUCCESS")]
    others = set(found) - {*parquet, *done}
    seen = Counter(row["amount"] for rows in place.rows(parquet).values() for row in rows)
    missing, twice = len(set(range(count)) - seen.keys()), sum(times > 1 for times in seen.values())
    hours = len({name.partition("/")[0] for name in parquet} - {name.partition("/")[0] for name in done})
    told = (
        f"{count} records in {len(parquet)} files: {missing} missing, {twice} twice; "
        f"{hours} hours are not complete; {len(others)} other files are there"
    )
    assert not missing and not twice and not hours and not others, f"{told} {sorted(others)[:5]}"
    return told


@click.command()
@click.argument("url")
@click.option("--kills", default=8)
@click.option("--records", default=5_000, help="For each life that is killed.")
def main(url: str, kills: int, records: int) -> None:
    base, mark, settings = url.partition("?")
    topic = f"stores-{uuid4().hex[:8]}"
    url = f"{base}/{topic}{mark}{settings}"
    dice = random.Random(1)
    with Server() as server:
        servers = server.bootstrap_servers
        with AdminClient({"bootstrap.servers": servers}) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, config=KEEP)])[topic].result(30)
        for life in range(kills):
            send(servers, topic, range(life * records, (life + 1) * records), dice)
            print(kill_once(servers, topic, url, dice.randrange(1, records // 1_000)))
        flow(topic, url).run({"bootstrap.servers": servers}, until="end")
    print(audit(url, kills * records))


if __name__ == "__main__":
    main()
