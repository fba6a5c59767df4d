"""oncelog: a log that keeps every record once, spoken to with the Kafka protocol."""

__version__ = "0.1.0"
