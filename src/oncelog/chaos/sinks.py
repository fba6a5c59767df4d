"""The sinks that a pipeline may write with, by the names that they have everywhere. Pure."""

from typing import Final

DIRECT: Final = "direct"
SEALED: Final = "sealed"
KAFKA: Final = "kafka"  # Spark's own
FLOW: Final = "flow"  # no sink: the pipeline is a flow of two stages
SINKS: Final = (DIRECT, SEALED, KAFKA, FLOW)
