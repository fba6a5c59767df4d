"""Brokers of a cluster in this process, each on a loop and in a thread of its own, agreeing by one tree in memory."""

from typing import TypeVar

T = TypeVar("T")
