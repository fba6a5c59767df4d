"""Writers of one register on a log that loses answers, stores twice, compacts, and elects leaders that lag behind.

Everybody takes turns, a seed decides whose it is; a writer may sleep for as long as it likes, and end at any step. The
log is Kafka's: an append is acknowledged once all have it; a new leader has every record, but shows only those of which
it knows that all have them; it does not name an end that it cannot vouch for, yet fetches say one that lies too low.
"""

from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from oncelog.slots.register import (
    Fact,
    Gap,
    Outcome,
    ReadingBack,
    Record,
    Register,
    Subject,
    key_of_attempt,
)
from tests.model.topic import CompactedTopic

Steps = Generator[None, None, Any]
OWNER, CLAIM, STATE = "owner", "claim", "state"
END: Subject = (STATE,)
SUBJECTS = 2


@dataclass(frozen=True)
class Rules:
    """What the mutants break, beside the register itself."""

    reads_up_to_its_own: bool = True
    compares_nonces: bool = True
    has_a_key_of_its_own: bool = True
    has_a_key_for_each_attempt: bool = True
    waits_for_what_is_not_shown: bool = True
    removes_only_what_is_closed: bool = True


class Plan(Register):
    """Somebody owns the register; in each term some claim subjects; a state names them all, and opens the next term."""

    def __init__(self) -> None:
        super().__init__()
        self.owner: str | None = None
        self.state_offset = 0

    def owns(self, key: bytes) -> bool:
        return b"/" in key

    def fact_of(self, record: Record) -> Fact | None:
        assert record.value is not None
        kind, term, subject, nonce, *rest = record.value.decode().split("/")
        if kind == OWNER:
            return Fact(nonce, nonce, ((OWNER,),), None, opens=0)
        if kind == CLAIM:
            return Fact(nonce, nonce, ((CLAIM, subject),), int(term))
        owner, _, *winners = rest
        return Fact((owner, winners), nonce, (END,), int(term), opens=int(term) + 1)

    def belongs(self, fact: Fact) -> bool:
        if fact.term is None:
            return self.owner is None
        return fact.opens is None or self.owner in (None, fact.content[0])

    def admits(self, fact: Fact, subject: Subject) -> bool:
        """A state without a claim that counts is no state."""
        return subject != END or self.winners <= set(fact.content[1])

    def counted(self, fact: Fact, won: Sequence[Subject], offset: int) -> None:
        if fact.opens is not None:
            self.owner = fact.content if fact.term is None else fact.content[0]
            self.state_offset = offset

    @property
    def winners(self) -> set[str]:
        return {str(fact.nonce) for subject, fact in self.open.items() if subject != END}

    @classmethod
    def start_of(cls, tail: Sequence[Record], back: int = 0) -> int | None:
        states = [each for each in tail if each.value is not None and each.value.startswith(STATE.encode())]
        newest = max((term_of(each.key) for each in states), default=-1)
        return min((previous_of(each) for each in states if term_of(each.key) == newest), default=None)


def term_of(key: bytes | None) -> int:
    return int((key or b"").partition(b"/")[0])


def previous_of(record: Record) -> int:
    return int((record.value or b"").split(b"/")[5])


