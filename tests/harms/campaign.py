"""Harm after harm on copies of data folders: `oncelog check`, a start, everything read, a kill, another start.

What is looked for is silence: a record that was acknowledged and is missing, doubled, another one or out of order, and
neither the start, nor the server's log, nor the reader's answers, nor its CRCs say so.
"""

import contextlib
import os
import resource
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from oncelog import clock
from oncelog.chaos.stopped import DidNotStart
from oncelog.cluster.folder_checking import check_folder
from oncelog.log.disk import RealDisk
from tests.harms.forked import ForkedOncelog
from tests.harms.harming import HARMS
from tests.harms.judging import Read, committed, read, wrong_commits, wrong_times, wrong_with
from tests.harms.story import KEYED, PARTITIONS, PLAIN, Ledger, Place, Story, Writer, told
from tests.peers.oncelog_process import OncelogProcess
from tests.raw import RawConnection

PLACES = [(name, index) for name, count in PARTITIONS.items() for index in range(count)]
HARMS_OF_A_STORY = 12
AGAIN = 0.4  # of all: they are killed, and started a second time
YEAR_S = 365 * 86400
# Without the right of root to read and write whatever it likes.
AS_OTHERS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
OF_SERVERS = ("clock_set", "no_room", "two_servers")  # beside those of files


@dataclass
class Outcome:
    kind: str
    what: str
    result: str = "whole"
    findings: list[str] = field(default_factory=list)
    unknown: frozenset[str] = frozenset()


def judged(story: Story, folder: Path, kind: str, chance: Random) -> Outcome:
    data = folder / "log"
    shutil.copytree(story.folder, data, symlinks=True)
    ledger = deepcopy(story.ledger)
    what = HARMS.get(kind, HARMS["nothing"])(data, chance)
    outcome = Outcome(kind, what, unknown=story.unknown)
    damaged = checked(data, outcome)
    server = server_of(story, folder, kind, chance, outcome)
    with server.stack:
        try:
            server.process.start()
        except DidNotStart:
            refused(server.process, outcome)
            return outcome
        server.harm_it(ledger, chance)
        found = look(server.process, ledger, damaged, outcome, is_ahead=server.is_ahead)
        if chance.random() < AGAIN:
            live_again(server.process, ledger, found, outcome, chance)
        if "Traceback" in server.process.log_text():
            outcome.findings.append("the server's log has a traceback")
    return outcome


def checked(data: Path, outcome: Outcome) -> set[str]:
    """The partitions that `oncelog check` calls damaged, or all of them where it calls the folder so."""
    try:
        return {each.name for each in check_folder(RealDisk(), str(data)) if each.damage}
    except Exception:
        outcome.findings.append(f"the check fell over: {traceback.format_exc(limit=-2)}")
        return set()


def refused(process: OncelogProcess, outcome: Outcome) -> None:
    outcome.result = "refused"
    said = process.log_text()
    if "Traceback" in said or not said.strip():
        outcome.findings.append(f"it does not start, and says no reason: {said[-600:]}")


@dataclass
class Served:
    process: OncelogProcess
    kind: str
    folder: Path
    stack: contextlib.ExitStack
    is_ahead: bool = False
    findings: list[str] = field(default_factory=list)

    def harm_it(self, ledger: Ledger, chance: Random) -> None:
        if self.kind == "two_servers":
            other = ForkedOncelog(self.folder / "other", settings=self.process.settings)
            other.data = self.process.data
            other.begin()
            self.stack.callback(other.kill)
            if not other.has_ended_within(ForkedOncelog.start_seconds) or other.process.returncode == 0:
                self.findings.append("a second server serves the same folder")
        if self.kind == "no_room":
            with RawConnection(self.process.port) as raw:
                writer = Writer(raw, ledger, chance)
                for _ in range(60):
                    writer.write((PLAIN, chance.randrange(PARTITIONS[PLAIN])), 2)
            self.process.kill()
            again = ForkedOncelog(self.folder, settings=self.process.settings)
            self.process = again
            self.stack.callback(again.kill)
            again.start()


def server_of(story: Story, folder: Path, kind: str, chance: Random, outcome: Outcome) -> Served:
    shift_s, before = 0, _nothing
    if kind == "no_room":
        limit_bytes = chance.randint(1, 60_000)
        before = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
        outcome.what = f"files of at most {limit_bytes} bytes"
    elif kind == "clock_set":
        shift_s = chance.randint(-YEAR_S, YEAR_S)
        before = partial(set_clock, shift_s)
        outcome.what = f"by {shift_s} s"
    process: OncelogProcess = ForkedOncelog(folder, settings=story.settings, before=before)
    if kind == "forbidden" and os.getuid() == 0:
        process = OncelogProcess(folder, settings=story.settings, prefix=AS_OTHERS)
        process.start_seconds = ForkedOncelog.start_seconds
    stack = contextlib.ExitStack()
    stack.callback(process.kill)
    return Served(process, kind, folder, stack, is_ahead=shift_s > 0, findings=outcome.findings)


def _nothing() -> None:
    """There is nothing to be done before."""


def set_clock(shift_s: int) -> None:
    """Of this process alone."""
    wall_ns, wall_s = time.time_ns, time.time
    time.time_ns = lambda: wall_ns() + shift_s * 10**9
    time.time = clock.wall_s = lambda: wall_s() + shift_s


