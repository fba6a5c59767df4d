"""An experiment's outcome in words, for a terminal and for `page.py`, and as JSON. Pure."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from oncelog.chaos.outcome import Options, Outcome, Pipeline, Verdict
from oncelog.chaos.plan import Target
from oncelog.chaos.sinks import FLOW, KAFKA

SHOWN_RUNS: Final = 20
GAP: Final = "longest gap"
WORDS: Final = {
    Verdict.EXACT: "exact: every confirmed message stands there once, in its order",
    Verdict.NOT_EXACT: "not exact",
    Verdict.INCONCLUSIVE: "inconclusive",
}
MEANINGS: Final[Mapping[str, str]] = {  # of counts whose names do not say it
    "confirmed": "the log said it has them",
    "received": "read back at the end",
    "rows due": "none, one or two a message",
    "by timers": "of the rows due",
    "rows written": "read back at the end",
    "missing": "and should be there",
    "out of order": "behind a larger number",
    "given up by the client": "and told so",
    "there, not confirmed": "which is no fault",
    "foreign": "nobody sent them",
    "started again by itself": "the driver, without a kill",
    "compared": "records, byte for byte, at all brokers",
    "damaged": "or not the same at all of them",
}
_NAME, _COUNT = 26, 14
_SECRET: Final = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)  # as Spark's own page hides them


def verdict_in_words(outcome: Outcome) -> str:
    words = WORDS[outcome.verdict]
    if outcome.verdict is Verdict.INCONCLUSIVE:
        words += f": {_open_in_words(outcome)}"
    if outcome.verdict is Verdict.NOT_EXACT:
        words += ": " + ", ".join(
            _wrong(counts(outcome), "")
            + _wrong(written_counts(outcome), " of the rows")
            + _wrong(replica_counts(outcome), " places at brokers")
        )
    return words


def _open_in_words(outcome: Outcome) -> str:
    if not outcome.result.confirmed:
        return "no message was confirmed, so there was nothing to count"
    if outcome.untold:
        return f"of {outcome.untold:,} messages the client said neither that they are stored nor that it gave them up"
    kinds = ", ".join(outcome.idle_targets)
    return f"these faults never met work under way: {kinds}. Send more, or set a smaller --every"


def is_wrong(name: str, count: int) -> bool:
    return count > 0 and name in ("duplicates", "missing", "out of order", "foreign", "damaged")


def _wrong(found: Mapping[str, int], of_what: str) -> list[str]:
    return [f"{count:,} {name}{of_what}" for name, count in found.items() if is_wrong(name, count)]


def counts(outcome: Outcome) -> dict[str, int]:
    """The counts of the article, and some more."""
    result = outcome.result
    found = {
        "sent": result.sent,
        "confirmed": result.confirmed,
        "received": result.all.received,
        "unique": result.all.unique,
        "duplicates": result.all.duplicates,
        "missing": result.missing,
        "out of order": result.all.out_of_order,
    }
    rare = {
        "given up by the client": outcome.failed,
        "there, not confirmed": result.unconfirmed_there,
        "foreign": result.all.foreign,
    }
    return found | {name: count for name, count in rare.items() if count}


def written_counts(outcome: Outcome) -> dict[str, int]:
    """The counts of what the pipeline wrote; nothing where there is none."""
    written = outcome.written
    if written is None:
        return {}
    found = {
        "rows due": written.confirmed,
        **({"by timers": outcome.timers} if outcome.timers else {}),
        "rows written": written.all.received,
        "unique": written.all.unique - written.unconfirmed_there,
        "duplicates": written.all.duplicates,
        "missing": written.missing,
        "out of order": written.all.out_of_order,
        "foreign": written.all.foreign + written.unconfirmed_there,
    }
    return found | {"started again by itself": outcome.restarts}


def replica_counts(outcome: Outcome) -> dict[str, int]:
    """The counts of a cluster; nothing where there is none."""
    found = outcome.replicas
    return {} if found is None else {"compared": found.records, "damaged": len(found.damage)}


def pipeline_in_words(pipeline: Pipeline) -> str:
    named = {KAFKA: "Spark's own sink", FLOW: "a flow of two stages"}
    sink = named.get(pipeline.sink, f"the {pipeline.sink} sink")
    return f"Spark, {'on a cluster' if pipeline.is_cluster else 'local'}, {sink}"


def lines(outcome: Outcome) -> list[str]:
    """The report as lines for a terminal."""
    found = ["messages", *_table(counts(outcome))]
    if outcome.options.spark is not None:
        found += ["", f"through {pipeline_in_words(outcome.options.spark)}", *_table(written_counts(outcome))]
    if outcome.replicas is not None:
        found += ["", "replicas", *_table(replica_counts(outcome))]
        found += [f"  {each}" for each in outcome.replicas.damage[:SHOWN_RUNS]]
    found += ["", "behind a larger number", *(f"  {words}" for words in runs_in_words(outcome))] * bool(
        outcome.result.runs
    )
    found += ["", *_faults_in_words(outcome)] if outcome.options.targets else []
    found += ["", f"left on {outcome.options.servers}: {', '.join(outcome.left)}"] if outcome.left else []
    rate = outcome.result.confirmed / max(outcome.seconds, 0.001)
    found += ["", f"{outcome.seconds:.1f} s, {rate:,.0f} messages/s confirmed"]
    found.append(verdict_in_words(outcome))
    return found


def _table(found: Mapping[str, int]) -> list[str]:
    return [
        f"  {name:<{_NAME}}{count:>{_COUNT},}    {MEANINGS.get(name, '')}".rstrip() for name, count in found.items()
    ]


def runs_in_words(outcome: Outcome) -> list[str]:
    runs = outcome.result.runs
    found = [
        f"partition {run.partition}: m={run.number} last={run.last} JUMP BACK {run.jump}, "
        f"a run of {run.length:,}, {run.duplicates:,} of them duplicates"
        for run in runs[:SHOWN_RUNS]
    ]
    more = outcome.result.all.runs - len(found)
    return [*found, f"and {more:,} more runs"] if more > 0 else found


class FaultsOfAKind(NamedTuple):
    target: Target
    planned: int
    happened: int
    hit_work: int
    gap_s: float | None  # the longest


def faults_by_kind(outcome: Outcome) -> list[FaultsOfAKind]:
    """The faults that were asked for, by their kinds."""
    planned = Counter(event.target for event in outcome.planned)
    happened = Counter(each.target for each in outcome.happened)
    hit = Counter(each.target for each in outcome.happened if each.hit_work)
    return [
        FaultsOfAKind(target, planned[target], happened[target], hit[target], _longest_gap_s(outcome, target))
        for target in sorted(outcome.options.targets)
    ]


def _longest_gap_s(outcome: Outcome, target: Target) -> float | None:
    return max(
        (each.gap_s for each in outcome.happened if each.target is target and each.gap_s is not None), default=None
    )


def gap_in_words(gap_s: float | None) -> str:
    return "" if gap_s is None else f"{gap_s:.1f} s"


def _faults_in_words(outcome: Outcome) -> list[str]:
    has_gaps = outcome.options.brokers > 0  # one server is away until it is back
    head = f"{'killed':<{_NAME + 2}}{'planned':>{_COUNT}}{'came about':>{_COUNT}}{'hit work':>{_COUNT}}"
    found = [head + f"{GAP:>{_COUNT}}" * has_gaps]
    for kind in faults_by_kind(outcome):
        gap = f"{gap_in_words(kind.gap_s):>{_COUNT}}" * has_gaps
        counted = f"{kind.planned:>{_COUNT},}{kind.happened:>{_COUNT},}{kind.hit_work:>{_COUNT},}"
        found.append(f"  {kind.target:<{_NAME}}{counted}{gap}".rstrip())
    return found


def options_in_words(options: Options) -> str:
    found = [
        f"{options.client} sends, idempotence {'on' if options.is_idempotent else 'off'}, linger {options.linger_ms} ms"
    ]
    found += [f"at most {options.rate:,} messages a second"] if options.rate else []
    found += [f"{options.partitions:,} partitions"] if options.partitions > 1 else []
    found += [f"{options.brokers} brokers"] if options.brokers else []
    found += [f"through {pipeline_in_words(options.spark)}"] if options.spark is not None else []
    return "; ".join([*found, f"seed {options.seed}"])


def command_of(options: Options) -> str:
    """The command that plans the same again."""
    said: dict[str, object] = {"--messages": options.messages, "--every": options.every, "--seed": options.seed}
    if options.seconds:
        said = {"--minutes": f"{options.seconds / 60:g}", **{name: said[name] for name in ("--every", "--seed")}}
    said["--kill"] = ",".join(sorted(options.targets)) or "nothing"
    said |= {"--client": options.client, "--linger": options.linger_ms, "--partitions": options.partitions}
    said |= {"--rate": options.rate} if options.rate else {}
    said |= {"--idempotence": "off"} if not options.is_idempotent else {}
    said |= {"--servers": options.servers} if options.servers else {}
    said |= {"-F": "..."} if options.login else {}
    said |= {"--cluster": options.brokers} if options.brokers else {}
    words = ["oncelog", "chaos", *(str(word) for option in said.items() for word in option)]
    if options.spark is not None:
        words += ["--spark", "--sink", options.spark.sink, *["--spark-cluster"] * options.spark.is_cluster]
        for name, value in options.spark.conf.items():
            words += ["--spark-conf", f"{name}={'...' if _SECRET.search(name) else value}"]
    return shlex.join(words)


def as_json(outcome: Outcome) -> dict[str, Any]:
    options = outcome.options
    return {
        "verdict": outcome.verdict.name.lower().replace("_", " "),
        "options": {
            "messages": options.messages,
            "client": options.client,
            "idempotence": "on" if options.is_idempotent else "off",
            "linger": options.linger_ms,
            "kill": sorted(options.targets),
            "every": options.every,
            "seed": options.seed,
            "partitions": options.partitions,
            "rate": options.rate,
            "servers": options.servers or None,
            "brokers": options.brokers or None,
            "pipeline": _pipeline(options.spark),
        },
        "counts": counts(outcome),
        "spark": written_counts(outcome) or None,
        "replicas": _replicas(outcome),
        "partitions": {
            str(partition): {
                "received": tally.received,
                "unique": tally.unique,
                "duplicates": tally.duplicates,
                "out of order": tally.out_of_order,
                "foreign": tally.foreign,
            }
            for partition, tally in outcome.result.partitions.items()
        },
        "runs": [
            {
                "partition": run.partition,
                "offset": run.row,
                "message": run.number,
                "last": run.last,
                "jump back": run.jump,
                "length": run.length,
                "duplicates": run.duplicates,
            }
            for run in outcome.result.runs
        ],
        "missing": list(outcome.result.missing_examples),
        "planned": [
            {"at": event.at, "target": str(event.target), "what": event.in_words()} for event in outcome.planned
        ],
        "happened": [
            {
                "planned at": each.planned_at,
                "confirmed": each.confirmed,
                "seconds": round(each.seconds, 3),
                "target": str(each.target),
                "in flight": each.in_flight,
                "gap": None if each.gap_s is None else round(each.gap_s, 3),
                "what": each.words,
            }
            for each in outcome.happened
        ],
        "seconds": round(outcome.seconds, 3),
        "samples": [list(sample) for sample in outcome.samples],
    }


def _replicas(outcome: Outcome) -> dict[str, Any] | None:
    found = outcome.replicas
    return None if found is None else {"compared": found.records, "damage": list(found.damage)}


def _pipeline(told: Pipeline | None) -> dict[str, Any] | None:
    if told is None:
        return None
    where = "cluster" if told.is_cluster else "local"
    return {"sink": told.sink, "where": where, "messages a batch": told.rows_a_batch, "said": sorted(told.conf)}
