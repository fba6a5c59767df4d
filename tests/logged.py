"""What was logged by those whom a test is about: a server that others left in this process may say something, too."""

from logging import LogRecord

import pytest


def logged(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[LogRecord]:
    """By these, and those below them."""
    return [each for each in caplog.records if any(f"{each.name}.".startswith(f"{name}.") for name in loggers)]


def messages(caplog: pytest.LogCaptureFixture, *loggers: str) -> list[str]:
    return [each.getMessage() for each in logged(caplog, *loggers)]