def look(
    process: OncelogProcess, ledger: Ledger, damaged: set[str], outcome: Outcome, *, is_ahead: bool
) -> dict[Place, Read]:
    found: dict[Place, Read] = {}
    with RawConnection(process.port) as raw:
        for place in PLACES:
            name = f"{place[0]}-{place[1]}"
            found[place] = read(raw, place)
            wrong = list(wrong_with(found[place], ledger, place))
            if place[0] == PLAIN:
                wrong += wrong_times(raw, place, ledger)
            if wrong:
                blame(outcome, name, wrong, found[place].told, process.log_text(), damaged)
        offsets = committed(raw)
        if isinstance(offsets, str):
            blame(outcome, "__consumer_offsets", [offsets], [offsets], process.log_text(), damaged)
        elif not is_ahead and (wrong := wrong_commits(offsets, ledger)):
            blame(outcome, "__consumer_offsets", wrong, [], process.log_text(), damaged)
    return found


def blame(outcome: Outcome, name: str, wrong: list[str], told: list[str], log: str, damaged: set[str]) -> None:
    """Who was told of it. The worst of all partitions is the outcome."""
    said = [line for line in log.splitlines() if f"{name}" in line and any(word in line for word in SAYS)]
    if told:
        result = "its reader is told"
    elif said:
        result = "the log says so"
    elif any(each.startswith(name) for each in damaged):
        result = "only a check says so"
        outcome.findings.append(f"only a check says of {name}: {'; '.join(wrong)}")
    elif any(each.startswith(name) for each in outcome.unknown):
        result = "too young to be known"
    else:
        result = "SILENT"
        outcome.findings.append(f"{name}: {'; '.join(wrong)}")
    if RESULTS.index(result) > RESULTS.index(outcome.result):
        outcome.result = result


RESULTS = (
    "whole",
    "refused",
    "its reader is told",
    "the log says so",
    "too young to be known",
    "only a check says so",
    "SILENT",
)
SAYS = ("cut off", "is damaged", "offline", "missing", "cannot be", "lacks", "left alone", "are gone", "cannot be read")


def live_again(
    process: OncelogProcess, ledger: Ledger, before: dict[Place, Read], outcome: Outcome, chance: Random
) -> None:
    """What was readable stays so over what is written and a kill, and what is written now is there then."""
    now = Ledger(keys=ledger.keys)
    with RawConnection(process.port) as raw:
        writer = Writer(raw, now, chance)
        for place in PLACES:
            now.records[place] = {}
            writer.write(place, 1)
    process.kill()
    try:
        process.start()
    except DidNotStart:
        outcome.findings.append(f"its second start is refused: {process.log_text()[-600:]}")
        return
    with RawConnection(process.port) as raw:
        for place in PLACES:
            again = read(raw, place)
            wanted = {**({} if place[0] == KEYED else before[place].values), **now.records[place]}
            lost = [offset for offset, value in wanted.items() if again.values.get(offset) != value]
            if lost and not again.told:
                outcome.findings.append(f"{place[0]}-{place[1]}: {sorted(lost)[:3]} of {len(wanted)} are gone later")
                outcome.result = "SILENT"


@dataclass
class Result:
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    stories: int = 0

    def add(self, number: str, story: Story, outcome: Outcome) -> None:
        self.counts[outcome.kind, outcome.result] += 1
        self.findings += [f"{number} ({outcome.kind} {outcome.what}; {story}): {each}" for each in outcome.findings]

    def __str__(self) -> str:
        kinds = sorted({kind for kind, _ in self.counts})
        lines = ["| harm | " + " | ".join(RESULTS) + " |", "|---|" + "--:|" * len(RESULTS)]
        lines += [
            f"| {kind} | " + " | ".join(str(self.counts[kind, each]) for each in RESULTS) + " |" for kind in kinds
        ]
        sums = [str(sum(self.counts[kind, each] for kind in kinds)) for each in RESULTS]
        lines.append("| all | " + " | ".join(sums) + " |")
        return "\n".join([f"{self.counts.total()} harms to {self.stories} folders", *lines])


def campaign(
    folder: Path, *, seed: int, stories: int, until_s: float, kinds: list[str], say: Callable[[str], None]
) -> Result:
    """`until_s` by the monotonic clock."""
    result = Result()
    for number in range(seed, seed + stories):
        story_folder = folder / f"story-{number}"
        story = told(story_folder, Random(number))
        result.stories += 1
        for harm in range(HARMS_OF_A_STORY):
            if time.monotonic() > until_s:
                return result
            chance = Random(f"{number}.{harm}")
            kind = chance.choice(kinds)
            place = folder / f"harmed-{number}-{harm}"
            outcome = judged(story, place, kind, chance)
            result.add(f"{number}.{harm}", story, outcome)
            if outcome.findings:
                for each in result.findings[-len(outcome.findings) :]:
                    say(each)
            make_free(place)
        make_free(story_folder)
        say(f"{number}: {result.counts.total()} harms, {len(result.findings)} findings")
    return result


def make_free(place: Path) -> None:
    for each in place.rglob("*"):
        if each.is_dir() and not each.is_symlink():
            each.chmod(0o755)
    shutil.rmtree(place, onerror=None)


ALL_KINDS = [*HARMS, *OF_SERVERS]
if sys.platform != "linux":  # they need tools that are elsewhere not there
    ALL_KINDS = [each for each in ALL_KINDS if each not in ("forbidden", "no_room")]
