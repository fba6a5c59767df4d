"""A member that its group has thrown out."""

from oncelog.client.errors import KafkaError
from oncelog.client.groups.membership_steps import Revoke
from tests.client.groups.test_membership import settled


def test_who_was_thrown_out_knows_why_until_it_is_a_member_again_or_has_left() -> None:
    told = settled()
    assert told.machine.thrown_out is None
    told.at(61_000).act()
    assert told.machine.thrown_out == KafkaError._MAX_POLL_EXCEEDED
    told.machine.application_done()
    told.machine.polled(told.now_ms)
    told.joined(generation=2)
    assert told.machine.thrown_out is None
    told = settled()
    told.at(2000).beaten(KafkaError.UNKNOWN_MEMBER_ID)
    assert told.machine.thrown_out == KafkaError.UNKNOWN_MEMBER_ID
    told.done(Revoke)
    told.machine.leave()
    told.act()
    assert told.machine.is_out and told.machine.thrown_out is None
