"""Three brokers that agree by one tree: who leads, what topics there are, and what ends and lost answers do to that."""

import asyncio
from pathlib import Path

import pytest

from oncelog.cluster.file import UnfitFolder
from oncelog.cluster.supervisor import SUSPECTED_MS
from oncelog.cluster.tree import Change, Outdated, Put, Unsure
from oncelog.server.errors import ErrorCode
from tests.cluster.brokers import ALL, Brokers, three
from tests.cluster.tree_memory import Doubt
from tests.raw import batch

# Who leads


async def test_leaders_are_spread_and_every_broker_answers_the_same_metadata(cluster: Brokers) -> None:
    await cluster.create()
    answers = [await cluster.ask(node, "metadata", 12, topics=[{"name": "orders"}]) for node in ALL]
    (topic,) = answers[0].topics
    assert sorted(each.leader_id for each in topic.partitions) == [1, 2, 3]
    assert [sorted(each.isr_nodes) for each in topic.partitions] == [[1, 2, 3]] * 3
    assert sorted(each.node_id for each in answers[0].brokers) == [1, 2, 3]
    assert [(each.brokers, each.topics, each.cluster_id) for each in answers[1:]] == [
        (answers[0].brokers, answers[0].topics, answers[0].cluster_id)
    ] * 2
    assert [each.controller_id for each in answers] == [1, 2, 3]  # any of them takes what one asks a controller


