"""bytewax with its own Kafka connectors and recovery store, at least once, epochs of ten seconds as it has them."""

import os
from datetime import timedelta

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main
from confluent_kafka import OFFSET_BEGINNING

from bench.flow_peers import setting

brokers = [setting.servers]


def count(seen: int | None, _: object) -> tuple[int, int]:
    counted = (seen or 0) + 1
    return counted, counted


flow = Dataflow("flow")
views = op.input("views", flow, KafkaSource(brokers, [setting.source], starting_offset=OFFSET_BEGINNING))
if setting.pipeline == "regroup":
    moved = op.map("move", views, lambda message: KafkaSinkMessage(message.value[:8], message.value))
    op.output("between", moved, KafkaSink(brokers, setting.between))
    views = op.input("moved", flow, KafkaSource(brokers, [setting.between], starting_offset=OFFSET_BEGINNING))
keyed = op.map("key", views, lambda message: (message.key.decode(), None))
counts = op.stateful_map("count", keyed, count)
written = op.map("record", counts, lambda pair: KafkaSinkMessage(pair[0].encode(), b"%d" % pair[1]))
op.output("counts", written, KafkaSink(brokers, setting.out))

if not os.path.isdir(setting.state):
    os.makedirs(setting.state)
    init_db_dir(setting.state, 1)
run_main(flow, epoch_interval=timedelta(seconds=10), recovery_config=RecoveryConfig(setting.state))
