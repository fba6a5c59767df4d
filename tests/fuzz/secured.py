"""A server that lets nobody in without a proof, what others have on it, and what must not become of that."""

import http.client
import ssl
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from oncelog.chaos.life import free_ports
from oncelog.cluster.stored_documents import change_in_folder
from oncelog.security.documents import Kind
from oncelog.server.secure import AUTHORIZER
from oncelog.server.users import adding, new_credentials
from tests.console.served import Served
from tests.fuzz.campaign import GROWTH_MB, UNEXPECTED, WITNESS_S, Broken, resident_mb
from tests.raw import RawConnection, batch
from tests.raw.sasl import prove
from tests.server.jwks import AUDIENCE, Issuer
from tests.server.tls_support import new_world
from tests.waiting import ASK_AGAIN_SECONDS

# In every value that the attacker is never told, in every name that it does not know, and in the others' passwords.
CANARY = "canary"
OWNER, WITNESS, WRITER = "owner", "witness", "writer"
PASSWORDS = {OWNER: f"{CANARY} of the owner", WITNESS: f"{CANARY} of the witness", WRITER: "a password of one's own"}
MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
MINE, THEIRS, THEIRS_COMPACTED, UNKNOWN = "mine", "theirs", "theirs-compacted", f"{CANARY}-topic"
GROUP, TRANSACTIONAL_ID = "their-group", "their-transactions"
OF_WITNESS = "of-the-witness"
LITERAL, ALLOW, ANY = 3, 3, 1
TOPIC, WRITE, READ, DESCRIBE = 2, 4, 3, 8


class SecuredServer(Served):
    """Plainly it can be reached, too, as nobody, who has no rights."""

    start_seconds = 180.0  # attacks go on for an hour, whatever else keeps the machine busy

    def __init__(self, folder: Path, *, is_guessing_bounded: bool = True, more: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.world = new_world(folder)
        self.issuer = Issuer(folder / "keys.json")
        self.issuer.new_key("one", "RSA")
        self.issuer.publish()
        (self.door,) = free_ports(1)
        self.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},SASL_SSL://127.0.0.1:{self.door}",
            "ssl.keystore.location": self.world.keystore,
            "sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.issuer.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{OWNER}",
            "oncelog.metrics.tls": "always",
            "oncelog.console.tls": "always",
            "connection.failed.authentication.delay.ms": "10",
            "socket.request.max.bytes": str(8 << 20),
            "log.segment.bytes": str(1 << 20),
            "group.initial.rebalance.delay.ms": "0",
            **({} if is_guessing_bounded else {"oncelog.max.failed.authentications.per.minute": "0"}),
            **(more or {}),
        }

    def prepare(self) -> None:
        for name, password in PASSWORDS.items():
            credentials = new_credentials(password, (MECHANISM,), ITERATIONS)
            change_in_folder(str(self.data), Kind.USERS, adding(name, credentials))

    def ready(self, connection: RawConnection) -> bool:
        return connection.call("api_versions", 0).error_code is ErrorCode.none

    def context(self) -> ssl.SSLContext:
        return self.world.context()

    def enter(self, user: str) -> RawConnection:
        raw = RawConnection(self.door, timeout_s=WITNESS_S, tls=self.context())
        answer = prove(raw, user, PASSWORDS[user], MECHANISM)
        if answer.error_code is not ErrorCode.none:
            raw.close()
            raise Broken(f"{user} is not let in: {answer.error_code.name}")
        return raw


