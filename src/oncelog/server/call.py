"""What a handler knows beside the request itself."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oncelog.clock import Now
from oncelog.wire.messages import Schema

if TYPE_CHECKING:
    from oncelog.server.broker import Broker


@dataclass(slots=True)
class Call:
    broker: "Broker"
    schema: Schema
    version: int
    client_id: str | None
    client_host: str
    listener: str  # the name of the listener it came in by: what Metadata must advertise
    now: Now

    def new(self, type_name: str, **values: Any) -> Any:
        return self.schema.new(type_name, **values)
