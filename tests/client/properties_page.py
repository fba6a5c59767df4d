"""docs/client-settings.md, made from the code: `python -m tests.client.properties_page > docs/client-settings.md`."""

import sys
from collections.abc import Iterable, Iterator

from oncelog.client.properties.common import CONSUMER, PRODUCER
from oncelog.client.properties.refused import REFUSED
from oncelog.client.properties.table import HONOURED
from oncelog.client.properties.without_effect import WITHOUT_EFFECT
from oncelog.settings import Setting
from tests.settings.page import DEFAULT, DOC, NAME, TAKES, names, table

INTRODUCTION = """# Settings of the clients

Made from the code by `python -m tests.client.properties_page`; a test holds it to the code.

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
    for title, roles in (("Every client", ()), ("Producers", (PRODUCER,)), ("Consumers", (CONSUMER,))):
        yield f"## {title}\n"
        yield from _table(known for known in HONOURED.values() if known.roles == roles)
        yield ""
    yield NOTHING.lstrip()
    yield from _table(WITHOUT_EFFECT)
    yield NOT_HONOURED
    yield from table(
        REFUSED.items(),
        ("name", lambda each: f"`{each[0]}`"),
        ("let through", lambda each: names(sorted(filter(None, each[1][0])))),
        ("why any other value is refused", lambda each: each[1][1]),
    )


def _table(properties: Iterable[Setting]) -> Iterator[str]:
    other_names = ("other names", lambda known: names(known.aliases))
    role = ("P/C", lambda known: known.roles[0][0].upper() if known.roles else "\\*")
    return table(properties, NAME, other_names, role, TAKES, DEFAULT, DOC)


if __name__ == "__main__":
    sys.stdout.write(page())