class Owner:
    """Who may do everything, and looks whether all is as it was."""

    def __init__(self, server: SecuredServer) -> None:
        self._server = server
        self._raw = server.enter(OWNER)
        self._settle()
        self.topic_ids = [topic.topic_id for topic in self._metadata().topics if topic.name in (THEIRS, UNKNOWN)]
        self._before = self._seen()

    def close(self) -> None:
        self._raw.close()

    def _settle(self) -> None:
        raw = self._raw
        for name, configs in ((MINE, {"retention.bytes": "1000000"}), (OF_WITNESS, {"retention.bytes": "1000000"})):
            raw.create_topic(name, 1, configs)
        raw.create_topic(THEIRS, 2, {"retention.ms": "77777777"})
        raw.create_topic(THEIRS_COMPACTED, 1, {"cleanup.policy": "compact"})
        raw.create_topic(UNKNOWN)
        for topic in (THEIRS, UNKNOWN):
            self._well(raw.produce(topic, 0, batch([f"{CANARY} {number}".encode() for number in range(5)])))
        self.pid = self._transact()
        self._well(self._transaction())
        for group in (GROUP, f"{CANARY}-group"):
            committed = {"partition_index": 0, "committed_offset": 3, "committed_metadata": f"{CANARY} offset"}
            topics = [{"name": THEIRS, "partitions": [committed]}]
            answer = raw.call(
                "offset_commit", 8, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
            )
            self._well(answer.topics[0].partitions[0])
        rules = [
            (WRITER, MINE, WRITE),
            (WITNESS, OF_WITNESS, WRITE),
            (WITNESS, OF_WITNESS, READ),
            (f"{CANARY}-ruled", f"{CANARY}-rules", READ),
        ]
        for user, topic, operation in rules:
            rule = {"resource_type": TOPIC, "resource_name": topic, "resource_pattern_type": LITERAL}
            rule |= {"principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": ALLOW}
            self._well(raw.call("create_acls", 3, creations=[rule]).results[0])
        entity = [{"entity_type": "user", "entity_name": f"{CANARY}-quota"}]
        quota = {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 777.0, "remove": False}]}
        self._well(raw.call("alter_client_quotas", 1, entries=[quota], validate_only=False).entries[0])

    def _transact(self) -> int:
        """One transaction that is done."""
        raw, given = self._raw, {"transactional_id": TRANSACTIONAL_ID, "transaction_timeout": 60_000}
        give_up = time.monotonic() + WITNESS_S
        while True:
            answer = raw.call("init_producer_id", 4, **given, producer_id=-1, producer_epoch=-1)
            if answer.error_code is ErrorCode.none or time.monotonic() > give_up:
                break
            time.sleep(ASK_AGAIN_SECONDS)
        self._well(answer)
        own = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        named = {"transactional_id": TRANSACTIONAL_ID, **own}
        added = {f"v3_and_below_{name}": value for name, value in named.items()}
        added["v3_and_below_topics"] = [{"name": THEIRS, "partitions": [1]}]
        raw.call("add_partitions_to_txn", 3, **added)
        value = f"{CANARY} of a transaction".encode()
        records = batch([value], pid=answer.producer_id, epoch=answer.producer_epoch, sequence=0, attributes=16)
        data = [{"name": THEIRS, "partition_data": [{"index": 1, "records": records}]}]
        produced = raw.call("produce", 9, transactional_id=TRANSACTIONAL_ID, acks=-1, timeout=10_000, topic_data=data)
        self._well(produced.responses[0].partition_responses[0])
        self._well(raw.call("end_txn", 3, **named, committed=True))
        self._until_ended(give_up)
        return int(answer.producer_id)

    def _until_ended(self, give_up: float) -> None:
        while self._transaction().transaction_state != "CompleteCommit":
            if time.monotonic() > give_up:
                raise Broken("the transaction does not end")
            time.sleep(ASK_AGAIN_SECONDS)

    def _transaction(self) -> Any:
        return self._raw.call("describe_transactions", 0, transactional_ids=[TRANSACTIONAL_ID]).transaction_states[0]

    def _well(self, answer: Any) -> None:
        if answer.error_code is not ErrorCode.none:
            raise Broken(f"the owner is answered {answer}")

    def _metadata(self) -> Any:
        return self._raw.call("metadata", 12, topics=None, allow_auto_topic_creation=False)

    def _seen(self) -> dict[str, Any]:
        raw = self._raw
        partitions = [(THEIRS, 0), (THEIRS, 1), (THEIRS_COMPACTED, 0), (UNKNOWN, 0)]
        configs = [{"resource_type": 2, "resource_name": name} for name in (MINE, THEIRS, THEIRS_COMPACTED, UNKNOWN)]
        configs += [{"resource_type": 4, "resource_name": "1"}]
        any_rule = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
        return {
            "topics": self._metadata().topics,
            "records": [raw.fetch(topic, number, 0) for topic, number in partitions],
            "producers": [raw.describe_producers(topic, number) for topic, number in partitions],
            "configs": raw.call(
                "describe_configs", 4, resources=[each | {"configuration_keys": None} for each in configs]
            ).results,
            "groups": raw.call("list_groups", 4, states_filter=[]).groups,
            "offsets": raw.call(
                "offset_fetch",
                8,
                groups=[{"group_id": group, "topics": None} for group in (GROUP, f"{CANARY}-group", "group")],
            ).groups,
            "rules": sorted(map(str, raw.call("describe_acls", 3, **any_rule).resources)),
            "quotas": raw.call("describe_client_quotas", 1, components=[], strict=False).entries,
            "users": raw.call("describe_user_scram_credentials", 0, users=None).results,
            "transactions": raw.call("list_transactions", 0).transaction_states,
            "transaction": self._transaction(),
        }

    def look(self) -> None:
        """Raises Broken where anything is not as it was."""
        now = self._seen()
        for what, before in self._before.items():
            if now[what] != before:
                raise Broken(f"the {what} of others have changed: {before}\nand now: {now[what]}")

    def proofs(self) -> int:
        """How many have proven who they are so far."""
        basic = b64encode(f"{OWNER}:{PASSWORDS[OWNER]}".encode()).decode()
        connection = http.client.HTTPSConnection(
            "localhost", self._server.metrics_port, timeout=WITNESS_S, context=self._server.context()
        )
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Basic {basic}"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for line in text.splitlines():
            if line.startswith("oncelog_authentications_total "):
                return int(float(line.split()[1]))
        raise Broken(f"the owner does not get the metrics: {answer.status}")


