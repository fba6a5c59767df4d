"""Whatever the cluster does, what the application has read is in the end what the log holds, once and in order."""

from collections import Counter

from tests.client.fetching.history import History
from tests.depth import deeper, scaled

SEEDS = scaled(60)
STEPS = 400


@deeper
def test_what_was_read_is_in_the_end_what_the_log_holds_through_elections_losses_and_truncations() -> None:
    truncations = 0
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        history = History(seed)
        try:
            history.run(STEPS)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        truncations += history.truncations
        seen += history.seen
    # It must have been put to the test.
    assert truncations > SEEDS / 4
    assert min(seen[kind] for kind in ("Fetch", "FindOffsets", "FindEpochEnds", "NeedMetadata")) > SEEDS
