"""The Compose file, without Docker: its parts fit together, the Dockerfile, and what the command line understands."""

import re

import pytest

from oncelog.cli import main
from oncelog.cli.serve import command as serve
from oncelog.cluster.tree import SESSION_TIMEOUT_MS
from oncelog.server.endpoints import Endpoint, endpoints
from oncelog.server.settings import Settings
from oncelog.server.settings_reading import read_settings
from tests.repo.compose import compose, services
from tests.repo.dockerfile import stages
from tests.repo.tree import project_files, read

BROKERS = sorted(services("broker"))
ZOOKEEPER_TICK_MS = 2_000  # the image's own; a session lasts from 2 to 20 of them


def settings_of(broker: str) -> Settings:
    return read_settings(environ=services("broker")[broker]["environment"])


def listeners_of(broker: str) -> list[Endpoint]:
    return endpoints(settings_of(broker))


def test_there_are_three_of_each_and_nothing_else() -> None:
    assert [len(services(kind)) for kind in ("zoo", "broker")] == [3, 3]
    assert len(compose()["services"]) == 6


@pytest.mark.parametrize("broker", BROKERS)
def test_a_brokers_command_and_settings_are_understood(broker: str) -> None:
    name, *arguments = services("broker")[broker]["command"]
    context = main.make_context("oncelog", [name, *arguments], resilient_parsing=True)
    assert main.get_command(context, name) is serve
    given = serve.make_context("serve", arguments).params
    assert given["listen"] is None  # it would go before the environment
    settings = settings_of(broker)
    assert (settings.default_replication_factor, settings.min_insync_replicas) == (3, 2)
    assert settings.offsets_topic_replication_factor == 3


@pytest.mark.parametrize("broker", BROKERS)
def test_a_broker_is_reached_by_its_name_from_the_others_and_by_a_port_from_outside(broker: str) -> None:
    inner, outer = listeners_of(broker)
    assert (inner.advertised_host, inner.advertised_port) == (broker, inner.port)
    (published,) = services("broker")[broker]["ports"]
    assert published == f"127.0.0.1:{outer.advertised_port}:{outer.port}"
    assert outer.advertised_host == "127.0.0.1"


def test_no_two_brokers_share_a_number_a_port_or_a_volume() -> None:
    assert sorted(settings_of(broker).node_id for broker in BROKERS) == [1, 2, 3]
    assert len({listeners_of(broker)[1].advertised_port for broker in BROKERS}) == 3
    volumes = [volume for each in compose()["services"].values() for volume in each["volumes"]]
    names = [volume.partition(":")[0] for volume in volumes]
    assert sorted(names) == sorted(compose()["volumes"])
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("broker", BROKERS)
def test_the_image_is_what_the_dockerfile_builds(broker: str) -> None:
    service, (build, final) = services("broker")[broker], stages(read("Dockerfile"))
    assert service["build"]["context"] == ".."  # from the file's folder
    assert build.the_only("ARG").rest.partition("=")[0] == "LOCK"
    lock = service["build"]["args"]["LOCK"]
    assert f"requirements/{lock}.txt" in project_files()
    assert re.search(r"^kazoo==", read(f"requirements/{lock}.txt"), re.MULTILINE)
    assert service["volumes"] == [f"{broker}:{final.the_only('VOLUME').rest}"]
    assert final.the_only("ENTRYPOINT").words == ["oncelog"]


def test_the_health_check_asks_a_listener_that_brokers_have() -> None:
    asked = stages(read("Dockerfile"))[1].the_only("HEALTHCHECK").words
    for broker in BROKERS:
        inner = listeners_of(broker)[0]
        assert inner.host == ""
        assert f"127.0.0.1:{inner.port}" in asked


def test_zookeepers_know_each_other_and_brokers_know_them() -> None:
    zoos = services("zoo")
    for number, (name, each) in enumerate(zoos.items(), 1):
        assert each["environment"]["ZOO_MY_ID"] == str(number)
        assert f"server.{number}={name}:2888:3888;2181" in each["environment"]["ZOO_SERVERS"].split()
        assert len(each["environment"]["ZOO_SERVERS"].split()) == len(zoos)
    for broker in BROKERS:
        hosts, _, folder = (settings_of(broker).oncelog_cluster or "").removeprefix("zk://").partition("/")
        assert hosts.split(",") == [f"{name}:2181" for name in zoos]
        assert folder
        assert services("broker")[broker]["depends_on"] == list(zoos)
    assert 2 * ZOOKEEPER_TICK_MS <= SESSION_TIMEOUT_MS <= 20 * ZOOKEEPER_TICK_MS
