"""Quotas: what may be set, for whom, and what is found again. Names are the topic's, so that questions do not meet."""

from typing import Any

from tests.peers.questions.asking import question, settled
from tests.raw import RawConnection

ANY, EXACT, DEFAULT = 2, 0, 1


def altered(c: RawConnection, *entries: tuple[dict[str, str | None], dict[str, float | None]], **more: Any) -> object:
    asked = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names.items()],
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()],
        }
        for names, values in entries
    ]
    answer = c.call("alter_client_quotas", 1, entries=asked, **{"validate_only": False, **more})
    return sorted((each.error_code.name, each.error_message or "") for each in answer.entries)


def described(c: RawConnection, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = c.call("describe_client_quotas", 1, components=asked, strict=strict)
    if answer.error_code.name != "none":
        return answer.error_code.name, answer.error_message, answer.entries
    return sorted(
        (
            sorted((each.entity_type, each.entity_name or "<default>") for each in entry.entity),
            sorted((each.key, each.value) for each in entry.values),
        )
        for entry in answer.entries
    )


@question
def quotas_of_values_that_say_nothing(c: RawConnection, topic: str) -> object:
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
    values = (0.0, -1.0, 1.5, 1e30, 9.3e18)
    refused = [altered(c, ({"user": topic}, {key: value}), validate_only=True) for key in keys for value in values]
    address: dict[str, str | None] = {"ip": "127.0.0.9"}
    return refused, [altered(c, (address, {"connection_creation_rate": each}), validate_only=True) for each in values]


@question
def quotas_that_are_no_numbers(c: RawConnection, topic: str) -> object:
    return [
        altered(c, ({"user": topic}, {key: value}), validate_only=True)[0][0]  # type: ignore[index]
        for key, value in (("producer_byte_rate", float("nan")), ("request_percentage", float("inf")))
    ]


@question
def quotas_of_entities_that_there_cannot_be(c: RawConnection, topic: str) -> object:
    rate: dict[str, float | None] = {"producer_byte_rate": 4.0}
    connections: dict[str, float | None] = {"connection_creation_rate": 4.0}
    return [
        altered(c, ({}, rate)),
        altered(c, ({"nope": "x"}, rate)),
        altered(c, ({"user": ""}, rate)),
        altered(c, ({"client-id": ""}, rate)),
        altered(c, ({"user": topic, "ip": "1.2.3.4"}, rate)),
        altered(c, ({"ip": "not an ip"}, connections)),
        altered(c, ({"ip": "1.2.3.4"}, rate)),
        altered(c, ({"user": topic}, connections)),
        altered(c, ({"user": topic}, {"nope": 3.0})),
        altered(c, ({"user": topic}, {"nope": None})),
        altered(c),
    ]


@question
def quotas_named_twice_in_one_request(c: RawConnection, topic: str) -> object:
    names: dict[str, str | None] = {"user": "u-" + "x" * 3, "client-id": "twice"}
    answers = altered(c, (names, {"producer_byte_rate": 4.0}), (names, {"producer_byte_rate": 5.0}), validate_only=True)
    ops = [{"key": "producer_byte_rate", "value": value, "remove": False} for value in (4.0, 5.0)]
    entity = [{"entity_type": "user", "entity_name": "u"}]
    answer = c.call("alter_client_quotas", 1, entries=[{"entity": entity, "ops": ops}], validate_only=True)
    return answers, answer.entries[0].error_message


@question
def quotas_are_set_found_and_removed(c: RawConnection, topic: str) -> object:
    user: dict[str, str | None] = {"user": topic}
    both: dict[str, str | None] = {"user": topic, "client-id": None}
    set_them = altered(
        c,
        (user, {"producer_byte_rate": 4.0, "request_percentage": 2.5}),
        (both, {"consumer_byte_rate": 5.0}),
        ({"user": ""}, {"consumer_byte_rate": 5.0}),
        ({"user": topic + "/=%<default>"}, {"consumer_byte_rate": 5.0}),
    )
    own = ("user", EXACT, topic)

    def found_now(*components: tuple[str, int, str | None], strict: bool = False) -> str:
        return str(described(c, *(components or (own,)), strict=strict)).replace(topic, "NAME")

    wanted = [
        ([("client-id", "<default>"), ("user", "NAME")], [("consumer_byte_rate", 5.0)]),
        ([("user", "NAME")], [("producer_byte_rate", 4.0), ("request_percentage", 2.5)]),
    ]
    found = settled(found_now, str(wanted))
    odd = found_now(("user", EXACT, topic + "/=%<default>"))
    filters = [
        found_now(own, strict=True),
        found_now(own, ("client-id", DEFAULT, None)),
        found_now(own, ("client-id", ANY, None), strict=True),
        found_now(own, ("client-id", EXACT, "x")),
        described(c, strict=True),
    ]
    removed = altered(c, (user, {"producer_byte_rate": None, "request_percentage": None, "never_set": None}))
    left = settled(found_now, str(wanted[:1]))
    return set_them, found, odd, filters, removed, left


@question
def quotas_asked_for_by_wrong_filters(c: RawConnection, topic: str) -> object:
    return [
        described(c, ("user", EXACT, None)),
        described(c, ("user", DEFAULT, "x")),
        described(c, ("user", ANY, "x")),
        described(c, ("user", ANY, None), ("user", DEFAULT, None)),
        described(c, ("", ANY, None)),
        described(c, ("nope", ANY, None)),
        described(c, ("user", 9, None)),
        described(c, ("ip", ANY, None), ("user", ANY, None)),
    ]
