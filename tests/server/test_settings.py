"""Settings: what is understood, what stops the start, and in which order the places count."""

from pathlib import Path

import pytest

import oncelog
from oncelog.server.settings import SETTINGS, Settings
from oncelog.server.settings_reading import ALIASES, read_settings
from oncelog.server.topic_configs import TOPIC_CONFIGS
from oncelog.settings import Kind, SettingsError, text_of
from tests.server.settings_page import page

HOUR_MS = 3_600_000
CLUSTER, OF_TWO = "oncelog.cluster=zk://zoo:2181", "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT"


def refusal(*given: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read_settings(given, environ)
    return str(caught.value)


def test_defaults_hang_together() -> None:
    assert read_settings().given == {}


def test_every_default_is_a_value_that_its_own_setting_takes() -> None:
    for setting in [*SETTINGS.values(), *(config.setting for config in TOPIC_CONFIGS.values())]:
        text = text_of(setting.default)
        if text is not None:
            assert setting.parse(text) == setting.default, setting.name


def test_every_setting_can_be_given_by_its_name_and_read_as_an_attribute() -> None:
    for name, setting in SETTINGS.items():
        example = {
            Kind.BOOLEAN: "true",
            Kind.LIST: ",".join(setting.words) or "PLAINTEXT://here:1",
            Kind.TEXT: next(iter(setting.words)) if setting.words else "127.0.0.1:1",
        }.get(setting.kind, str(int(setting.low or 0)))
        settings = Settings(**{name.replace(".", "_"): setting.parse(example)})
        assert settings.value(name) == setting.parse(example)


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.segment.bytes=2222\nmessage.max.bytes=3333\n")
    environ = {"ONCELOG_NUM_PARTITIONS": "3", "ONCELOG_LOG_SEGMENT_BYTES": "4444", "PATH": "/bin"}
    settings = read_settings(["num.partitions=5"], environ, file)
    assert (settings.num_partitions, settings.log_segment_bytes, settings.message_max_bytes) == (5, 4444, 3333)


def test_our_own_settings_need_no_second_prefix_in_the_environment() -> None:
    assert read_settings((), {"ONCELOG_FLUSH": "every"}).oncelog_flush == "every"
    assert read_settings((), {"ONCELOG_ONCELOG_FLUSH": "every"}).oncelog_flush == "every"


def test_what_is_meant_for_commands_that_connect_is_passed_over() -> None:
    environ = {"ONCELOG_CLIENT_BOOTSTRAP_SERVERS": "elsewhere:9092", "ONCELOG_NUM_PARTITIONS": "3"}
    assert read_settings([], environ).num_partitions == 3


def test_no_variable_of_the_environment_can_mean_two_settings() -> None:
    own = {name.removeprefix("oncelog.") for name in SETTINGS if name.startswith("oncelog.")}
    assert not own & set(SETTINGS)


def test_a_file_is_read_as_java_reads_properties(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\n! another\n\n"
        "  num.partitions = 4\n"
        "log.dir:/tmp/a\\\n    b\n"
        "message.max.bytes 5000\n"
        "log.cleanup.policy=compact\\u002cdelete\n"
        "log.retention.hours=2\\"
    )
    settings = read_settings((), {}, file)
    assert settings.num_partitions == 4
    assert settings.log_dir == "/tmp/ab"
    assert settings.message_max_bytes == 5000
    assert settings.log_cleanup_policy == ("compact", "delete")
    assert settings.log_retention_hours == 2


def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.properties cannot be read"):
        read_settings((), {}, tmp_path / "nowhere.properties")


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ([], 168 * HOUR_MS),
        (["log.retention.hours=2"], 2 * HOUR_MS),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.ms=-1", "log.retention.hours=2"], -1),
    ],
)
def test_the_finest_unit_of_retention_counts(given: list[str], milliseconds: int) -> None:
    assert read_settings(given).retention_ms == milliseconds


