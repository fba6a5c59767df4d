"""The brokers of `-b`: reached or not, what they speak, and whether the addresses that they advertise lead to them.

Clients connect to the addresses that brokers advertise, not to those that they were given. An advertised address that
is right inside a container or a private network, and wrong here, is what most often keeps a client from a Kafka that
answers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from oncelog.client.errors import KafkaError
from oncelog.client.net.connection import Endpoint
from oncelog.client.net.metadata import BrokerAddress
from oncelog.client.net.opening import Opener
from oncelog.client.properties import admin_settings
from oncelog.clock import SystemClock
from oncelog.doctor.broker_answer import Answer, Outcome, ask_all
from oncelog.doctor.finding import Finding, missing, note, ok
from oncelog.doctor.kafka_release import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID, kafka_release
from oncelog.doctor.listener_wants import findings_of, wants_of
from oncelog.metrics.hosts import is_loopback

BROKERS = "brokers"


async def check_cluster(properties: Mapping[str, Any], timeout_s: float) -> list[Finding]:
    """`properties` are a client's, `bootstrap.servers` among them; what is wrong with them is raised."""
    settings = admin_settings(properties)
    opener = Opener(settings)
    given = [Endpoint(host, port) for host, port in settings.bootstrap_servers]
    protocol, now_ms = settings.security_protocol, SystemClock().now().wall_ms
    wants = await wants_of(given, timeout_s, protocol)
    found = [each for endpoint in wants for each in findings_of(_address(endpoint), wants[endpoint], protocol, now_ms)]
    # A client that would not be let in is not sent there: that is no news here, and an alarm in the server's log.
    unfit = {endpoint: each for endpoint, each in wants.items() if not each.fit(protocol)}
    outcomes = await ask_all(opener, [each for each in given if each not in unfit], timeout_s)
    answers = [each for each in outcomes.values() if isinstance(each, Answer)]
    kind = note if answers else missing
    found += [
        kind(
            BROKERS,
            f"{_address(each)} answers, and does not let this client in",
            wants[each].remedy,
            address=_address(each),
        )
        for each in unfit
    ]
    found += _unreachable(outcomes, is_any_there=bool(answers))
    if not answers:
        return found
    first = answers[0]
    found += _what_it_is(first)
    advertised = await ask_all(opener, _advertised(first), timeout_s)
    return [*found, *_advertised_findings(first, advertised)]


def _unreachable(outcomes: Mapping[Endpoint, Outcome], *, is_any_there: bool) -> Iterator[Finding]:
    for endpoint, outcome in outcomes.items():
        if isinstance(outcome, Answer):
            continue
        kind = note if is_any_there else missing
        yield kind(BROKERS, f"{_words(endpoint, outcome)}", _remedy(outcome), address=_address(endpoint))


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"


def _words(endpoint: Endpoint, error: KafkaError) -> str:
    """The client's words, without the name that it has for a broker whose number it does not know."""
    return error.str().replace(str(endpoint), _address(endpoint))


def _remedy(error: KafkaError) -> str:
    match error.code():
        case KafkaError._RESOLVE:
            return "check the name; a name of Docker's network is known only inside of it"
        case KafkaError._TIMED_OUT:
            return "check the address and the firewall; -m SECONDS waits longer"
        case KafkaError._SSL | KafkaError._AUTHENTICATION:
            return "check security.protocol and its properties, by -X NAME=VALUE or -F FILE"
        case _:
            return "start it (`oncelog serve`), or check host, port and security.protocol"


def _what_it_is(answer: Answer) -> Iterator[Finding]:
    versions, metadata = answer.versions, answer.metadata
    release = kafka_release(versions)
    what = "an oncelog server" if answer.is_oncelog else f"speaks as Apache Kafka {release} does, or newer"
    facts: dict[str, Any] = {
        "is_oncelog": answer.is_oncelog,
        "kafka_release": release,
        "cluster_id": metadata.cluster_id,
        "brokers": [f"{each.node_id}@{each.host}:{each.port}" for each in metadata.brokers.values()],
    }
    if release is None:
        yield missing("server", "older than Kafka 2.1, which the client does not speak to", "upgrade it", **facts)
        return
    count = len(metadata.brokers)
    yield ok("server", f"{what}; cluster {metadata.cluster_id}, {count} broker{'s' * (count != 1)}", **facts)
    if INIT_PRODUCER_ID not in versions:
        yield missing("idempotence", "no InitProducerId: no producer can be idempotent here", "upgrade it")
    elif DESCRIBE_PRODUCERS not in versions and not answer.is_oncelog:
        yield note(
            "idempotence",
            "idempotent producers, but no DescribeProducers: a saved producer reads the log to find where it was",
            "Kafka 2.8 or newer tells it at once",
        )
    elif not answer.grants_leases:
        yield ok("idempotence", "idempotent producers; saved ones find where they were (DescribeProducers)")
    else:
        yield ok("idempotence", "idempotent producers; saved ones hold leases")


def _advertised(answer: Answer) -> list[Endpoint]:
    return [Endpoint(each.host, each.port, each.node_id) for each in answer.metadata.brokers.values()]


def _advertised_findings(answer: Answer, outcomes: Mapping[Endpoint, Outcome]) -> Iterator[Finding]:
    for broker in answer.metadata.brokers.values():
        endpoint = Endpoint(broker.host, broker.port, broker.node_id)
        outcome = outcomes[endpoint]
        name = f"broker {broker.node_id}"
        facts = {"advertised": f"{broker.host}:{broker.port}"}
        if not isinstance(outcome, Answer):
            yield missing(
                name,
                f"advertises {broker.host}:{broker.port}, which this machine cannot use: {_words(endpoint, outcome)}",
                _advertised_remedy(broker),
                **facts,
            )
        elif _is_another(answer, outcome):
            yield missing(
                name,
                f"advertises {broker.host}:{broker.port}, where cluster {outcome.metadata.cluster_id} answers",
                _advertised_remedy(broker),
                **facts,
            )
        else:
            yield ok(name, f"{broker.host}:{broker.port} leads to it", **facts)


def _is_another(first: Answer, second: Answer) -> bool:
    one, other = first.metadata.cluster_id, second.metadata.cluster_id
    return one is not None and other is not None and one != other


def _advertised_remedy(broker: BrokerAddress) -> str:
    why = "its own machine's name for itself; " if is_loopback(broker.host) else ""
    return f"{why}set advertised.listeners of broker {broker.node_id} to an address that is reached from here"
