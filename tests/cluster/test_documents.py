"""What brokers write down for each other."""

from oncelog.cluster.documents import NodeDocument, decode_node, encode_node
from oncelog.server.ports import Member


def test_a_brokers_listeners_stay_in_their_order() -> None:
    """The others connect to the first one; a later one may be of clients who come from elsewhere."""
    endpoints = {"PLAINTEXT": ("broker1", 9092), "HOST": ("127.0.0.1", 19092)}
    found = decode_node(encode_node(NodeDocument("folder", Member(endpoints, None))))
    assert list(found.member.endpoints.items()) == list(endpoints.items())
