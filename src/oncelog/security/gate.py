"""The requests that are allowed before, while and after a client proves who it is: one table, after Kafka's.

BEGUN --versions--> VERSIONS_TOLD --handshake--> PROVING --the proof is good--> OPEN
  `--------------handshake---------------------^                                 | handshake, where sessions end
                                                `--------------------------------'
"""

from collections.abc import Mapping
from enum import Enum, auto

API_VERSIONS = 18
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
TOKENS_IN_FRAMES = 1  # from this version of the handshake on tokens come in requests; before it as they are
MOST_VERSIONS = 4  # ApiVersions before the proof: of a version that is too new, one is asked for again
AGAIN_MS = 1000  # a proof is given again once a second at the most

NOT_YET = "Unexpected Kafka request of type {} during SASL handshake."
NOT_BETWEEN = "Unexpected Kafka request of type {} during SASL authentication."
IT_IS_OVER = "the time of its proof is over"


class State(Enum):
    BEGUN = auto()
    VERSIONS_TOLD = auto()
    PROVING = auto()
    PROVING_RAW = auto()  # each frame is a token
    OTHER_MECHANISM = auto()  # a proof was begun again by another one: whatever comes next is refused
    OPEN = auto()
    ENDED = auto()  # the proof's time is over
    FAILED = auto()


class Asked(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    OTHER = auto()


class Verdict(Enum):
    SERVE = auto()
    TOKEN = auto()  # it is no request
    AGAIN = auto()  # the proof begins once more; the handshake is served after that
    REFUSE = auto()  # it is answered ILLEGAL_SASL_STATE, and the connection closed
    CLOSE = auto()


_KINDS = {API_VERSIONS: Asked.VERSIONS, SASL_HANDSHAKE: Asked.HANDSHAKE, SASL_AUTHENTICATE: Asked.TOKEN}

TABLE: Mapping[State, Mapping[Asked, Verdict]] = {
    State.BEGUN: {
        Asked.VERSIONS: Verdict.SERVE,
        Asked.HANDSHAKE: Verdict.SERVE,
        Asked.TOKEN: Verdict.CLOSE,
        Asked.OTHER: Verdict.CLOSE,
    },
    State.VERSIONS_TOLD: {
        Asked.VERSIONS: Verdict.CLOSE,
        Asked.HANDSHAKE: Verdict.SERVE,
        Asked.TOKEN: Verdict.CLOSE,
        Asked.OTHER: Verdict.CLOSE,
    },
    State.PROVING: {
        Asked.VERSIONS: Verdict.REFUSE,
        Asked.HANDSHAKE: Verdict.REFUSE,
        Asked.TOKEN: Verdict.SERVE,
        Asked.OTHER: Verdict.REFUSE,
    },
    State.PROVING_RAW: dict.fromkeys(Asked, Verdict.TOKEN),
    State.OTHER_MECHANISM: dict.fromkeys(Asked, Verdict.CLOSE),
    State.OPEN: dict.fromkeys(Asked, Verdict.SERVE),
    State.ENDED: {
        Asked.VERSIONS: Verdict.CLOSE,
        Asked.HANDSHAKE: Verdict.AGAIN,
        Asked.TOKEN: Verdict.CLOSE,
        Asked.OTHER: Verdict.CLOSE,
    },
    State.FAILED: dict.fromkeys(Asked, Verdict.CLOSE),
}


class Gate:
    """The gate of one connection."""

    def __init__(self) -> None:
        self._state = State.BEGUN
        self.mechanism = ""
        self.principal: str | None = None  # whose proof was good
        self._ends_ms: int | None = None
        self._begun_again_ms: int | None = None
        self._versions_asked = 0

    def state(self, now_ms: int) -> State:
        if self._state is State.OPEN and self._ends_ms is not None and now_ms >= self._ends_ms:
            return State.ENDED
        return self._state

    def is_open(self, now_ms: int) -> bool:
        return self._state is State.OPEN and (self._ends_ms is None or now_ms < self._ends_ms)

    @property
    def has_failed(self) -> bool:
        return self._state is State.FAILED

    @property
    def is_raw(self) -> bool:
        return self._state is State.PROVING_RAW

    @property
    def is_again(self) -> bool:
        return self.principal is not None

    def verdict(self, key: int, now_ms: int) -> Verdict:
        asked = _KINDS.get(key, Asked.OTHER)
        if asked is Asked.VERSIONS and self._state is State.BEGUN and self._versions_asked >= MOST_VERSIONS:
            return Verdict.CLOSE
        verdict = TABLE[self.state(now_ms)][asked]
        return Verdict.CLOSE if verdict is Verdict.AGAIN and not self._may_begin_again(now_ms) else verdict

    def begins_again(self, key: int, now_ms: int) -> bool:
        """Whether an open connection's request makes it prove once more who it is. Where sessions do not end, and when
        it has done so a moment ago, it does not: that is answered as a handshake at the wrong time."""
        return (
            key == SASL_HANDSHAKE
            and self._state is State.OPEN
            and self._ends_ms is not None
            and self._may_begin_again(now_ms)
        )

    def _may_begin_again(self, now_ms: int) -> bool:
        return self._begun_again_ms is None or now_ms - self._begun_again_ms >= AGAIN_MS

    # What happened

    def versions_asked(self) -> None:
        self._versions_asked += 1

    def versions_told(self) -> None:
        if self._state is State.BEGUN:
            self._state = State.VERSIONS_TOLD

    def begin_again(self, now_ms: int) -> None:
        self._begun_again_ms = now_ms
        self._state = State.VERSIONS_TOLD

    def begin(self, mechanism: str, version: int) -> bool:
        """Begin by a handshake. False where the mechanism is not the one of the proof before."""
        if self.is_again and mechanism != self.mechanism:
            self._state = State.OTHER_MECHANISM
            return False
        self.mechanism = mechanism
        self._state = State.PROVING if version >= TOKENS_IN_FRAMES else State.PROVING_RAW
        return True

    def open(self, principal: str, ends_ms: int | None) -> None:
        self.principal = principal
        self._ends_ms = ends_ms
        self._state = State.OPEN

    def fail(self) -> None:
        self._state = State.FAILED


def failed(mechanism: str, *, is_again: bool) -> str:
    """The answer to a wrong proof, whatever was wrong with it."""
    which = "re-authentication" if is_again else "authentication"
    return f"Authentication failed during {which} due to invalid credentials with SASL mechanism {mechanism}"


def other_principal(before: str, now: str) -> str:
    def told(principal: str) -> str:
        kind, _, name = principal.partition(":")
        return f"{kind}.{name}"

    return f"Cannot change principals during re-authentication from {told(before)}: {told(now)}"


def lifetime_ms(most_ms: int, expires_in_ms: int | None) -> int | None:
    """The time for which a proof counts; None for as long as the connection lasts."""
    ends = [each for each in (most_ms or None, expires_in_ms) if each is not None]
    return max(min(ends), 0) if ends else None