def test_a_stronger_place_sets_aside_what_a_weaker_one_says_in_a_finer_unit(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.ms=4\nlog.roll.ms=5\n")
    settings = read_settings(["log.retention.hours=1", "log.roll.hours=2"], {}, file)
    assert (settings.retention_ms, settings.roll_ms) == (HOUR_MS, 2 * HOUR_MS)


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_a_second_name_means_the_first(alias: str, name: str) -> None:
    settings = read_settings([f"{alias}=7"])
    assert text_of(settings.value(name)) == "7"
    assert settings.given == {name: "7"}
    assert "contradicts" in refusal(f"{alias}=7", f"{name}=8")


def test_an_unknown_setting_names_the_nearest_one_and_what_it_takes() -> None:
    said = refusal("log.segment.byte=1000")
    assert said == (
        "unknown setting log.segment.byte (in the command line); did you mean log.segment.bytes? "
        "It takes a whole number from 14 to 2147483647 (bytes)"
    )


def test_an_unknown_setting_of_the_environment_stops_the_start_too() -> None:
    said = refusal(ONCELOG_NUM_PARTITION="3", ONCELOG_FLUSHH="os", ONCELOG_RETENTION_MS="1", ONCELOG_HOME="/here")
    assert "unknown setting ONCELOG_NUM_PARTITION (in the environment); did you mean ONCELOG_NUM_PARTITIONS?" in said
    assert "unknown setting ONCELOG_FLUSHH (in the environment); did you mean ONCELOG_FLUSH?" in said
    assert "that is a setting of a topic; the server's is ONCELOG_LOG_RETENTION_MS" in said
    assert "unknown setting ONCELOG_HOME (in the environment)" in said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "`oncelog users add` makes users, for PLAIN, too"),
        (
            "listener.name.x.oauthbearer.sasl.server.callback.handler.class",
            "tokens are checked by sasl.oauthbearer.jwks",
        ),
        ("listener.name.x.ssl.keystore.password", "PEM has no password of its own"),
        ("security.inter.broker.protocol", "that of inter.broker.listener.name"),
        ("listener.name.x.nothing", "one of ssl.keystore.type"),
    ],
)
def test_what_comes_along_from_a_kafka_is_told_what_stands_for_it_here(name: str, words: str) -> None:
    said = refusal(f"{name}=a secret")
    assert words in said and "a secret" not in said


def test_what_a_python_program_gives_is_not_called_the_command_line() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings({"num.partition": "3"})
    assert "unknown setting num.partition (in the settings given to oncelog.Server)" in str(caught.value)


def test_a_topics_setting_is_told_from_the_servers() -> None:
    assert refusal("retention.ms=1").endswith("that is a setting of a topic; the server's is log.retention.ms")


def test_a_setting_that_only_a_kafka_has_is_said_to_have_no_place_here() -> None:
    assert refusal("zookeeper.connect=here:2181").endswith(
        ": oncelog.cluster names ZooKeeper, where there are several brokers"
    )


