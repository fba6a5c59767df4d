"""The kinds of values that a setting can have."""

from enum import Enum


class Kind(Enum):
    TEXT = "a text"
    BOOLEAN = "true or false"
    INTEGER = "a whole number"
    NUMBER = "a number"
    DURATION = "a time such as 500ms, 30s, 15m or 1h"
    LIST = "a list, separated by commas"
    CHOICE = "one of its words, in either case"
    FLAGS = "words, in either case, separated by commas"
    CALLABLE = "a callable"
