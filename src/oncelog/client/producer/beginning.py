"""The beginning of a producer: as nobody, as a saved one, or as the one that its properties name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from oncelog.client.errors import invalid_argument
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.statistics import producing

if TYPE_CHECKING:
    from oncelog.client.producer.engine import Engine


def saved_value(saved: SavedProducer | str | bytes | Mapping[str, Any] | None) -> SavedProducer | None:
    """The saved producer that an application gave as a value or as its JSON."""
    return saved if saved is None or isinstance(saved, SavedProducer) else SavedProducer.from_json(saved)


async def begin(engine: "Engine", saved: SavedProducer | None) -> None:
    """Start the engine, as this saved producer or as the one that the properties name, if any."""
    settings = engine.settings
    if saved is not None and settings.oncelog_pid is not None:
        raise invalid_argument("`saved` and `oncelog.pid` both name a producer to go on as: give one of them")
    if (saved is not None or settings.oncelog_pid is not None) and not settings.enable_idempotence:
        raise invalid_argument(
            "a saved producer needs `enable.idempotence`: without it nothing tells its records apart"
        )
    producing.count(engine)
    await engine.start()
    if saved is not None:
        await engine.saving.resume(saved)
    elif settings.oncelog_pid is not None:
        engine.saving.resume_numbers(
            settings.oncelog_pid, settings.oncelog_generation or 0, settings.oncelog_sequence or 0
        )
