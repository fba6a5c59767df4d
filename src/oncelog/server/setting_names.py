"""The setting that a written name means: one of the whole server, or of one listener alone."""

from oncelog.server.settings import SETTINGS
from oncelog.settings import HIDDEN, Setting

LISTENER_PREFIX = "listener.name."


def is_of_listeners(name: str) -> bool:
    """Whether each listener may have a value of its own."""
    return name.startswith(("ssl.", "sasl.")) or name == "connections.max.reauth.ms"


def of_one_listener(written: str) -> tuple[str, Setting] | None:
    """`listener.name.internal.ssl.client.auth` is the listener INTERNAL's, and its ssl.client.auth."""
    if not written.startswith(LISTENER_PREFIX):
        return None
    listener, _, name = written.removeprefix(LISTENER_PREFIX).partition(".")
    setting = SETTINGS.get(name)
    return (listener.upper(), setting) if listener and setting is not None and is_of_listeners(name) else None


def setting_named(written: str) -> Setting | None:
    own = of_one_listener(written)
    return SETTINGS.get(written) if own is None else own[1]


class Given(dict[str, str]):
    """The settings given at a start, by name. They may be printed: secrets are not shown."""

    def __repr__(self) -> str:
        return repr({name: shown(name, text) for name, text in self.items()})

    __str__ = __repr__


def shown(name: str, text: str) -> str:
    setting = setting_named(name)
    return HIDDEN if setting is not None and setting.is_secret else text
