"""The exceptions that PySpark and py4j print beside raising them."""

import logging


def quiet_exceptions() -> None:
    """PySpark writes each exception of a query to stderr, with all Java frames, as one line of JSON, and raises it."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Whether it is anyone else's. Where the JVM ends in the midst of a call, py4j logs two tracebacks on the root
    logger, and raises it."""
    return record.name != "root" or record.module != "java_gateway"
