"""quixstreams, exactly once: each record writes how often its key has come so far. A process of its own, to be killed,
in an environment where nothing of ours is.

    python counting.py SERVERS APP FROM TO STATE
"""

import sys

from quixstreams import Application, State

servers, name, source, target, state_dir = sys.argv[1:]
app = Application(
    broker_address=servers,
    consumer_group=name,
    state_dir=state_dir,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    commit_interval=0.1,
    consumer_extra_config={"session.timeout.ms": 6_000},
    # Its own choice is an id of chance, whose open transaction keeps readers waiting until it times out.
    producer_extra_config={"transactional.id": "counting", "transaction.timeout.ms": 10_000},
)
texts = {"key_deserializer": "str", "value_deserializer": "bytes", "key_serializer": "str", "value_serializer": "bytes"}


def count(_: bytes, state: State) -> bytes:
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return b"%d" % seen


app.dataframe(app.topic(source, **texts)).apply(count, stateful=True).to_topic(app.topic(target, **texts))
app.run()
