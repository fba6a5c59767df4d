"""`bootstrap.servers`: hosts and ports."""

from oncelog.client.errors import invalid_argument

Address = tuple[str, int]
DEFAULT_PORT = 9092


def parse_servers(text: str) -> tuple[Address, ...]:
    """Hosts with commas between; librdkafka's `plaintext://` before one is allowed and says nothing."""
    return tuple(_parse(each.strip()) for each in text.split(",") if each.strip())


def _parse(address: str) -> Address:
    place = address.rpartition("://")[2]
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
        is_well_formed = bool(host and bracket) and (not rest or rest.startswith(":"))
    else:
        host, _, port = place.partition(":") if place.count(":") == 1 else (place, "", "")
        is_well_formed = bool(host)
    is_port = not port or (port.isascii() and port.isdigit() and 0 < int(port) < 65536)
    if not is_well_formed or not is_port or place.endswith(":"):
        raise invalid_argument(f'bootstrap.servers: "{address}" is not a host or host:port')
    if place.isascii() and place.isdigit():
        words = f'bootstrap.servers: "{address}" is a port alone: HOST:PORT is wanted, such as 127.0.0.1:{address}'
        raise invalid_argument(words)
    return host, int(port) if port else DEFAULT_PORT
