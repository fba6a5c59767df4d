"""Makes java_cases.json: what the real Java assignors answer to a few hundred questions made by chance.

`python -m tests.client.groups.java_cases` writes it anew. The questions are put to Kafka's own jar in a jshell.
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.peers.jars import kafka_jars

FILE = Path(__file__).parent / "java_cases.json"
CASES = 60
ASSIGNORS = ("Range", "RoundRobin", "Sticky", "CooperativeSticky")

# Reads one question a line: name;topic=count,...;member|instance|topic,...|owned:partition,...|generation;...
PROGRAM = """
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.internals.*;
import org.apache.kafka.common.*;
import java.util.*;
AbstractPartitionAssignor make(String name) {
    if (name.equals("Range")) return new RangeAssignor();
    if (name.equals("RoundRobin")) return new RoundRobinAssignor();
    return name.equals("Sticky") ? new StickyAssignor() : new CooperativeStickyAssignor();
}
List<TopicPartition> partitions(String text) {
    List<TopicPartition> found = new ArrayList<>();
    for (String each : text.split(",")) if (!each.isEmpty())
        found.add(new TopicPartition(each.split(":")[0], Integer.parseInt(each.split(":")[1])));
    return found;
}
java.nio.ByteBuffer userdata(List<TopicPartition> owned, int generation) {
    StickyAssignor assignor = new StickyAssignor();
    assignor.onAssignment(new ConsumerPartitionAssignor.Assignment(owned),
        new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
    return assignor.subscriptionUserData(Set.of());
}
void answer(String line) {
    String[] parts = line.split(";");
    Map<String, List<PartitionInfo>> topics = new HashMap<>();
    for (String each : parts[1].split(",")) {
        String[] pair = each.split("=");
        List<PartitionInfo> found = new ArrayList<>();
        for (int index = 0; index < Integer.parseInt(pair[1]); index++)
            found.add(new PartitionInfo(pair[0], index, null, new Node[0], new Node[0]));
        topics.put(pair[0], found);
    }
    Map<String, ConsumerPartitionAssignor.Subscription> members = new HashMap<>();
    for (int at = 2; at < parts.length; at++) {
        String[] said = parts[at].split("\\\\|", -1);
        List<TopicPartition> owned = partitions(said[3]);
        int generation = Integer.parseInt(said[4]);
        boolean eager = !parts[0].equals("CooperativeSticky");
        boolean tells = parts[0].equals("Sticky") && generation >= 0;
        ConsumerPartitionAssignor.Subscription subscription = new ConsumerPartitionAssignor.Subscription(
            new ArrayList<>(List.of(said[2].split(","))), tells ? userdata(owned, generation) : null,
            eager ? List.of() : owned, generation, Optional.empty());
        if (!said[1].isEmpty()) subscription.setGroupInstanceId(Optional.of(said[1]));
        members.put(said[0], subscription);
    }
    StringBuilder out = new StringBuilder("=");
    for (var each : new TreeMap<>(make(parts[0]).assignPartitions(topics, members)).entrySet()) {
        out.append(each.getKey()).append("|");
        for (TopicPartition place : each.getValue()) out.append(place.topic() + ":" + place.partition() + ",");
        out.append(";");
    }
    System.out.println(out);
}
"""


def questions() -> list[dict[str, Any]]:
    chance = random.Random(20240612)
    return [_question(chance, ASSIGNORS[number % len(ASSIGNORS)]) for number in range(CASES * len(ASSIGNORS))]


def _question(chance: random.Random, assignor: str) -> dict[str, Any]:
    topics = {f"t{number}": chance.randint(1, 8) for number in range(chance.randint(1, 4))}
    names = sorted(topics)
    is_same = chance.random() < 0.5
    members = [
        {
            "id": f"m{number}-{chance.randrange(1000)}",
            "instance": f"i{chance.randrange(1000)}-{number}" if chance.random() < 0.2 else None,
            "topics": names if is_same else sorted(chance.sample(names, chance.randint(1, len(names)))),
            "owned": [],
            "generation": -1,
        }
        for number in range(chance.randint(1, 6))
    ]
    if assignor.endswith("Sticky") and chance.random() < 0.85:
        _give_past(chance, topics, members)
    return {"assignor": assignor, "topics": topics, "members": members}


def _give_past(chance: random.Random, topics: dict[str, int], members: list[dict[str, Any]]) -> None:
    """Some members were there before, and a few partitions have come since."""
    old = [member for member in members if chance.random() < 0.8] or members[:1]
    for member in old:
        member["generation"] = 7
    for topic, count in topics.items():
        wanting = [member for member in old if topic in member["topics"]]
        for partition in range(count):
            if wanting and chance.random() < 0.85:
                chance.choice(wanting)["owned"].append([topic, partition])


def ask_java(asked: list[dict[str, Any]]) -> list[dict[str, list[list[Any]]]]:
    class_path = ":".join(str(jar) for jar in kafka_jars().glob("*.jar"))
    lines = ",\n".join(json.dumps(_line(each)) for each in asked)
    program = f"{PROGRAM}\nString[] lines = {{\n{lines}\n}};\nfor (String line : lines) answer(line);\n/exit\n"
    done = subprocess.run(
        ["jshell", "--class-path", class_path, "-s", "-"],
        input=program,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    answers = [_answer(line[1:]) for line in done.stdout.splitlines() if line.startswith("=")]
    assert len(answers) == len(asked), done.stdout[-2000:] + done.stderr[-2000:]
    return answers


def _line(asked: dict[str, Any]) -> str:
    topics = ",".join(f"{topic}={count}" for topic, count in asked["topics"].items())
    members = [
        "|".join(
            (
                member["id"],
                member["instance"] or "",
                ",".join(member["topics"]),
                ",".join(f"{topic}:{partition}" for topic, partition in member["owned"]),
                str(member["generation"]),
            )
        )
        for member in asked["members"]
    ]
    return ";".join((asked["assignor"], topics, *members))


def _answer(line: str) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for each in line.split(";"):
        if each:
            member_id, _, places = each.partition("|")
            pairs = [place.split(":") for place in places.split(",") if place]
            found[member_id] = [[topic, int(partition)] for topic, partition in pairs]
    return found


def main() -> None:
    asked = questions()
    cases = [{**question, "java": answer} for question, answer in zip(asked, ask_java(asked), strict=True)]
    FILE.write_text("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
    sys.stdout.write(f"{len(cases)} cases\n")


if __name__ == "__main__":
    main()
