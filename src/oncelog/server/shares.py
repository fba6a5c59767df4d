"""Fair shares of something of which there is only so much."""

from collections import Counter


class Shares:
    """A host may take more as long as it then holds no more than is left for all. So none takes the last of it, and the
    others find room whatever one of them does."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()

    def has_room(self, host: str, left: int, more: int = 1) -> bool:
        """`left` is what nobody holds."""
        return self._held[host] + more <= left

    def take(self, host: str, count: int = 1) -> None:
        self._held[host] += count

    def give_back(self, host: str, count: int = 1) -> None:
        """Give back a share. Shares that were taken before this process began are not known."""
        self._held[host] -= count
        if self._held[host] <= 0:
            del self._held[host]
