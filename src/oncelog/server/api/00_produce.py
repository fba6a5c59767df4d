"""Produce, versions 3 to 13 (KIP-98 idempotence, KIP-467 record errors, KIP-516 topic ids).

Versions 0 to 2 carry record formats older than batches and are advertised all the same (KIP-896 keeps it so in
Apache Kafka 4): librdkafka takes a broker without them for one that has no batches, no lz4 and no zstd.
Requests do not pass through a handler; `server/produce.py` stages what arrived together and answers it at once.
"""

from oncelog.server.api import Api

API = Api(key=0, name="produce", versions=(3, 13), advertise_from=0)
