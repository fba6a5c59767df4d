"""docs/metrics.md, made from the code: `python -m oncelog.server.metrics_page > docs/metrics.md`."""

import sys

from oncelog.server.exposition import FAMILIES

INTRODUCTION = """# Metrics

Made from the code by `python -m oncelog.server.metrics_page`; a test holds it to the code.

`--set oncelog.metrics.listener=127.0.0.1:9308` serves Prometheus text at `/metrics` on a port of its own; it is off by
default, and there is no password on it, so keep it where only your scraper comes. It is answered to who asks by an
address, as `localhost`, by a name without a dot or below `.local` or `.internal`, or by one of `oncelog.page.hosts`: no
other page in a browser can read it. Names that begin with `kafka_` are those of kafka_exporter, so that its dashboards
and alerts work as they are. Ours begin with `oncelog_`.

What producers were told is counted by topic since the start of the server, and a topic for which there is nothing to
tell is left out. Text is made as fast as a scraper takes it; a scrape that takes longer than ten seconds is cut, and at
most sixteen run at a time. A running flow has [metrics of its own](flow.md#metrics).
"""

LABELS = {
    "kafka_topic_partition_": "topic, partition",
    "oncelog_topic_partition_": "topic, partition",
    "kafka_topic_": "topic",
    "oncelog_producer": "topic",
    "oncelog_leases": "topic",
    "kafka_consumergroup_members": "consumergroup",
    "kafka_consumergroup_current_offset_sum": "consumergroup, topic",
    "kafka_consumergroup_lag_sum": "consumergroup, topic",
    "kafka_consumergroup_": "consumergroup, topic, partition",
    "kafka_broker_info": "id, address",
    "oncelog_follower_lag_records": "topic, partition, broker",
    "oncelog_requests": "api",
    "oncelog_throttled": "quota",
}


def labels_of(name: str) -> str:
    if name == "kafka_topic_partitions":
        return "topic"
    return next((labels for prefix, labels in LABELS.items() if name.startswith(prefix)), "")


def page() -> str:
    lines = [INTRODUCTION, "| name | kind | labels | |", "|---|---|---|---|"]
    lines += (f"| `{each.name}` | {each.kind} | {labels_of(each.name)} | {each.help} |" for each in FAMILIES)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
