"""quixstreams, exactly once. `-fast` behind the pipeline's name: it commits every 0.1 s, else every 5 s by default."""

from quixstreams import Application, State

from bench.flow_peers import setting

kind, _, pace = setting.pipeline.partition("-")
pacing = {"commit_interval": 0.1} if pace == "fast" else {}
app = Application(
    broker_address=setting.servers,
    consumer_group=setting.app,
    state_dir=setting.state,
    processing_guarantee="exactly-once",
    auto_offset_reset="earliest",
    **pacing,
)
texts = {"key_deserializer": "str", "value_deserializer": "bytes", "key_serializer": "str", "value_serializer": "bytes"}


def count(_: bytes, state: State) -> bytes:
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return b"%d" % seen


views = app.dataframe(app.topic(setting.source, **texts))
if kind == "regroup":
    between = app.topic(setting.between, **texts)
    views.to_topic(between, key=lambda value: value[:8].decode())
    views = app.dataframe(between)
views.apply(count, stateful=True).to_topic(app.topic(setting.out, **texts))
app.run()