async def test_who_does_not_lead_says_so(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    for node in {1, 2, 3} - {cluster.leader("orders")}:
        refused = ErrorCode.not_leader_or_follower
        assert (await cluster.produce(batch([b"a"]), at=node)).error_code is refused
        assert (await cluster.call(node, lambda raw: raw.fetch("orders", 0, 0))).error_code is refused
        assert (await cluster.end(at=node)).error_code is refused
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none


async def test_acks_all_is_refused_while_too_few_are_in_sync(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    one, other = {1, 2, 3} - {leader}
    await cluster.kill(one)
    await cluster.settled()
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await cluster.kill(other)
    await cluster.settled()
    assert (await cluster.produce(batch([b"b"]))).error_code is ErrorCode.not_enough_replicas
    await cluster.start(one)
    await cluster.settled()
    assert (await cluster.produce(batch([b"b"]))).base_offset == 1


async def test_when_a_leaders_session_is_over_another_leads_and_it_comes_back_as_a_follower(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    (before,) = cluster.tree.leaderships("orders")
    session = cluster.sessions[before.leader]
    session.suspend()
    session.expire()
    await cluster.until(lambda: cluster.leader("orders") not in (before.leader, -1))
    session.resume()
    await cluster.settled()
    (after,) = cluster.tree.leaderships("orders")
    assert (after.epoch, after.leader != before.leader) == (before.epoch + 1, True)
    assert sorted(after.in_sync) == [1, 2, 3]
    assert (await cluster.produce(batch([b"b"]))).base_offset == 1


async def test_a_leader_that_the_tree_has_lost_acknowledges_nothing_more(cluster: Brokers) -> None:
    """It leads on in its own eyes, but its followers obey another."""
    await cluster.create(partitions=1)
    (before,) = cluster.tree.leaderships("orders")
    session = cluster.sessions[before.leader]
    session.suspend()
    session.expire()
    others = {1, 2, 3} - {before.leader}
    await cluster.until(lambda: all(cluster.epoch(node) > before.epoch for node in others))
    zombie = cluster.known(before.leader, "orders").partitions[0]
    assert zombie.leads
    produced = asyncio.create_task(cluster.produce(batch([b"lost"]), at=before.leader))
    await cluster.until(lambda: zombie.log.next_offset == 1)
    assert (await cluster.produce(batch([b"kept"]))).base_offset == 0
    session.resume()
    assert (await produced).error_code is not ErrorCode.none
    await cluster.settled()
    assert [(await cluster.end()).offset, zombie.log.next_offset] == [1, 1]


@pytest.mark.parametrize("doubt", list(Doubt))
async def test_an_election_whose_answer_is_lost_makes_one_leader(cluster: Brokers, doubt: Doubt) -> None:
    await cluster.create(partitions=1)
    (before,) = cluster.tree.leaderships("orders")
    successor = before.replicas[1]
    cluster.sessions[successor].doubt_next(doubt)
    await cluster.kill(before.leader)
    await cluster.settled()
    cluster.sessions[successor].do_late()
    (after,) = cluster.tree.leaderships("orders")
    assert (after.leader, after.epoch) == (successor, before.epoch + 1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await cluster.start(before.leader)
    await cluster.settled()


async def test_a_change_that_counted_is_not_taken_for_refused_where_its_second_try_is(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that a leader reads from lags, and the follower that has joined has started again."""
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    joins = min({1, 2, 3} - {leader})
    await cluster.kill(joins)
    await cluster.settled()
    session, change = cluster.sessions[leader], cluster.sessions[leader].change
    other = cluster.tree.session(cluster.clock)
    await other.begin_session()
    refused = []

    async def changing(*changes: Change) -> None:
        try:
            await change(*changes)
        except Unsure:
            session.hold_watches()
            session.freeze_reads()
            session.do_late()
            node = await other.get(f"/nodes/{joins}")
            assert node is not None
            await other.change(Put(f"/nodes/{joins}", node.value, node.version))
            raise
        except Outdated:
            session.thaw_reads()  # an answer is no older than what it speaks of
            refused.append(changes)
            raise

    session.doubt_next(Doubt.LATE)
    monkeypatch.setattr(session, "change", changing)
    await cluster.start(joins)
    await cluster.until(lambda: bool(refused))
    for _ in range(100):
        await asyncio.sleep(0)
    leads = cluster.known(leader, "orders").partitions[0].replica
    assert leads is not None and leads.leader is not None
    assert joins in cluster.tree.leaderships("orders")[0].in_sync
    assert joins in leads.leader.state.in_sync, "its leader must wait for it"
    session.release_watches()
    await cluster.settled()


@pytest.mark.parametrize("doubt", list(Doubt))
async def test_a_topic_whose_making_is_in_doubt_is_there_whole_or_not_at_all(cluster: Brokers, doubt: Doubt) -> None:
    cluster.sessions[1].doubt_next(doubt)
    assert await cluster.create(settled=False) is ErrorCode.request_timed_out
    cluster.sessions[1].do_late()
    again = ErrorCode.none if doubt is Doubt.NEVER else ErrorCode.topic_already_exists
    assert await cluster.create(at=2, settled=False) is again
    await cluster.settled()


async def test_a_broker_that_stops_hands_over_what_it_leads_before_it_goes(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create()
    left: list[int] = []
    end = cluster.tree.end

    def ended(number: int) -> None:
        left.extend(each.leader for each in cluster.tree.leaderships("orders"))
        end(number)

    monkeypatch.setattr(cluster.tree, "end", ended)
    for node in (2, 3):
        cluster.sessions[node].hold_watches()  # they are not quick to hear of it
    stopped = asyncio.create_task(cluster.stop(1))
    for _ in range(300):
        await asyncio.sleep(0)
    assert (left, stopped.done()) == ([], False)
    for node in (2, 3):
        cluster.sessions[node].release_watches()
    await stopped
    assert len(left) == 3
    assert set(left) == {2, 3}
    await cluster.settled()
    await cluster.start(1)
    await cluster.settled()


async def test_a_partitions_first_replica_leads_it_again_once_it_is_back_for_long_enough(tmp_path: Path) -> None:
    """Long enough is longer than this machine takes to get there, and shorter than a follower may lag."""
    settings = {"leader_imbalance_check_interval_seconds": "20", "replica_lag_time_max_ms": "60000"}
    async with three(tmp_path, **settings) as cluster:
        await cluster.create(partitions=1)
        (before,) = cluster.tree.leaderships("orders")
        assert before.leader == before.replicas[0]
        await cluster.kill(before.leader)
        await cluster.settled()
        await cluster.start(before.leader)
        await cluster.settled()
        assert cluster.leader("orders") != before.leader
        cluster.clock.ms += 21_000
        await cluster.until(lambda: cluster.leader("orders") == before.leader)
        await cluster.settled()
        assert cluster.tree.leaderships("orders")[0].epoch == before.epoch + 2


# Topics


async def test_a_topic_made_at_one_is_known_at_all(cluster: Brokers) -> None:
    assert await cluster.create(at=2) is ErrorCode.none
    ids = {cluster.known(node, "orders").id for node in ALL}
    assert len(ids) == 1
    assert [cluster.folders(node, "orders") for node in ALL] == [["orders-0", "orders-1", "orders-2"]] * 3
    assert await cluster.create(at=3) is ErrorCode.topic_already_exists


async def test_a_topic_deleted_at_one_is_gone_at_all_with_its_folders(cluster: Brokers) -> None:
    await cluster.create()
    assert await cluster.delete(at=3) is ErrorCode.none
    await cluster.until(lambda: not any(cluster.topic(node, "orders") for node in ALL))
    await cluster.until(lambda: not any(cluster.folders(node, "orders") for node in ALL))
    assert (await cluster.produce(batch([b"a"]), at=2)).error_code is ErrorCode.unknown_topic_or_partition


async def test_the_name_of_a_deleted_topic_may_be_used_again_at_once(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"old"]))).error_code is ErrorCode.none
    old = cluster.known(1, "orders")
    assert await cluster.delete(at=1) is ErrorCode.none
    assert await cluster.create(partitions=1, at=1) is ErrorCode.none
    assert cluster.known(1, "orders").id != old.id
    assert (await cluster.produce(batch([b"new"]))).base_offset == 0


async def test_configs_altered_at_one_count_at_all(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    await alter(cluster, 2, "retention.ms", "5000")
    await cluster.until(lambda: all(cluster.known(node, "orders").log_config.retention_ms == 5000 for node in ALL))
    assert [cluster.known(node, "orders").configs for node in ALL] == [{"retention.ms": "5000"}] * 3


async def test_what_one_has_altered_stays_where_another_alters_more_that_has_not_heard_of_it(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    cluster.sessions[2].hold_watches()
    await alter(cluster, 1, "retention.ms", "5000")
    await alter(cluster, 2, "segment.bytes", "6000")
    both = {"retention.ms": "5000", "segment.bytes": "6000"}
    document = cluster.tree.document("orders")
    assert document is not None and document.configs == both
    cluster.sessions[2].release_watches()
    await cluster.until(lambda: all(cluster.known(node, "orders").configs == both for node in ALL))


async def test_a_config_that_is_refused_is_altered_nowhere(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    refused = await alteration(cluster, 2, "retention.ms", "soon")
    assert refused is ErrorCode.invalid_config
    document = cluster.tree.document("orders")
    assert document is not None and document.configs == {}


async def test_fewer_in_sync_may_be_enough_once_the_topic_says_so(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    for node in {1, 2, 3} - {leader}:
        await cluster.kill(node)
    await cluster.settled()
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.not_enough_replicas
    await alter(cluster, leader, "min.insync.replicas", "1")
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none


async def alter(cluster: Brokers, node: int, name: str, value: str) -> None:
    assert await alteration(cluster, node, name, value) is ErrorCode.none


async def alteration(cluster: Brokers, node: int, name: str, value: str) -> ErrorCode:
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": "orders", "configs": [config]}
    answer = await cluster.ask(node, "incremental_alter_configs", 1, resources=[resource], validate_only=False)
    error: ErrorCode = answer.responses[0].error_code
    return error


async def test_partitions_added_at_one_count_at_all(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    more = [{"name": "orders", "count": 3, "assignments": None}]
    answer = await cluster.ask(3, "create_partitions", 3, topics=more, timeout=20_000, validate_only=False)
    assert answer.results[0].error_code is ErrorCode.none
    await cluster.settled()
    assert sorted(each.leader for each in cluster.tree.leaderships("orders")) == [1, 2, 3]
    for index in range(3):
        assert (await cluster.produce(batch([b"a"]), index=index)).error_code is ErrorCode.none


# Those that come back


async def test_a_broker_that_comes_back_copies_what_it_missed(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    away = min({1, 2, 3} - {leader})
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await cluster.kill(away)
    assert (await cluster.produce(batch([b"b"]))).base_offset == 1
    await cluster.start(away)
    await cluster.settled()
    assert cluster.next_offset(away) == 2


async def test_a_broker_that_comes_back_serves_nothing_of_a_topic_that_was_deleted_meanwhile(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"old"]))).error_code is ErrorCode.none
    await cluster.kill(1)
    assert await cluster.delete(at=2) is ErrorCode.none
    await cluster.start(1)
    assert cluster.topic(1, "orders") is None
    assert await cluster.create(partitions=1, at=1) is ErrorCode.none
    assert [cluster.next_offset(node) for node in ALL] == [0, 0, 0]
    assert (await cluster.produce(batch([b"new"]))).base_offset == 0
    assert cluster.folders(1, "orders") == ["orders-0"]


async def test_a_broker_that_was_cut_off_sees_that_the_topic_is_another_one(cluster: Brokers) -> None:
    """By its id: the name is the same, and so is the version of its document."""
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"old"]))).error_code is ErrorCode.none
    await cluster.until(lambda: cluster.next_offset(1) == 1)
    cluster.sessions[1].suspend()
    assert await cluster.delete(at=2) is ErrorCode.none
    assert await cluster.create(partitions=1, at=2, settled=False) is ErrorCode.none
    cluster.sessions[1].resume()
    await cluster.settled()
    assert cluster.next_offset(1) == 0


async def test_another_data_folder_under_the_same_number_is_refused(cluster: Brokers, tmp_path: Path) -> None:
    await cluster.kill(3)
    with pytest.raises(UnfitFolder, match="node 3 of this cluster has another data folder"):
        await cluster.start(3, log_dir=str(tmp_path / "another"))
    await cluster.start(3)


async def test_a_broker_whose_folder_is_lost_never_leads_by_what_it_lacks(cluster: Brokers, tmp_path: Path) -> None:
    """The last that was in sync comes back with nothing: the one before it has everything, and leads."""
    await cluster.create(partitions=1)
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    await cluster.until(lambda: cluster.next_offset(2) == 1)
    for node in (1, 2, 3):
        await cluster.kill(node)
    await cluster.start(3, log_dir=str(tmp_path / "another"), oncelog_cluster_folder_lost="true")
    await cluster.until(lambda: cluster.tree.leaderships("orders")[0].in_sync == ())
    assert cluster.tree.leaderships("orders")[0].eligible == (2,)
    await cluster.start(2)
    await cluster.until(lambda: cluster.tree.leaderships("orders")[0].in_sync == (2, 3))
    assert [cluster.next_offset(node) for node in (2, 3)] == [1, 1]
    await cluster.start(1)


async def test_a_broker_that_was_suspected_wrongly_is_in_sync_again(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    leader = cluster.leader("orders")
    for other in {1, 2, 3} - {leader}:
        cluster.brokers[other].supervisor.suspect(leader)
    await cluster.until(lambda: leader not in cluster.tree.leaderships("orders")[0].in_sync)
    cluster.clock.ms += SUSPECTED_MS
    await cluster.settled()


async def test_deleted_topics_are_forgotten_in_the_end(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oncelog.cluster.documents.MOST_GONE", 4)
    for _ in range(6):
        await cluster.create(partitions=1)
        assert await cluster.delete(at=2) is ErrorCode.none
        await cluster.until(lambda: not any(cluster.topic(node, "orders") for node in ALL))
    gone = [path for path, _ in cluster.tree.nodes.items() if path.startswith("/gone/")]
    assert len(gone) == 3


async def test_a_topic_that_one_document_cannot_hold_is_refused(cluster: Brokers) -> None:
    assert await cluster.create(partitions=2_001) is ErrorCode.invalid_partitions


async def test_a_partition_moves_to_other_brokers_with_all_that_stands_in_it(cluster: Brokers) -> None:
    assignment = [{"partition_index": 0, "broker_ids": [1, 2]}]
    topic = {"name": "orders", "num_partitions": -1, "replication_factor": -1, "assignments": assignment, "configs": []}
    await cluster.ask(1, "create_topics", 5, topics=[topic], timeout=20_000, validate_only=False)
    await cluster.settled()
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    assert await cluster.move("orders", 0, [3, 9], at=2) is ErrorCode.invalid_replica_assignment
    assert await cluster.move("orders", 0, None, at=2) is ErrorCode.no_reassignment_in_progress
    assert await cluster.move("orders", 0, [3, 2], at=2) is ErrorCode.none
    await cluster.until(lambda: cluster.tree.leaderships("orders")[0].replicas == (3, 2))
    await cluster.settled()
    assert (await cluster.produce(batch([b"b"]))).base_offset == 1
    await cluster.until(lambda: [len(cluster.folders(node, "orders")) for node in ALL] == [0, 1, 1])
    assert (await cluster.ask(1, "list_partition_reassignments", 0, timeout=9_000, topics=None)).topics == ()


async def test_a_partition_may_move_away_and_back_and_away_again(
    cluster: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create(partitions=1)
    (before,) = cluster.tree.leaderships("orders")
    leaves, stay = before.replicas[2], list(before.replicas[:2])
    assert (await cluster.produce(batch([b"a"]))).error_code is ErrorCode.none
    for times in (1, 2, 3):
        assert await cluster.move("orders", 0, stay, at=before.leader) is ErrorCode.none
        await cluster.until(lambda: len(cluster.tree.leaderships("orders")[0].replicas) == 2)
        await cluster.settled()
        await cluster.until(lambda: not cluster.folders(leaves, "orders"))
        await cluster.until(lambda: not list((cluster.folder / str(leaves)).glob("deleted.*")))
        assert cluster.tree.leaderships("orders")[0].epoch == before.epoch + times
        assert await cluster.move("orders", 0, [*stay, leaves], at=before.leader) is ErrorCode.none
        await cluster.until(lambda: set(cluster.tree.leaderships("orders")[0].in_sync) == {1, 2, 3})
        await cluster.settled()
        assert cluster.next_offset(leaves) == 1
    assert "the supervisor of partitions failed" not in caplog.text


async def test_preferred_leaders_are_elected_when_somebody_asks_for_them(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    preferred = cluster.leader("orders")
    await cluster.stop(preferred)
    await cluster.start(preferred)
    await cluster.settled()
    other = cluster.leader("orders")
    assert other != preferred
    for code in (ErrorCode.none, ErrorCode.election_not_needed):
        asked = [{"topic": "orders", "partitions": [0]}]
        answer = await cluster.ask(other, "elect_leaders", 1, election_type=0, topic_partitions=asked, timeout=9_000)
        assert answer.replica_election_results[0].partition_result[0].error_code is code
        await cluster.settled()
        assert cluster.leader("orders") == preferred


async def test_another_lifetime_of_leases_is_refused(cluster: Brokers) -> None:
    await cluster.kill(3)
    with pytest.raises(UnfitFolder, match="Set the same for all of them"):
        await cluster.start(3, oncelog_lease_lifetime_ms="123456789")
    await cluster.start(3)


# Groups


async def test_a_groups_offsets_stay_when_its_coordinator_ends(cluster: Brokers) -> None:
    await cluster.create(partitions=1)
    before = await coordinator(cluster, 1)
    part = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    who = {"group_id": "readers", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
    named = [{"name": "orders", "partitions": [part]}]
    answer = await cluster.ask(before, "offset_commit", 8, topics=named, **who)
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    await cluster.kill(before)
    await cluster.settled("__consumer_offsets")
    after = await coordinator(cluster, min(cluster.brokers))
    assert after != before
    for _ in range(1000):
        found = await cluster.ask(after, "offset_fetch", 7, group_id="readers", topics=None, require_stable=False)
        if found.error_code is not ErrorCode.coordinator_load_in_progress:
            break
    assert found.topics[0].partitions[0].committed_offset == 7
    other = next(node for node in cluster.brokers if node != after)
    refused = await cluster.ask(other, "offset_fetch", 7, group_id="readers", topics=None, require_stable=False)
    assert refused.error_code is ErrorCode.not_coordinator


async def coordinator(cluster: Brokers, node: int) -> int:
    for _ in range(1000):
        (found,) = (
            await cluster.ask(node, "find_coordinator", 4, key_type=0, coordinator_keys=["readers"])
        ).coordinators
        if found.error_code is ErrorCode.none:
            return int(found.node_id)
        assert found.error_code is ErrorCode.coordinator_not_available
    raise AssertionError("nobody coordinates")


async def test_a_broker_that_is_forgotten_is_suspected_no_more(
    cluster: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create(partitions=1)
    await cluster.start(4)
    await cluster.until(lambda: all(4 in cluster.brokers[node].supervisor.brokers for node in ALL))
    for node in ALL:
        cluster.brokers[node].supervisor.suspect(4)
    await cluster.stop(4)
    await cluster.until(lambda: all(4 not in cluster.brokers[node].supervisor.brokers for node in ALL))
    answer = await cluster.ask(1, "unregister_broker", 0, broker_id=4)
    assert (answer.error_code, cluster.tree.nodes.get("/nodes/4")) == (ErrorCode.none, None)
    await cluster.create("later", partitions=1)
    assert "the supervisor of partitions failed; it goes on" not in caplog.messages
