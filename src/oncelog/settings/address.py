"""An address that something listens on: `HOST:PORT`."""

import re
from typing import Final

from oncelog.settings.setting import SettingsError

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\[\]:/\s]*):(?P<port>[0-9]{1,5})")


def parse_address(setting: str, given: str) -> tuple[str, int]:
    match = _ADDRESS.fullmatch(given)
    if match is None or int(match["port"]) > 65535:
        raise SettingsError(f"{setting}={given}: expected HOST:PORT, such as 127.0.0.1:9308")
    return match["host"].strip("[]"), int(match["port"])
