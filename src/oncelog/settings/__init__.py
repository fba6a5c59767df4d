"""One type of setting for all: the server's settings, the client's properties, the options of Spark's format."""

from oncelog.settings.address import parse_address
from oncelog.settings.nearest import nearest
from oncelog.settings.setting import HIDDEN, INT_MAX, LONG_MAX, LONG_MIN, Setting, SettingsError, Unfit, Why, text_of
from oncelog.settings.syntax import Kind

__all__ = [
    "HIDDEN",
    "INT_MAX",
    "LONG_MAX",
    "LONG_MIN",
    "Kind",
    "Setting",
    "SettingsError",
    "Unfit",
    "Why",
    "nearest",
    "parse_address",
    "text_of",
]
