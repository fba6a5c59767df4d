"""The fixture that is shipped with the package, as its users meet it: pytest in a process of its own."""

import pytest

pytest_plugins = ["pytester"]

SENDS_AND_READS = """
    from confluent_kafka import Consumer, Producer

    def test_a_record_goes_there_and_back(oncelog_server):
        producer = Producer({"bootstrap.servers": oncelog_server.bootstrap_servers})
        producer.produce("greetings", b"hello")
        assert producer.flush(10) == 0
        consumer = Consumer({
            "bootstrap.servers": oncelog_server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
        })
        consumer.subscribe(["greetings"])
        (message,) = consumer.consume(1, timeout=10)
        assert message.value() == b"hello"
        consumer.close()
"""
COUNTS_SERVERS = """
    seen = set()

    def test_first(oncelog_server):
        seen.add(oncelog_server.bootstrap_servers)

    def test_second(oncelog_server):
        seen.add(oncelog_server.bootstrap_servers)

    def test_how_many():
        assert len(seen) == {servers}
"""


def test_a_test_that_names_the_fixture_gets_a_running_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SENDS_AND_READS)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("scope", "servers"), [("function", 2), pytest.param("module", 1, marks=pytest.mark.thorough), ("session", 1)]
)
def test_the_scope_decides_who_shares_a_server(pytester: pytest.Pytester, scope: str, servers: int) -> None:
    pytester.makeini(f"[pytest]\noncelog_scope = {scope}")
    pytester.makepyfile(COUNTS_SERVERS.replace("{servers}", str(servers)))
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_settings_come_from_a_fixture_of_the_users_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient
        from confluent_kafka import Producer

        @pytest.fixture
        def oncelog_settings():
            return {"num.partitions": "3"}

        def test_topics_get_three_partitions(oncelog_server):
            producer = Producer({"bootstrap.servers": oncelog_server.bootstrap_servers})
            producer.produce("three", b"")
            assert producer.flush(10) == 0
            admin = AdminClient({"bootstrap.servers": oncelog_server.bootstrap_servers})
            assert len(admin.list_topics("three", timeout=10).topics["three"].partitions) == 3
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_an_impossible_scope_stops_the_run_and_names_the_possible_ones(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\noncelog_scope = forever")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*oncelog_scope = forever: expected one of function, class, module, package, session*"]
    )


def test_a_run_that_asks_for_no_server_imports_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_was_imported():
            assert "oncelog.pytest_plugin" in sys.modules
            assert [name for name in sys.modules if name.startswith(("oncelog.server", "kio", "uvloop"))] == []
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_settings_that_do_not_live_as_long_as_the_server_are_refused_with_what_to_write(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini("[pytest]\noncelog_scope = session")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def oncelog_settings():
            return {}

        def test_with_a_server(oncelog_server):
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['*write @pytest.fixture(scope="session") above oncelog_settings*'])


def test_a_setting_that_cannot_be_used_is_told_with_the_fixture_it_comes_from(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def oncelog_settings():
            return {"num.partitions": "none"}

        def test_with_a_server(oncelog_server):
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*num.partitions=none: expected*", "*These settings come from the fixture oncelog_settings."]
    )
