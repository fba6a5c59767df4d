"""Refusals in Kafka's words. Only the server speaks of Kafka's error codes; the rooms below raise their own."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError", "MayNotBeDurable"]


class KafkaError(Exception):
    """A request, or one entry of it, is refused: what the client is told, as a code and in words."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(message or code.name.replace("_", " "))
        self.code = code
        self.message = message

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"


class MayNotBeDurable(KafkaError):
    """The change is made, here and in the log, but the disk would not say that it will survive a power failure."""
