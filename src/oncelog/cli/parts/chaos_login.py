"""The options of `oncelog chaos` for getting into a Kafka of the user's."""

from typing import Any

import click

from oncelog.chaos.sinks import KAFKA
from oncelog.cli.parts.options import ADMIN, connecting_by


def login_of(given: dict[str, Any]) -> dict[str, str]:
    """The properties that say it; of others the experiment has its own. What cannot be meant is refused here, before
    anything starts."""
    from oncelog.chaos.kafka_login import NotForJava, behind_proxy, for_java, is_of_login
    from oncelog.client.properties import admin_settings

    if not given["servers"]:
        if given["given"] or given["file"]:
            raise click.UsageError("-X and -F say how to get into a Kafka of yours, which --servers names")
        return {}
    for each in given["given"]:
        name = each.partition("=")[0].strip()
        if "=" in each and not is_of_login(name):
            raise click.UsageError(
                f"-X {name}: only how to get in can be said (security.protocol, sasl.*, ssl.*); "
                "the other properties are the experiment's"
            )
    properties = connecting_by(given["servers"], given["given"], given["file"], 0.0).of(ADMIN)
    admin_settings(properties)
    login = {name: value for name, value in properties.items() if is_of_login(name)}
    try:
        if given["client"] == "java":
            for_java(behind_proxy(login))
        if given["sink"] == KAFKA:
            for_java(login)
    except NotForJava as refusal:
        raise click.UsageError(str(refusal)) from None
    except OSError as refusal:
        raise click.UsageError(f"{refusal.filename} cannot be read: {refusal.strerror}") from None
    return login
