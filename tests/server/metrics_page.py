"""docs/metrics.md, made from the code: `python -m tests.server.metrics_page > docs/metrics.md`."""

import sys

from oncelog.server.exposition import FAMILIES

INTRODUCTION = """# Metrics

Made from the code by `python -m tests.server.metrics_page`; a test holds it to the code.

`oncelog serve --metrics 127.0.0.1:9308`, or `oncelog.metrics.listener`, serves Prometheus text at `/metrics` on a
port of its own; it is off by default. Names that begin with `kafka_` are those of kafka_exporter, so that its
dashboards and alerts work as they are. Ours begin with `oncelog_`.

What producers were told is counted by topic since the start of the server, and a topic for which there is nothing to
tell is left out. Text is made as fast as a scraper takes it; a scrape that takes longer than ten seconds is cut, and
at most sixteen run at a time. A running flow has [metrics of its own](flow.md#metrics).

## Who may scrape

On 127.0.0.1 the metrics are as open as the log itself: where a listener asks clients who they are (by SASL, or
`ssl.client.auth=required`), or access rules are asked (`authorizer.class.name`), they ask as well; elsewhere anyone who
reaches them reads them.
`oncelog.metrics.sign.in=always` asks in any case, and `never` does not on 127.0.0.1. Beyond it they are not served
without both users and TLS, by the certificate of the log's own listeners (`ssl.keystore.location`; a renewed one
counts without a restart): the server says what is missing and does not start. `oncelog.metrics.tls=always` is for TLS
on 127.0.0.1.

Who scrapes is a user of the log, named by HTTP Basic with the password that its SCRAM credentials were made of. It
takes the right to DESCRIBE the cluster, as the overview of [the page](console.md#who-may-look) does. Of topics and
groups those are told that the user may DESCRIBE; what is summed over the whole server is told to everybody who may
scrape:

<!-- not run: needs a secured server -->
```bash
oncelog users add prometheus
oncelog acls add --allow-principal User:prometheus --operation Describe --cluster --topic '*' --group '*'
```

`prometheus.yml` then says how to get in. `authority.pem` is in the folder `secure` of the data folder where
`--secure` made the certificate:

```yaml
scrape_configs:
  - job_name: oncelog
    scheme: https
    basic_auth:
      username: prometheus
      password_file: prometheus.password
    tls_config:
      ca_file: authority.pem
    static_configs:
      - targets: ["127.0.0.1:9308"]
```

Where a listener has the mechanism OAUTHBEARER, a token of [the same issuer](authentication.md#mechanisms) counts, too
(`Authorization: Bearer`; `authorization.credentials_file` or `oauth2` of Prometheus). It is checked by the settings of
the first such listener, and stands for the user that it names. With the request's other lines it may have 8 KiB.

It is asked by an address, as `localhost`, by a name without a dot or below `.local` or `.internal`, by what listeners
advertise, or by one of `oncelog.page.hosts`: no other page in a browser can read it, nor can one make a browser that
has signed in ask for it.

A wrong name and a wrong password take the same time and are told alike (401); the answer is late by
`connection.failed.authentication.delay.ms`, and a host that has failed more than
`oncelog.max.failed.authentications.per.minute` times, at a listener, the page or here together, is not looked at for
a while (429). Who may not DESCRIBE the cluster is told so (403). `oncelog_authentications_failed_total` counts
failures of all doors, and bad tokens are failures as wrong passwords are. Client certificates are not asked for here.

Three hundred connections that ask nothing keep no scraper out: of 32 connections the one that has been silent for
longest makes room, and with TLS so do those that do not end their handshake.

## What is told
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
