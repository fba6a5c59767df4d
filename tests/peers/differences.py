"""Every known difference between oncelog's answers and Apache Kafka's, with the reason.

`test_questions.py` fails on a difference that is not listed here, and on one listed here that is gone.
`docs/compatibility.md` repeats this list; `python -m tests.peers.differences` writes it there, a test holds it there.
"""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
BEGIN = "<!-- the differences: written by python -m tests.peers.differences -->"
END = "<!-- end of the differences -->"


@dataclass(frozen=True, slots=True)
class Difference:
    kafka: object
    oncelog: object
    what: str
    reason: str


TAKEN = (("none", 0), 2)
INVALID = (("invalid_record", -1), 0)
STRICTER = "Half an identity protects nothing; a client that sends it has a mistake, and is told."
NAMED = "The same refusal, by the code that names it."


def _unread(kind: str) -> Difference:
    return Difference((("unknown_server_error", -1), 0), INVALID, f"A batch whose {kind}", NAMED)


_CODEC_KAFKA = (("unknown_server_error", -1), 0)
_CODEC_ONCELOG = (("unsupported_compression_type", -1), 0)

DIFFERENCES: dict[str, Difference] = {
    "quotas that are no numbers": Difference(
        ["none", "none"], ["invalid_request"] * 2, "A quota of NaN or infinity", "No rate can be compared with them."
    ),
    "produce an unknown codec": Difference(_CODEC_KAFKA, _CODEC_ONCELOG, "Codec 5, which does not exist", NAMED),
    "produce a codec of seven": Difference(_CODEC_KAFKA, _CODEC_ONCELOG, "Codec 7, which does not exist", NAMED),
    "produce a producer id without an epoch": Difference(
        TAKEN, INVALID, "A producer id with a sequence but without an epoch", STRICTER
    ),
    "produce a producer id of minus two": Difference(TAKEN, INVALID, "A producer id below -1", STRICTER),
    "produce garbage that claims to be gzip": _unread("records are not the gzip that they claim to be"),
    "produce garbage that claims to be snappy": _unread("records are not the snappy that they claim to be"),
    "produce garbage that claims to be lz4": _unread("records are not the lz4 that they claim to be"),
    "produce garbage that claims to be zstd": _unread("records are not the zstd that they claim to be"),
    "produce garbage records that are not compressed": _unread("uncompressed records are garbage"),
    "produce a batch with a tail of garbage": Difference(
        ("none", 0),
        ("invalid_record", -1),
        "Bytes behind the batch",
        "Nothing may follow the one batch of a partition.",
    ),
    "change settings step by step": Difference(
        [*["none"] * 4, *["invalid_config"] * 3, "unknown_topic_or_partition", "none", "unknown_server_error"],
        [*["none"] * 4, *["invalid_config"] * 3, "unknown_topic_or_partition", "none", "invalid_request"],
        "IncrementalAlterConfigs: a `compression.type`; an operation that does not exist",
        NAMED,
    ),
    "change the configs of client metrics": Difference(
        ["none"] * 2,
        ["invalid_config"] * 2,
        "IncrementalAlterConfigs, AlterConfigs: another value for client metrics",
        "They are shown, and change nothing here.",
    ),
    "describe how often a group shares anew": Difference(
        ["none", ["1000"]],
        ["none", ["0"]],
        "DescribeConfigs of a group: a `consumer.assignment.interval.ms` that is not set",
        "It is the server's `group.consumer.assignment.interval.ms`; with Kafka's every test would wait.",
    ),
    "list every resource that has configs": Difference(
        ["none", [2, 4, 8]],
        ["none", [2, 4]],
        "ListConfigResources: loggers of brokers (8)",
        "Levels of loggers are not changed from afar.",
    ),
    "create a topic of small segments": Difference(
        "invalid_config",
        "none",
        "A `segment.bytes` below 1 MB",
        "Small segments are of use in tests.",
    ),
}


def text() -> str:
    lines = ["| what is asked | Apache Kafka | oncelog | why |", "|---|---|---|---|"]
    for difference in DIFFERENCES.values():
        cells = (difference.what, _said(difference.kafka), _said(difference.oncelog), difference.reason)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _said(answer: object) -> str:
    """The last error code in an answer; a list of answers is told by where the two differ."""
    if answer is True:
        return "a coordinator"
    if isinstance(answer, list):
        return ", ".join(f"`{str(one).upper()}`" for one in answer[-2:])
    while isinstance(answer, tuple):
        answer = answer[0]
    return "accepted" if answer == "none" else f"`{str(answer).upper()}`"


def page_with(table: str) -> str:
    before, rest = PAGE.read_text().split(BEGIN, 1)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page_with(text()))
