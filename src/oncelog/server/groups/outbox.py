"""The output of a group: answers to those who wait, and changes to be stored, in order."""

from oncelog.server.errors import ErrorCode
from oncelog.server.groups.member import Member, Members
from oncelog.server.groups.messages import Answer, Effect, JoinAnswer, SyncAnswer


class Outbox:
    def __init__(self, members: Members) -> None:
        self._members = members
        self._effects: list[Effect] = []

    def put(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        waiter = self._members.set_join_waiter(member, None)
        if waiter is not None:
            self.put(Answer(waiter, answer))

    def answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        waiter = self._members.set_sync_waiter(member, None)
        if waiter is not None:
            self.put(Answer(waiter, answer))

    def answer_removed(self, member: Member, error: ErrorCode) -> None:
        """The member is no longer among the members, whose counts `answer_join` keeps."""
        if member.join_waiter is not None:
            member_id = member.member_id if error is ErrorCode.fenced_instance_id else ""
            self.put(Answer(member.join_waiter, JoinAnswer(error=error, member_id=member_id)))
            member.join_waiter = None
        self.answer_sync(member, SyncAnswer(error=error))
