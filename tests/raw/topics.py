"""Topics for tests, each with a name of its own."""

from itertools import count

from tests.raw.connection import RawConnection

_numbers = count(1)


def new_topic(raw: RawConnection, partitions: int = 1, **configs: str) -> str:
    name = f"topic-{next(_numbers)}"
    error = raw.create_topic(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
    assert error == 0, error
    return name
