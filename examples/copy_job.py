"""Copies a topic to another, every record once, wherever it is killed and wherever it is started again.

    python examples/copy_job.py --source in --destination out --group copy-in-to-out

Input position and producer are saved together, in the committed offsets of a group of its own. Who starts with the
same group goes on where the last save stands: what was copied since then is produced again by this program, recognised
in the destination, compared, and not written a second time. Two copies that run at once by mistake do no harm; one of
them is told, and ends. Both topics need the same number of partitions, and may live on two clusters.
"""

import argparse
import sys
import time

from oncelog.client import Consumer, KafkaException, Producer, SavedProducer, TopicPartition

TAKEN_OVER = 3


def main() -> int:
    options = read_options()
    group = {
        "bootstrap.servers": options.source_servers or options.servers,
        "group.id": options.group,
        "enable.auto.commit": False,
    }
    positions, saved = SavedProducer.load(group)
    consumer = Consumer(group)
    producer = Producer({"bootstrap.servers": options.servers, "oncelog.queue.full": "block"}, saved=saved)
    try:
        refuse_unless_alike(partitions_of(consumer, options.source), partitions_of(producer, options.destination))
        if saved is None:
            producer.pin(options.destination)
            positions = beginning_of(consumer, options.source)
        # Before the first record: from here on no copy can begin with another identity.
        consumer.commit(offsets=positions, producer=producer)
        consumer.assign(positions)
        say(f"copying from {places(positions)}")
        copy(consumer, producer, positions, options)
    except KafkaException as failure:
        say(f"stopped: {failure.error.str()}")
        return TAKEN_OVER if failure.error.fatal() else 1
    finally:
        producer.close(0)
        consumer.close()
    say(f"copied up to {places(positions)}")
    return 0


def copy(consumer: Consumer, producer: Producer, positions: list[TopicPartition], options: argparse.Namespace) -> None:
    by_partition = {each.partition: each for each in positions}
    ends = {each.partition: watermarks(consumer, each)[1] for each in positions}
    save_at_s = time.monotonic() + options.save_every
    while True:
        for message in consumer.consume(1000, timeout=0.1):
            if (error := message.error()) is not None:
                raise KafkaException(error)
            producer.produce(
                options.destination,
                message.value(),
                key=message.key(),
                partition=message.partition(),  # its own: so a replay is the same, however the partitions take turns
                headers=message.headers(),
                timestamp=max(0, message.timestamp()[1]),
            )
            by_partition[message.partition()].offset = message.offset() + 1
        producer.poll(0)
        is_done = options.until_end and all(each.offset >= ends[each.partition] for each in positions)
        if is_done or time.monotonic() >= save_at_s:
            # Waits until all of it is stored, and saves where the input and the producer stand, in one commit.
            consumer.commit(offsets=positions, producer=producer)
            save_at_s = time.monotonic() + options.save_every
        if is_done:
            return


def partitions_of(client: Consumer | Producer, topic: str) -> list[TopicPartition]:
    """All that there are. Every topic is asked for: asking for one by its name may make it."""
    found = client.list_topics(timeout=30).topics.get(topic)
    if found is None:
        sys.exit(f"there is no topic {topic}")
    return [TopicPartition(topic, index) for index in sorted(found.partitions)]


def refuse_unless_alike(source: list[TopicPartition], destination: list[TopicPartition]) -> None:
    """Before the first record, and before the group is bound to what it would then hold for good."""
    if len(destination) < len(source):
        sys.exit(f"the destination has {len(destination)} partitions, and needs the {len(source)} of the source")


def beginning_of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    return [
        TopicPartition(topic, each.partition, watermarks(consumer, each)[0]) for each in partitions_of(consumer, topic)
    ]


def watermarks(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    found = consumer.get_watermark_offsets(partition, timeout=30)
    assert found is not None  # it is None only where `cached` is asked for
    return found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092", help="of the destination")
    parser.add_argument("--source-servers", help="where the source is elsewhere")
    parser.add_argument("--source", required=True)
    parser.add_argument("--destination", required=True)
    parser.add_argument("--group", required=True, help="where this job is saved; a group of its own")
    parser.add_argument("--save-every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--until-end", action="store_true", help="end at what was the end when it began")
    return parser.parse_args()


def places(positions: list[TopicPartition]) -> str:
    return ", ".join(f"{each.topic}-{each.partition}@{each.offset}" for each in positions)


def say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
