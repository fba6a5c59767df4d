"""oncelog: a log that keeps every record once, spoken to with the Kafka protocol."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncelog.embedded import Server

__all__ = ["Server", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`oncelog.Server` is imported when it is first used, so that `import oncelog` stays free of the server."""
    if name == "Server":
        from oncelog.embedded import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
