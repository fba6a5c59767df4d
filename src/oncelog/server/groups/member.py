"""One member of a group, and the members together: who they are, what they have in common, who waits."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from oncelog.server.groups.messages import MEMBER_BYTES, JoinRequest, StoredMember, Waiter, bytes_of_protocols

Protocols = dict[str, bytes]  # name to metadata, in the member's order of preference


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # has not been in a generation yet
    knows_its_id: bool = True  # False: the id travels in the join answer that it waits for
    session_deadline_ms: int | None = None
    noted_ms: int | None = None  # where it stands among the deadlines of the group
    join_waiter: Waiter | None = None
    sync_waiter: Waiter | None = None

    @property
    def is_waiting(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    def has_protocols(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """The same names and metadata in the same order: the order is the member's vote."""
        return tuple(self.protocols.items()) == protocols

    def stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(  # for each of thousands at a time: names would take as long again
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols.get(protocol_name or "", b""),
            assignment,
        )


def new_member(request: JoinRequest, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=dict(request.protocols),
        is_new=True,
        knows_its_id=request.member_id == member_id,
    )


def restored_member(stored: StoredMember, protocol_name: str | None) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols={protocol_name or "": stored.subscription},
        assignment=stored.assignment,
    )


class Members:
    """The members in the order in which they came, with the counts that each join would else have to take anew."""

    def __init__(self) -> None:
        # Where the eldest leave one after the other, a plain dict looks at the places of all that left before.
        self._by_id: OrderedDict[str, Member] = OrderedDict()
        self._id_by_instance: dict[str, str] = {}
        self._support: dict[str, int] = {}  # protocol name to the number of members that know it
        self._joining = 0
        self._waiting: dict[Waiter, Member] = {}
        self.held_bytes = 0  # about

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def __getitem__(self, member_id: str) -> Member:
        return self._by_id[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def id_of_instance(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self._id_by_instance.get(instance_id)

    @property
    def eldest(self) -> Member | None:
        return next(iter(self._by_id.values()), None)

    def who_waits(self, waiter: Waiter) -> Member | None:
        return self._waiting.get(waiter)

    @property
    def joining(self) -> int:
        return self._joining

    @property
    def all_are_joining(self) -> bool:
        return self._joining == len(self._by_id)

    def add(self, member: Member) -> None:
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._id_by_instance[member.instance_id] = member.member_id
        self._add_support(member.protocols)
        self.held_bytes += MEMBER_BYTES + bytes_of_protocols(member.protocols.items())
        self._joining += member.join_waiter is not None

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is not None:
            if member.instance_id is not None:
                del self._id_by_instance[member.instance_id]
            self._unsupport(member)
            self.held_bytes -= MEMBER_BYTES
            self._joining -= member.join_waiter is not None
            self._waiting.pop(member.join_waiter, None)
            self._waiting.pop(member.sync_waiter, None)
        return member

    def update(self, member: Member, request: JoinRequest) -> None:
        self._unsupport(member)
        member.protocols = dict(request.protocols)
        self._add_support(member.protocols)
        self.held_bytes += request.protocols_bytes
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms

    def _add_support(self, names: Iterable[str]) -> None:
        for name in names:
            self._support[name] = self._support.get(name, 0) + 1

    def _unsupport(self, member: Member) -> None:
        """Names that are no longer in use are forgotten: clients make them up."""
        self.held_bytes -= bytes_of_protocols(member.protocols.items())
        for name in member.protocols:
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]

    def set_join_waiter(self, member: Member, waiter: Waiter | None) -> Waiter | None:
        """The waiter that was there before, if any: a member waits at one place."""
        former = member.join_waiter
        member.join_waiter = waiter
        self._joining += (waiter is not None) - (former is not None)
        self._note_waiter(former, waiter, member)
        return former

    def set_sync_waiter(self, member: Member, waiter: Waiter | None) -> Waiter | None:
        former = member.sync_waiter
        member.sync_waiter = waiter
        self._note_waiter(former, waiter, member)
        return former

    def _note_waiter(self, former: Waiter | None, waiter: Waiter | None, member: Member) -> None:
        self._waiting.pop(former, None)
        if waiter is not None:
            self._waiting[waiter] = member

    def have_in_common(self, names: Iterable[str]) -> bool:
        return any(self._support.get(name, 0) == len(self._by_id) for name in names)

    def vote(self) -> str | None:
        """Each member votes for the first of its protocols that all have in common; a tie goes to the older member."""
        votes: Counter[str] = Counter()
        for member in self._by_id.values():
            for name in member.protocols:
                if self._support[name] == len(self._by_id):
                    votes[name] += 1
                    break
        return max(votes, key=votes.__getitem__, default=None)
