"""docs/client-settings.md, made from the code: `python -m oncelog.client.properties.page > docs/client-settings.md`."""

import sys
from collections.abc import Iterable, Iterator

from oncelog.client.properties.property import Kind, Property
from oncelog.client.properties.refused import REFUSED
from oncelog.client.properties.table import HONOURED
from oncelog.client.properties.without_effect import WITHOUT_EFFECT

INTRODUCTION = """# Settings of the clients

Made from the code by `python -m oncelog.client.properties.page`; a test holds it to the code.

`Producer`, `Consumer` and `Admin` take a mapping of librdkafka's properties, by their names or their other names, with
texts, numbers or booleans as values. Ranges, defaults and what is said about a value that cannot be meant are
librdkafka's; where a default differs, the line says why. Our own properties begin with `oncelog.`. An unknown property
is refused, and the refusal names the nearest known one.

**P**, **C** and **\\*** say who takes it: producers, consumers, or every client. A producer's property given to a
consumer is checked and changes nothing, with a line in Python's log (`oncelog.client`).

With `enable.idempotence`, which is on unless it is turned off, `acks` other than `all`, `max.in.flight` above 5 and
`retries` of 0 are refused; left unset they are set to fit.

Stricter than librdkafka: `3x` is no number, `bootstrap.servers` must be given, and a list is no text.
"""

NOTHING = """
## Read and without effect

They say how librdkafka goes about its work. They are checked as there, so that a configuration that was written for it
goes on working.
"""

NOT_HONOURED = """
## Refused

What cannot be honoured here is refused with the reason, rather than ignored. A value that asks for what happens anyway
is let through.
"""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for title, scope in (("Every client", "*"), ("Producers", "P"), ("Consumers", "C")):
        yield f"## {title}\n"
        yield from _table(known for known in HONOURED.values() if known.scope == scope)
        yield ""
    yield NOTHING.lstrip()
    yield from _table(WITHOUT_EFFECT)
    yield NOT_HONOURED
    yield "| name | let through | why any other value is refused |"
    yield "|---|---|---|"
    for name, (nothing, reason) in REFUSED.items():
        yield f"| `{name}` | {', '.join(f'`{value}`' for value in sorted(nothing) if value)} | {reason} |"


def _table(properties: Iterable[Property]) -> Iterator[str]:
    yield "| name | other names | P/C | takes | default | |"
    yield "|---|---|---|---|---|---|"
    for known in properties:
        aliases = ", ".join(f"`{alias}`" for alias in known.aliases)
        yield f"| `{known.name}` | {aliases} | {_scope(known)} | {_takes(known)} | {_default(known)} | {known.doc} |"


def _scope(known: Property) -> str:
    return "\\*" if known.scope == "*" else known.scope


def _takes(known: Property) -> str:
    words = ", ".join(f"`{word}`" for word in known.words)
    if known.kind in (Kind.INTEGER, Kind.NUMBER):
        bounds = f"{known.low:.15g} … {known.high:.15g}" if known.kind is Kind.NUMBER else f"{known.low} … {known.high}"
        return f"{bounds}, {words}" if words else bounds
    if known.kind is Kind.BOOLEAN:
        return "`true`, `false`"
    return words or known.kind.value


def _default(known: Property) -> str:
    value = known.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"

    return f"`{value:.15g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
