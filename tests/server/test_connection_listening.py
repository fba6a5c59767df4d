"""What a person is told about where the server listens, and how many connections it dares to take."""

import resource

import pytest

from oncelog.embedded import Server
from oncelog.server import process
from oncelog.server.running import ready_line
from oncelog.wire.messages import schema


def test_one_address_is_told_as_it_is_bound() -> None:
    with Server() as server:
        assert ready_line(server.service).startswith(f"oncelog listens on {server.bootstrap_servers} and keeps")


def test_that_every_interface_is_open_is_not_hidden() -> None:
    with Server(listeners="PLAINTEXT://0.0.0.0:0") as server:
        port = server.broker.ports["PLAINTEXT"]
        told = f"listens on 0.0.0.0:{port} (every interface; clients connect to 127.0.0.1:{port}) and keeps"
        assert told in ready_line(server.service)


def test_what_is_advertised_is_told_beside_what_is_bound() -> None:
    with Server(advertised_listeners="PLAINTEXT://log.example:9092") as server:
        port = server.broker.ports["PLAINTEXT"]
        assert f"listens on 127.0.0.1:{port} (clients connect to log.example:9092)" in ready_line(server.service)


def test_a_free_port_for_metrics_is_told() -> None:
    with Server(oncelog_metrics_listener="127.0.0.1:0") as server:
        assert server.service.metrics_port
        assert ready_line(server.service).endswith(f"; metrics on 127.0.0.1:{server.service.metrics_port}")


def test_the_limit_of_open_files_is_raised_as_far_as_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: wanted.append((which, limits)))
    process.raise_open_files_limit()
    assert wanted == [(resource.RLIMIT_NOFILE, (4096, 4096))]


def test_an_import_that_failed_for_want_of_a_file_handle_is_tried_again() -> None:
    name, version = "describe_acls", 1
    schema.cache_clear()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _forget(f"kio.schema.{name}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises((OSError, ImportError)):
            schema(name, version)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert schema(name, version).version == version


def _forget(package: str) -> None:
    import importlib
    import sys

    for each in [each for each in sys.modules if each == package or each.startswith(f"{package}.")]:
        del sys.modules[each]
    importlib.invalidate_caches()
