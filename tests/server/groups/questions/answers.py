"""The answers of one broker to every question."""

import sys
import time

from tests.raw import RawConnection, ServerClosed
from tests.server.groups.questions.asking import QUESTIONS, error_of


def answers(address: str, name: str) -> dict[str, object]:
    """Each on a connection of its own; a broker that just started is asked until its coordinator is there."""
    found: dict[str, object] = {}
    with RawConnection(address) as c:
        await_coordinator(c)
        c.call("delete_groups", 2, groups_names=[""])  # others that share the broker may have made it
    for number, (title, ask) in enumerate(QUESTIONS.items()):
        with RawConnection(address) as c:
            try:
                found[title] = ask(c, f"{name}-{number}")
            except ServerClosed:
                found[title] = "the connection was closed"
    return found


def await_coordinator(c: RawConnection) -> None:
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        ready = error_of(c.call("find_coordinator", 3, key="any", key_type=0)) == "none"
        if ready and error_of(c.call("offset_fetch", 7, group_id="any", topics=None)) == "none":
            return
        time.sleep(0.1)
    raise TimeoutError("the coordinator of groups did not come up")


def main(addresses: list[str]) -> None:
    name = f"asked-{time.time_ns()}"
    every = [answers(address, name) for address in addresses]
    for title in QUESTIONS:
        said = [each[title] for each in every]
        if len(said) == 1 or said[0] != said[1]:
            sys.stdout.write(f"\n{title}\n" + "".join(f"  {a}: {s}\n" for a, s in zip(addresses, said, strict=True)))