def test_everything_that_is_wrong_is_said_at_once() -> None:
    said = refusal("nod.id=1", "num.partitions=0", "compression.type=brotli", "log.segment.bytes=1GB")
    assert len(said.splitlines()) == 4


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("num.partitions=0", "a whole number from 1 to 2147483647"),
        ("num.partitions=1e3", "a whole number from 1 to 2147483647"),
        ("num.partitions=1_000", "a whole number from 1 to 2147483647"),
        ("num.partitions=", "a whole number from 1 to 2147483647"),
        ("num.partitions=" + "9" * 5000, "a whole number from 1 to 2147483647"),
        ("log.retention.ms=-2", "a whole number of at least -1 (milliseconds)"),
        ("log.cleaner.min.cleanable.ratio=nan", "a number from 0 to 1"),
        ("log.cleaner.min.cleanable.ratio=1.5", "a number from 0 to 1"),
        ("auto.create.topics.enable=yes", "true or false"),
        ("log.cleanup.policy=delete,shred", "a list, separated by commas, of delete, compact"),
        ("log.message.timestamp.type=Now", "one of CreateTime, LogAppendTime"),
        ("compression.type=brotli", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
    ],
)
def test_an_impossible_value_is_refused_with_what_is_allowed(given: str, allowed: str) -> None:
    assert refusal(given) == f"{given}: expected {allowed}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["log.dirs=/a,/b"], "only one folder"),
        (["log.dir="], "expected a folder"),
        (["num.partitions=4", "oncelog.max.partitions=3"], "oncelog.max.partitions is 3"),
        (["log.retention.ms=0"], "log.retention: expected -1"),
        (["group.min.session.timeout.ms=9000000"], "above group.max.session.timeout.ms"),
        (["message.max.bytes=200000000"], "can never arrive"),
        (["queued.max.request.bytes=1000"], "less than one request may have"),
        (["oncelog.flush.interval.ms=5"], "says nothing with oncelog.flush=os"),
        (
            ["log.cleaner.min.compaction.lag.ms=2", "log.cleaner.max.compaction.lag.ms=1"],
            "above log.cleaner.max.compaction.lag.ms",
        ),
        (["num.partitions=1", "num.partitions=2"], "given twice"),
        (["num.partitions"], "expected name=value"),
        (["ssl.key.password:hunter2"], "ssl.key.password: expected name=value"),
        (["listeners=here"], "expected NAME://HOST:PORT"),
        (["listeners="], "at least one"),
        (["listeners=PLAINTEXT://:70000"], "expected NAME://HOST:PORT"),
        (["listeners=SSL://:9093"], "needs a certificate"),
        (["listeners=IN://:1", "listener.security.protocol.map=IN:SASL_SSL"], "needs a certificate"),
        (["listeners=IN://:1", "listener.security.protocol.map=IN"], "expected NAME:PROTOCOL"),
        (["listeners=A://:1"], "A is no protocol"),
        (["listeners=PLAINTEXT://:1,PLAINTEXT://:2"], "there twice"),
        (["listeners=A://h:1,B://h:1", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"], "share an address"),
        (["advertised.listeners=B://h:1", "listener.security.protocol.map=B:PLAINTEXT"], "which listeners does not"),
        (["listeners=PLAINTEXT://:9092", CLUSTER], "can connect to ''; set advertised.listeners"),
        (
            ["listeners=IN://:1,OUT://0.0.0.0:2", "advertised.listeners=IN://a:1", OF_TWO, CLUSTER],
            "OUT://0.0.0.0:2: neither",
        ),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:1"], "name a host"),
        (["advertised.listeners=PLAINTEXT://h:0"], "port 0"),
        (["oncelog.metrics.listener=9308"], "expected HOST:PORT"),
    ],
)
def test_settings_that_cannot_be_meant_stop_the_start(given: list[str], said: str) -> None:
    assert said in refusal(*given)


def test_listeners_may_have_names_of_their_own_and_ipv6_addresses() -> None:
    settings = read_settings(
        [
            "listeners=IN://[::1]:9092,OUT://:9093",
            "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT",
            "advertised.listeners=OUT://log.example:19093",
        ]
    )
    assert settings.listeners == ("IN://[::1]:9092", "OUT://:9093")


def test_a_dynamic_setting_changes_and_goes_back_to_what_the_start_was_given() -> None:
    settings = read_settings(["message.max.bytes=5000"])
    settings.change("message.max.bytes", "6000")
    assert settings.message_max_bytes == 6000
    settings.change("message.max.bytes", None)
    assert settings.message_max_bytes == 5000
    settings.change("log.segment.bytes", "100")
    settings.change("log.segment.bytes", None)
    assert settings.log_segment_bytes == 2**30


def test_a_fixed_setting_cannot_be_changed_while_the_server_runs() -> None:
    with pytest.raises(SettingsError, match=r"node\.id cannot be changed"):
        read_settings().change("node.id", "2")


def test_trying_changes_on_a_copy_leaves_the_settings_alone() -> None:
    settings = read_settings()
    settings.change("log.segment.bytes", "100")
    tried = settings.with_changes({"message.max.bytes": "6000"})
    assert (tried.message_max_bytes, tried.log_segment_bytes) == (6000, 2**30)
    assert (settings.message_max_bytes, settings.changed) == (1_048_588, {"log.segment.bytes": "100"})


def test_a_server_that_stands_alone_keeps_one_copy() -> None:
    with pytest.raises(SettingsError, match="stands alone keeps one copy"):
        oncelog.Server(default_replication_factor=3)


def test_the_page_of_settings_is_current() -> None:
    written = Path(__file__).parents[2] / "docs" / "settings.md"
    assert written.read_text() == page(), "run: python -m tests.server.settings_page > docs/settings.md"
