"""The SASL mechanisms that a listener may have, said at the start."""

from oncelog.server.endpoints import endpoints
from oncelog.server.settings import Settings
from oncelog.server.tokens import check_possible
from oncelog.settings import SettingsError

IN_THE_CLEAR = ("PLAIN", "OAUTHBEARER")  # password or token itself is what they send


def check_mechanisms(settings: Settings) -> None:
    """Raises SettingsError."""
    guarded = [each for each in endpoints(settings) if each.is_sasl]
    for each in guarded:
        _check(each.name, each.protocol, settings.of_listener(each.name))


def _check(listener: str, protocol: str, settings: Settings) -> None:
    mechanisms = settings.sasl_enabled_mechanisms
    if not mechanisms:
        raise SettingsError(f"sasl.enabled.mechanisms is empty: nobody could prove who they are on {listener}")
    if "OAUTHBEARER" in mechanisms:
        check_possible(settings)
    shown = [each for each in IN_THE_CLEAR if each in mechanisms]
    if protocol == "SASL_PLAINTEXT" and shown and not settings.oncelog_sasl_without_tls:
        what = "passwords" if shown[0] == "PLAIN" else "tokens"
        raise SettingsError(
            f"{' and '.join(shown)} on the listener {listener}: {what} would travel as they are, for everybody "
            "on the way to read. Make it SASL_SSL, leave SCRAM alone in sasl.enabled.mechanisms, or say "
            "oncelog.sasl.without.tls=true"
        )
