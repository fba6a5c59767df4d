"""For how long stock Kafka remembers a producer: an idempotent batch that is sent again later is stored again.

The broker says it (`producer.id.expiration.ms`) to who may describe its configuration. Before Kafka 3.4 the time was
that of transactional ids. A client that may not know it assumes little: that costs only records with old timestamps,
which then travel one batch at a time.
"""

from typing import TYPE_CHECKING, Any, Final

from oncelog.wire.requests import RequestSchema

if TYPE_CHECKING:
    from oncelog.client.net.brokers import Brokers

UNKNOWN_MS: Final = 3_600_000
BROKER: Final = 4  # the kind of resource
MOST_LETTERS: Final = 20  # of a number of 64 bits
NAMES: Final = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


async def forgotten_after_ms(brokers: "Brokers", *, is_shared: bool = False) -> int | None:
    """None where the broker does not say. Oncelog goes by leases, and is only asked where slots are shared: there are
    none then."""
    connection = await brokers.connection(None)
    if connection.is_oncelog and not is_shared:
        return None
    node_id = connection.node_id
    if node_id is None:
        node_id = min((await brokers.refresh(())).brokers, default=None)
    if node_id is None:
        return None  # a cluster that names no brokers
    answer = await brokers.request(node_id, "describe_configs", lambda spoken: _request(spoken, node_id))
    values = {entry.name: entry.value for result in answer.results if not result.error_code for entry in result.configs}
    return next((int(values[name]) for name in NAMES if _is_number(values.get(name) or "")), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < MOST_LETTERS


def _request(spoken: RequestSchema, node_id: int) -> Any:
    """A broker is asked about itself."""
    resource = spoken.new(
        "DescribeConfigsResource", resource_type=BROKER, resource_name=str(node_id), configuration_keys=NAMES
    )
    return spoken.new(
        "DescribeConfigsRequest", resources=(resource,), include_synonyms=False, include_documentation=False
    )
