"""What the leader has and its followers lack is neither stored nor "not there"."""

import pytest

from oncelog.client.errors import KafkaException
from oncelog.client.saving.look_up import _refuse_what_may_be_stored_yet
from oncelog.client.saving.saved import HighWater, Place

PLACE = Place("t", 0)


@pytest.mark.parametrize(
    "known, found, acknowledged, may_be_stored_yet",
    [
        (9, 9, 5, False),  # all that the leader has was read
        (9, 7, 5, True),
        (9, -1, 5, True),  # nothing was read from the last place known to be done
        (4, -1, 5, False),  # there is nothing beyond that place
        (9, -1, -1, False),  # nobody says what is done, so nothing can be told
        (0, 2**31 - 1, 5, True),  # sequences wrap
        (2**31 - 1, 3, 0, False),
    ],
)
def test_what_is_above_the_high_watermark_is_asked_for_again(
    known: int, found: int, acknowledged: int, may_be_stored_yet: bool
) -> None:
    if may_be_stored_yet:
        with pytest.raises(KafkaException) as refused:
            _refuse_what_may_be_stored_yet(PLACE, HighWater(0, known), found, acknowledged)
        assert refused.value.error.retriable()
    else:
        _refuse_what_may_be_stored_yet(PLACE, HighWater(0, known), found, acknowledged)