class World:
    def __init__(self, seed: int, plan: type[Plan] = Plan, rules: Rules | None = None) -> None:
        self.random = Random(seed)
        self.log = CompactedTopic(self.random)
        self.plan = plan
        self.rules = rules or Rules()
        self.count = 0
        # Who was led to believe that its own is the fact that counts.
        self.believed: defaultdict[tuple[int, Subject], set[str]] = defaultdict(set)

    def run(self, steps: int) -> None:
        writers: list[Steps] = []
        for _ in range(steps):
            self.turn_of_the_log()
            if len(writers) < 4:
                writers.append(self.writer())
            each = self.random.choice(writers[:2] if self.random.random() < 0.7 else writers)  # some sleep for long
            try:
                next(each)
                is_over = self.random.random() < 0.01  # killed
            except StopIteration:
                is_over = True
            if is_over:
                writers.remove(each)
            if self.random.random() < 0.1:
                self.check()
        self.check()

    def turn_of_the_log(self) -> None:
        chance = self.random.random()
        if chance < 0.05:
            self.log.compact()
        elif chance < 0.1:
            self.log.elect()
        elif chance < 0.5:
            self.log.shown = min(self.log.end, self.log.shown + 1)

    # --- what a writer does

    def writer(self) -> Steps:
        """Read, claim, perhaps save; and again with what it knows, however long it slept in between."""
        known = yield from self.read_anew()
        for _ in range(self.random.randint(1, 4)):
            yield
            known = yield from self.read_on(known)
            nonce = self.nonce()
            if known.term is None:
                known, _ = yield from self.append(known, OWNER, 0, nonce, [])
                continue
            term, subject = known.term, str(self.random.randrange(SUBJECTS))
            known, outcome = yield from self.append(known, CLAIM, term, nonce, [], subject)
            if outcome is Outcome.OWN:
                self.believed[term, (CLAIM, subject)].add(nonce)
            if known.term == term and self.random.random() < 0.5:
                yield
                yield from self.save(known, term)

    def save(self, known: Plan, term: int) -> Steps:
        nonce = self.nonce()
        claims = self.rules.removes_only_what_is_closed
        old = [key for key in known.keys if term_of(key) < term - (2 if STATE.encode() in key else 1) or not claims]
        names = "/".join([str(known.owner), str(known.state_offset), *sorted(known.winners)])
        known, outcome = yield from self.append(known, STATE, term, nonce, old, names)
        if outcome is Outcome.OWN:
            self.believed[term, END].add(nonce)

    def append(self, known: Plan, kind: str, term: int, nonce: str, old: list[bytes], what: str = "-") -> Steps:
        """(what is known then, what came of it)"""
        subject = what if kind == CLAIM else kind
        value = f"{kind}/{term}/{subject}/{nonce}/{what if kind == STATE else ''}".encode()
        key = f"{term}/{kind}/{subject if kind == CLAIM else ''}".encode()
        if self.rules.has_a_key_of_its_own:
            key += f"/{nonce}".encode()
        attempt = 1
        while True:
            yield
            kept = attempt if self.rules.has_a_key_for_each_attempt else 1
            offset = self.log.store([(key_of_attempt(key, kept), value), *((each, None) for each in old)])
            if self.random.random() < 0.7:
                break
            attempt += 1  # the answer was lost
        while self.log.shown <= offset:  # acknowledged once all have it
            yield
        if self.rules.reads_up_to_its_own:
            known = yield from self.read_on(known, offset)
        else:
            known.next_offset = max(known.next_offset, offset)
            known.read([Record(offset, key, value)])
        about = None if kind == OWNER else term
        outcome = known.outcome((kind, what) if kind == CLAIM else (kind,), nonce, about)
        if not self.rules.compares_nonces and outcome is Outcome.OTHERS:
            outcome = Outcome.OWN
        return known, outcome

    # --- how it reads

    def read_on(self, known: Plan, up_to: int = -1) -> Steps:
        while True:
            yield
            records, next_offset = self.log.fetch(known.next_offset)
            try:
                known.read(records)
            except Gap:
                known = yield from self.read_anew()
                continue
            known.next_offset = max(known.next_offset, next_offset)
            if known.next_offset > up_to and not (up_to < 0 and records):
                return known

    def read_anew(self) -> Steps:
        while True:
            while self.log.shown < self.log.end:  # a leader names no end that it cannot vouch for
                yield
            reading = ReadingBack(self.plan.start_of, 0, self.log.end)
            while (wanted := reading.wanted) is not None:
                reading.got((yield from self.between(*wanted)))
            known = self.plan()
            try:
                known.read(reading.records, from_offset=self.plan.start_of(reading.records) or 0)
            except Gap:  # it was compacted in between
                yield
                continue
            known.next_offset = max(known.next_offset, reading.end)
            return known

    def between(self, at: int, end: int) -> Steps:
        found: list[Record] = []
        while at < end:
            yield
            records, next_offset = self.log.fetch(at)
            found += [each for each in records if each.offset < end]
            if next_offset > at:
                at = next_offset
            elif not self.rules.waits_for_what_is_not_shown:
                break
        return found

    # --- what must be true

    def check(self) -> None:
        """What somebody was led to believe is what a reader finds who comes now, and reads quickly."""
        self.log.shown = self.log.end
        reading = self.read_anew()
        try:
            while True:
                next(reading)
        except StopIteration as end:
            known: Plan = end.value
        for (term, subject), nonces in self.believed.items():
            assert len(nonces) == 1, f"{sorted(nonces)} all believe in their {subject} of term {term}"
            assert known.term is not None, "what somebody owns is nobody's"
            if term not in (known.term, known.term - 1):
                assert term < known.term, f"term {term} was open, and a reader comes to {known.term}"
                continue
            found = known.fact(subject, term)
            is_seen = found is not None or (term < known.term and subject != END)
            assert is_seen, f"{subject} of term {term} counted, and is not found"
            assert found is None or found.nonce in nonces, f"{subject} of term {term} is somebody else's now"

    def nonce(self) -> str:
        self.count += 1
        return f"n{self.count}"
