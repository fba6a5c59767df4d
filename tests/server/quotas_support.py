"""Setting quotas by hand, and a clock in the server that stands still."""

from typing import Any

from oncelog.clock import ManualClock
from oncelog.embedded import Server
from tests.raw import RawConnection

Names = dict[str, str | None]


def entry(names: Names, **values: float | None) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()],
    }


def alter(connection: RawConnection, *entries: dict[str, Any], validate_only: bool = False) -> list[tuple[str, Any]]:
    answer = connection.call("alter_client_quotas", 1, entries=list(entries), validate_only=validate_only)
    return [(each.error_code.name, each.error_message) for each in answer.entries]


def set_quota(connection: RawConnection, names: Names, **values: float | None) -> None:
    assert alter(connection, entry(names, **values)) == [("none", None)]


def described(connection: RawConnection) -> list[tuple[Names, dict[str, float]]]:
    answer = connection.call("describe_client_quotas", 1, components=[], strict=False)
    return [
        ({each.entity_type: each.entity_name for each in entry.entity}, {each.key: each.value for each in entry.values})
        for entry in answer.entries
    ]


def stop_the_clock(server: Server) -> ManualClock:
    """Rates depend on nothing but what is sent."""
    clock = ManualClock(server.broker.clock.now().wall_ms)
    server.broker.clock = clock
    return clock
