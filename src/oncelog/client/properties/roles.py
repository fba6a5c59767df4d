"""Who takes a property: one of these, or every client."""

from typing import Final

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
