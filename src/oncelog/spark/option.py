"""The options of the format `oncelog`: which sides take them, and the errors for wrong values."""

from typing import Any, Final

from oncelog.settings import Kind, Setting, Unfit, Why
from oncelog.spark.source.bounds import BadBound

READ: Final = "read"
STREAM: Final = "readStream"
WRITE: Final = "write"
SINK: Final = "writeStream"


class BadOption(ValueError):
    """An option that cannot be meant; the message is for the user."""


def value_of(option: Setting, written: str) -> Any:
    text = written.strip()
    if option.kind is Kind.TEXT and option.convert is None and not text:
        raise BadOption(f"Option '{option.name}' must not be empty")
    try:
        return option.parse(text)
    except BadBound as error:
        raise BadOption(f"Option '{option.name}': {error}") from None
    except Unfit as unfit:
        raise BadOption(_refusal(option, written, unfit)) from None


def _refusal(option: Setting, written: str, unfit: Unfit) -> str:
    if option.kind is not Kind.INTEGER:
        expected = " or ".join(option.words) or option.kind.value
        return f"Option '{option.name}' takes {expected}, not '{written}'"
    if unfit.why is not Why.OUT_OF_BOUNDS:
        return f"Option '{option.name}' takes a whole number, not '{written}'"
    if unfit.value == 0:
        return f"{option.name} must be positive"
    return f"Option '{option.name}' takes a whole number from 0 on, not {unfit.value}"
