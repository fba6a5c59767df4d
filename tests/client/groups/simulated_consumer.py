"""The same world with a group of KIP-848: its coordinator is the server's pure group, whose log another broker reads
back when it moves. Topics come, grow and go.

That a member is out of its group it hears from an answer alone. So one that the coordinator has thrown out may still
have what another was given; no other may.
"""

from uuid import UUID

from oncelog.client.errors import KafkaError
from oncelog.client.groups.consumer_membership import ConsumerMembership
from oncelog.client.groups.membership_steps import (
    Beat,
    Beaten,
    FindCoordinator,
    FindNames,
    Leave,
    MemberLimits,
)
from oncelog.client.groups.membership_steps import Place as OurPlace
from oncelog.server.coordinator_topic import KeyValue
from oncelog.server.errors import ErrorCode
from oncelog.server.errors import KafkaError as Refusal
from oncelog.server.groups.consumer.group import ConsumerGroup
from oncelog.server.groups.consumer.records import encode
from oncelog.server.groups.consumer.values import JOINS, LEAVES, LEAVES_FOR_A_WHILE, BeatAnswer, ConsumerLimits, Place
from oncelog.server.groups.consumer.values import Beat as Heard
from tests.client.groups.simulated import HANG_MS, POLL_MS, SESSION_MS, Sim, World
from tests.server.groups.consumer_model import ModelTopics, replayed

BEAT_MS = 300
LONG_MS = 2 * SESSION_MS
LIMITS = ConsumerLimits(session_timeout_ms=SESSION_MS, heartbeat_interval_ms=BEAT_MS, max_members=20)


class ConsumerWorld(World):
    def __init__(self, seed: int, *, is_slow: bool = True) -> None:
        super().__init__(seed)
        self.topics = ModelTopics()
        self.group = ConsumerGroup("g", lambda _: LIMITS)
        self.log: list[KeyValue] = []
        self.node_id = 1
        self.is_slow = is_slow  # some calls of the application take longer than a session, or than a rebalance may
        self._down_until_ms = 0

    def machine(self, name: str, limits: MemberLimits) -> ConsumerMembership:
        return ConsumerMembership(limits, name, self.chance.random)

    def has_thrown_out(self, member: Sim) -> bool:
        return member.name not in self.group.members.said

    def call_takes_ms(self) -> int:
        often = super().call_takes_ms()
        return self.chance.choice((*[often] * 20, LONG_MS, POLL_MS + LONG_MS)) if self.is_slow else often

    def moves(self, down_ms: int) -> None:
        """The coordinator is killed; in a while another broker has read back what of its log compaction leaves."""
        self.lines.append(f"{self.now_ms} the coordinator is killed for {down_ms} ms")
        self.node_id += 1
        self._down_until_ms = self.now_ms + down_ms
        compacted = dict(self.log)
        self.log = [each for each in compacted.items() if each[1] is not None]
        self.group = replayed(list(compacted.items()), LIMITS)
        self.at(self._down_until_ms, 2, self._restored)

    def _restored(self) -> None:
        self.group.sharing.restored(self.now)
        self._set_alarm()

    # --- what arrives

    def arrives(self, member: Sim, action: object) -> None:
        machine = member.machine
        assert isinstance(machine, ConsumerMembership)
        if isinstance(action, FindNames):
            request_id = action.request_id
            known = {UUID(bytes=each.topic_id): name for name, each in self.topics.known.items()}
            names = {topic_id: known[topic_id] for topic_id in action.topic_ids if topic_id in known}
            self.answer(member, request_id, lambda: machine.named(request_id, names, self.now_ms))
        elif self.now_ms < self._down_until_ms:
            self.cut(member, action)
        elif isinstance(action, FindCoordinator):
            self.answer(member, action.request_id, lambda: machine.coordinator_found(action.request_id, self.node_id))
        elif isinstance(action, Leave):
            epoch = LEAVES if machine.limits.instance_id is None else LEAVES_FOR_A_WHILE
            heard = Heard(member_id=action.member_id, epoch=epoch, instance_id=machine.limits.instance_id)
            code = int(self._hear(action.node_id, heard).error)
            self.answer(member, action.request_id, lambda: machine.left(action.request_id, code))
        else:
            assert isinstance(action, Beat)
            answer = beaten(self._hear(action.node_id, self._heard(machine, action)))
            if answer.error_code:
                self.lines.append(f"{self.now_ms} {member.name} is refused: {answer.error_code}")
            self.answer(member, action.request_id, lambda: machine.beaten(action.request_id, answer, self.now_ms))

    def cut(self, member: Sim, action: object) -> None:
        request_id = getattr(action, "request_id", 0)

        def told() -> None:
            if not member.is_dead:
                member.machine.failed(request_id, KafkaError(KafkaError._TRANSPORT, "cut", retriable=True), self.now_ms)
                member.run()

        self.at(self.now_ms + self.chance.choice((0, 10, HANG_MS)), 1, told)

    def _heard(self, machine: ConsumerMembership, said: Beat) -> Heard:
        assert said.epoch != JOINS or (said.is_whole and not said.owned), "so it is to be when it joins"
        owned = None if said.owned is None else frozenset(Place(each.bytes, index) for each, index in said.owned)
        return Heard(
            member_id=said.member_id,
            epoch=said.epoch,
            instance_id=machine.limits.instance_id,
            rebalance_timeout_ms=POLL_MS if said.is_whole else -1,
            topics=None if said.wanted is None else tuple(sorted(said.wanted.topics)),
            pattern=None if said.wanted is None else said.wanted.pattern,
            owned=owned,
        )

    def _hear(self, node_id: int, heard: Heard) -> BeatAnswer:
        if node_id != self.node_id:
            return BeatAnswer(ErrorCode.not_coordinator)
        try:
            answer = self.group.heartbeat(heard, self.topics, self.now)
        except Refusal as refusal:
            self.group.sharing.take_back(self.now)
            return BeatAnswer(refusal.code, refusal.message)
        self._store()
        self._set_alarm()
        return answer

    def _store(self) -> None:
        self.log += [encode("g", change) for change in self.group.members.done]
        self.group.members.stored()

    def _set_alarm(self) -> None:
        if self.group.wake_ms is not None:
            self.at(max(self.group.wake_ms, self.now_ms), 2, self._tick)

    def _tick(self) -> None:
        is_up = self.now_ms >= self._down_until_ms
        if is_up and self.group.wake_ms is not None and self.group.wake_ms <= self.now_ms:
            self.group.fence_late(self.topics, self.now)
            self._store()
            self._set_alarm()


def beaten(answer: BeatAnswer) -> Beaten:
    assigned: frozenset[OurPlace] | None = None
    if answer.assigned is not None:
        assigned = frozenset((UUID(bytes=place.topic_id), place.partition) for place in answer.assigned)
    return Beaten(int(answer.error), answer.message, answer.epoch, answer.heartbeat_interval_ms, assigned)
