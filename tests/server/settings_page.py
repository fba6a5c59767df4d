"""docs/settings.md, made from the code: `python -m tests.server.settings_page > docs/settings.md`."""

import sys
from collections.abc import Iterator

from oncelog.server.settings import SETTINGS
from oncelog.server.settings_reading import NOT_HERE
from oncelog.server.topic_configs import TOPIC_CONFIGS
from oncelog.settings import Setting
from tests.settings.page import DEFAULT, DOC, NAME, TAKES, default_of, names, table

INTRODUCTION = """# Settings

Made from the code by `python -m tests.server.settings_page`; a test holds it to the code.

Names, units and defaults are Kafka's; where a default differs, the line says why. Our own names begin with `oncelog.`.
A setting is given

- on the command line: `--set log.segment.bytes=1048576`
- in the environment: `ONCELOG_LOG_SEGMENT_BYTES=1048576` (our own without a second prefix: `ONCELOG_FLUSH=every`)
- in a file, written as Kafka's `server.properties`

and the command line goes before the environment, that before the file. An unknown name or an impossible value stops
the start; everything that is wrong is said at once. Of settings with one meaning (`log.retention.ms`, `.minutes`,
`.hours`) the finest unit counts, as in Kafka; one given in a stronger place sets aside the others from a weaker one.

*Dynamic* settings can be changed while the server runs, with `kafka-configs` or any admin client; the change is kept
in the log and outlives a restart.
"""

TOPICS = """
## Settings of a topic

Given when a topic is created, or changed later with any admin client. What a topic does not set for itself it has from
the server's setting in the last column, also when that changes later.
"""

NOT_UNDERSTOOD = """
## Kafka's settings that have no place here

A start that is given one of these stops and says why.
"""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Settings of the server\n"
    yield from table(SETTINGS.values(), NAME, DEFAULT, TAKES, ("dynamic", _is_dynamic), DOC)
    yield TOPICS
    yield from table(
        TOPIC_CONFIGS.values(),
        ("name", lambda config: f"`{config.setting.name}`"),
        ("takes", lambda config: config.setting.takes or config.setting.allowed),
        ("default, or the server's setting", lambda config: names(config.broker_names) or default_of(config.setting)),
        ("", lambda config: config.setting.doc),
    )
    yield NOT_UNDERSTOOD
    yield from table(NOT_HERE.items(), ("begins with", lambda each: f"`{each[0]}`"), ("", lambda each: each[1]))


def _is_dynamic(setting: Setting) -> str:
    return "yes" if setting.dynamic else ""


if __name__ == "__main__":
    sys.stdout.write(page())
