"""What web consoles and tools that manage a cluster ask, and each of its brokers answers."""

from kio.schema.errors import ErrorCode

from tests.cluster.brokers import ALL, Brokers


async def test_what_consoles_ask_is_answered_by_each_broker(cluster: Brokers) -> None:
    assert await cluster.create(partitions=1) is ErrorCode.none
    before = cluster.tree.leaderships("orders")
    for node in ALL:
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        quorum = await cluster.ask(node, "describe_quorum", 2, topics=asked)
        assert quorum.error_code is ErrorCode.unsupported_version and "tree" in quorum.error_message
        listed = (await cluster.ask(node, "list_config_resources", 1, resource_types=[2, 4])).config_resources
        found = {(each.resource_type, each.resource_name) for each in listed}
        assert found == {(4, "1"), (4, "2"), (4, "3"), (2, "orders")}
        key = "consumer.session.timeout.ms"
        group = [{"resource_type": 32, "resource_name": "any", "configuration_keys": [key]}]
        (result,) = (await cluster.ask(node, "describe_configs", 4, resources=group)).results
        assert [each.value for each in result.configs] == ["45000"]
        assert await cluster.move("orders", 0, list(before[0].replicas), at=node) is ErrorCode.none
    assert cluster.tree.leaderships("orders") == before, "it is there already"


HEARTBEAT = "consumer.heartbeat.interval.ms"


async def change(cluster: Brokers, node: int, group: str, operation: int, value: str | None) -> ErrorCode:
    configs = [{"name": HEARTBEAT, "config_operation": operation, "value": value}]
    resource = {"resource_type": 32, "resource_name": group, "configs": configs}
    (response,) = (await cluster.ask(node, "incremental_alter_configs", 1, resources=[resource])).responses
    code: ErrorCode = response.error_code
    return code


async def test_what_a_group_has_of_its_own_counts_at_every_broker(cluster: Brokers) -> None:
    def interval_ms(node: int) -> int:
        return cluster.brokers[node].broker.groups.consumer.limits.of("g").heartbeat_interval_ms

    assert await change(cluster, 1, "g", 0, "4999") is ErrorCode.invalid_config
    assert await change(cluster, 1, "g", 0, "9000") is ErrorCode.none
    await cluster.until(lambda: [interval_ms(node) for node in ALL] == [9_000] * 3)
    await cluster.stop(3)
    assert await change(cluster, 2, "g", 0, "8000") is ErrorCode.none
    await cluster.start(3)
    assert interval_ms(3) == 8_000
    (listed,) = (await cluster.ask(3, "list_config_resources", 1, resource_types=[32])).config_resources
    assert (listed.resource_type, listed.resource_name) == (32, "g")
    assert await change(cluster, 3, "g", 1, None) is ErrorCode.none
    await cluster.until(lambda: [interval_ms(node) for node in ALL] == [5_000] * 3)
