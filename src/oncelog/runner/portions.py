"""The number of records that a cell gets at once: about as many as take a short turn, since others wait meanwhile."""

from typing import Final

FIRST_RECORDS: Final = 100  # nobody knows yet how long the functions take
MOST_RECORDS: Final = 10_000
LONG_TURN_S: Final = 0.2
SHORT_TURN_S: Final = 0.1


class Portions:
    def __init__(self) -> None:
        self.records = FIRST_RECORDS

    def took(self, seconds: float, worked: int) -> None:
        """A turn in which `worked` records were worked on. One may have taken long because the process stood still, so
        what is small grows again as long as its turns are short."""
        if worked and seconds > LONG_TURN_S:
            self.records = max(1, int(worked * SHORT_TURN_S / seconds))
        elif worked * 2 >= self.records and seconds < SHORT_TURN_S:
            self.records = min(MOST_RECORDS, self.records * 2)
