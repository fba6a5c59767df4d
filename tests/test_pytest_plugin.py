"""The fixture that is shipped with the package, as its users meet it: pytest in a process of its own."""

import pytest

pytest_plugins = ["pytester"]

SENDS_AND_READS = """
    from confluent_kafka import Consumer, Producer

    def test_a_record_goes_there_and_back(oncelog_server):
        producer = Producer({"bootstrap.servers": oncelog_server.bootstrap_servers})
        producer.produce("greetings", b"hello")
        assert producer.flush(60) == 0
        consumer = Consumer({
            "bootstrap.servers": oncelog_server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest",
        })
        consumer.subscribe(["greetings"])
        (message,) = consumer.consume(1, timeout=60)
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


def test_a_test_that_names_the_fixture_gets_a_running_server_with_the_settings_of_its_file(
    pytester: pytest.Pytester,
) -> None:
    """Three files in one run, the way a user's suite has them; a scope of its own for each test is the default."""
    secured = SENDS_AND_READS.replace(
        '"bootstrap.servers": oncelog_server.bootstrap_servers', "**oncelog_server.client_config"
    )
    assert secured != SENDS_AND_READS
    pytester.makepyfile(
        test_plain=SENDS_AND_READS,
        test_scope=COUNTS_SERVERS.replace("{servers}", "2"),
        test_secured=with_settings({"oncelog.secure": "true"}) + secured,
        test_partitions=with_settings({"num.partitions": "3"})
        + """
    from confluent_kafka.admin import AdminClient
    from confluent_kafka import Producer

    def test_topics_get_three_partitions(oncelog_server):
        producer = Producer({"bootstrap.servers": oncelog_server.bootstrap_servers})
        producer.produce("three", b"")
        assert producer.flush(60) == 0
        admin = AdminClient({"bootstrap.servers": oncelog_server.bootstrap_servers})
        assert len(admin.list_topics("three", timeout=60).topics["three"].partitions) == 3
""",
        test_forgotten=with_settings(None)
        + """
    def test_with_a_server(oncelog_server):
        pass
""",
        test_unusable=with_settings({"num.partitions": "none"})
        + """
    def test_with_a_server(oncelog_server):
        pass
""",
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=6, errors=2)
    comes_from = "*These settings come from the fixture oncelog_settings."
    result.stdout.fnmatch_lines(["*oncelog_settings: expected a fixture that returns {*}*, not NoneType", comes_from])
    result.stdout.fnmatch_lines(["*num.partitions=none: expected*", comes_from])


def with_settings(settings: dict[str, str] | None) -> str:
    return f"""
    import pytest

    @pytest.fixture
    def oncelog_settings():
        return {settings}
"""


def test_a_test_may_take_brokers_of_a_cluster_and_give_them_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        r"""
        import pytest
        from confluent_kafka import Consumer, Producer

        @pytest.fixture
        def oncelog_settings():
            return {"group.initial.rebalance.delay.ms": "0"}

        def test_records_outlive_whichever_broker_is_taken(oncelog_cluster):
            servers = {"bootstrap.servers": oncelog_cluster.bootstrap_servers}
            producer = Producer(servers | {"enable.idempotence": True, "socket.timeout.ms": 5000})

            def send(value):
                producer.produce("orders", value)
                assert producer.flush(60) == 0

            send(b"all")
            oncelog_cluster.kill(1)
            send(b"without 1")
            oncelog_cluster.start(1)
            oncelog_cluster.stop(2)
            send(b"without 2")
            oncelog_cluster.start(2)
            oncelog_cluster.pause(3)
            oncelog_cluster.resume(3)
            send(b"after 3 hung")

            consumer = Consumer(servers | {"group.id": "g", "auto.offset.reset": "earliest"})
            consumer.subscribe(["orders"])
            found = [each.value() for each in consumer.consume(4, timeout=60)]
            assert found == [b"all", b"without 1", b"without 2", b"after 3 hung"]
            consumer.close()
            what_cannot_be_done_is_said(oncelog_cluster)

        def what_cannot_be_done_is_said(oncelog_cluster):
            for does, words in [
                (lambda: oncelog_cluster.kill(4), r"broker 4 does not run; those that do are \[1, 2, 3\]"),
                (lambda: oncelog_cluster.start(4), r"there is no broker 4: the brokers are \[1, 2, 3\]"),
                (lambda: oncelog_cluster.start(1), r"broker 1 runs already; a paused one goes on with resume\(1\)"),
            ]:
                with pytest.raises(ValueError, match=words):
                    does()
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.thorough
def test_a_module_may_share_a_server(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\noncelog_scope = module")
    pytester.makepyfile(COUNTS_SERVERS.replace("{servers}", "1"))
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


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


def test_all_may_share_a_server_but_not_with_settings_that_do_not_live_as_long(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\noncelog_scope = session")
    pytester.makepyfile(
        test_shared=COUNTS_SERVERS.replace("{servers}", "1"),
        test_too_short=with_settings({})
        + """
    def test_with_a_server(oncelog_server):
        pass
""",
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(['*write @pytest.fixture(scope="session") above oncelog_settings*'])