@dataclass
class Harm:
    """What came of it."""

    said: Counter[str] = field(default_factory=Counter)
    acts: int = 0
    looks: int = 0
    waits_ms: list[float] = field(default_factory=list)  # of the witness
    before_mb: float = 0.0
    peak_mb: float = 0.0
    rest_mb: float = 0.0

    def __str__(self) -> str:
        waits = sorted(self.waits_ms) or [0.0]
        middle, late, worst = (waits[min(len(waits) - 1, int(len(waits) * part))] for part in (0.5, 0.999, 1.0))
        said = ", ".join(f"{count:,} {what}" for what, count in self.said.most_common())
        return (
            f"{self.acts:,} acts: {said}; looked {self.looks} times at what others have; the witness waited "
            f"{middle:.1f} ms, {late:.1f} at 99.9 %, {worst:.1f} at most; memory in MB {self.before_mb:.0f} before, "
            f"{self.peak_mb:.0f} at most, {self.rest_mb:.0f} after"
        )


class Watch:
    """What must not be seen anywhere, and must not change."""

    def __init__(self, server: SecuredServer) -> None:
        self._server = server
        self.owner = Owner(server)
        self._witness = server.enter(WITNESS)
        self._offset = 0
        self._log_at = 0
        self.harm = Harm()
        self.look_at_witness()
        self.let_in = self.owner.proofs()
        self.harm.before_mb = resident_mb(server.pid)

    def close(self) -> None:
        self.owner.close()
        self._witness.close()

    def answered(self, data: bytes, what: str) -> None:
        if CANARY.encode() in data:
            raise Broken(f"{what} was told what it may not know: {data[:2000]!r}")

    def look_at_witness(self) -> None:
        begun = time.perf_counter()
        answer = self._witness.produce(OF_WITNESS, 0, batch([b"still here"]))
        self.harm.waits_ms.append((time.perf_counter() - begun) * 1000)
        if answer.error_code is not ErrorCode.none or answer.base_offset != self._offset:
            raise Broken(f"the witness was answered {answer.error_code.name} at {answer.base_offset}")
        self._offset += 1

    def look_at_log(self) -> None:
        if not self._server.is_running:
            raise Broken("the server is gone")
        with open(self._server.log, errors="replace") as log:
            log.seek(self._log_at)
            text = log.read()
            self._log_at = log.tell()
        if found := UNEXPECTED.search(text):
            raise Broken(f"the server's log says:\n{text[max(0, found.start() - 300) : found.start() + 2500]}")
        for secret in PASSWORDS.values():
            if secret in text:
                raise Broken(f"the server's log has {secret!r}")

    def look_at_others(self) -> None:
        self.harm.looks += 1
        self.owner.look()
        if (let_in := self.owner.proofs()) != self.let_in:
            raise Broken(f"{let_in - self.let_in} were let in")

    def look_at_the_end(self) -> None:
        """With the old passwords, too, of which nobody is told more than how often they are hashed."""
        self.look_at_others()
        self.look_at_log()
        for user in PASSWORDS:
            self._server.enter(user).close()

    def look_at_memory(self, growth_mb: float = GROWTH_MB) -> None:
        """What threads still unfold gets some time."""
        give_up = time.monotonic() + WITNESS_S
        while True:
            self.harm.rest_mb = now_mb = resident_mb(self._server.pid)
            self.harm.peak_mb = max(self.harm.peak_mb, now_mb)
            if now_mb <= self.harm.before_mb + growth_mb:
                return
            if time.monotonic() > give_up:
                raise Broken(f"memory grew from {self.harm.before_mb:.0f} to {now_mb:.0f} MB")
            time.sleep(ASK_AGAIN_SECONDS)


@contextmanager
def watching(server: SecuredServer) -> Iterator[Watch]:
    found = Watch(server)
    try:
        yield found
    finally:
        found.close()
