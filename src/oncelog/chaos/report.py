"""An experiment's outcome in words, as JSON, and as one page of HTML that needs nothing else."""

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from oncelog.chaos.outcome import Killed, Outcome, Verdict

SHOWN_RUNS: Final = 20
WIDTH, HEIGHT, MARGIN = 860, 220, 56
_WORDS: Final = {
    Verdict.EXACT: "exact: every confirmed message stands there once, in its order",
    Verdict.NOT_EXACT: "not exact",
    Verdict.INCONCLUSIVE: "inconclusive",
}


def verdict_in_words(outcome: Outcome) -> str:
    words = _WORDS[outcome.verdict]
    if outcome.verdict is Verdict.INCONCLUSIVE:
        words += (
            f": nothing was in flight whenever {', '.join(outcome.idle_targets)} were hit; send more, or hit more often"
        )
    return words


def counts(outcome: Outcome) -> dict[str, int]:
    """What the article counts, and what it does not."""
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
    """Of what the pipeline wrote; nothing where there is none."""
    written = outcome.written
    if written is None:
        return {}
    found = {
        "rows due": written.confirmed,
        "rows written": written.all.received,
        "unique": written.all.unique - written.unconfirmed_there,
        "duplicates": written.all.duplicates,
        "missing": written.missing,
        "out of order": written.all.out_of_order,
        "foreign": written.all.foreign + written.unconfirmed_there,
    }
    return found | ({"started again by itself": outcome.restarts} if outcome.restarts else {})


def lines(outcome: Outcome) -> list[str]:
    """For a terminal."""
    found = [f"{name:<24}{count:>14,}" for name, count in counts(outcome).items()]
    if outcome.written is not None:
        found += ["", "through Spark:"]
        found += [f"{name:<24}{count:>14,}" for name, count in written_counts(outcome).items()]
    found += ["", *_runs_in_words(outcome)] if outcome.result.runs else []
    found += ["", *_faults_in_words(outcome)]
    rate = outcome.result.confirmed / max(outcome.seconds, 0.001)
    found += ["", f"{outcome.seconds:.1f} s, {rate:,.0f} messages/s confirmed"]
    found.append(verdict_in_words(outcome))
    return found


def _runs_in_words(outcome: Outcome) -> list[str]:
    runs = outcome.result.runs
    found = [
        f"partition {run.partition}: m={run.number} last={run.last} JUMP BACK {run.jump}, "
        f"a run of {run.length:,}, {run.duplicates:,} of them duplicates"
        for run in runs[:SHOWN_RUNS]
    ]
    more = outcome.result.all.runs - len(found)
    return [*found, f"and {more:,} more runs"] if more > 0 else found


def _faults_in_words(outcome: Outcome) -> list[str]:
    planned = Counter(event.target for event in outcome.planned)
    happened = Counter(each.target for each in outcome.happened)
    hit = Counter(each.target for each in outcome.happened if each.hit_work)
    return [
        f"{target:<24}{planned[target]:>6,} planned, {happened[target]:,} came about, {hit[target]:,} hit work"
        for target in sorted(outcome.options.targets)
    ]


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
        },
        "counts": counts(outcome),
        "spark": written_counts(outcome) or None,
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
                "what": each.words,
            }
            for each in outcome.happened
        ],
        "seconds": round(outcome.seconds, 3),
        "samples": [list(sample) for sample in outcome.samples],
    }


# --- the page ---------------------------------------------------------------------------------------------------------

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #667; --line: #0969da; --fault: #cf222e; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9aa; --line: #58a6ff; --fault: #ff7b72; --paper: #0d1117; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 920px;
  margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } td, th { padding: .15rem .9rem .15rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } h2 { margin-top: 2rem; }
.verdict { font-size: 1.3rem; font-weight: 600; } figcaption, .quiet { color: var(--quiet); }
figure { margin: 1.5rem 0; overflow-x: auto; } svg text { fill: var(--quiet); font-size: 11px; }
svg .line { fill: none; stroke: var(--line); stroke-width: 1.5; } svg .bar { fill: var(--line); }
svg .fault { stroke: var(--fault); stroke-width: 1; opacity: .5; } svg .axis { stroke: var(--quiet); }
"""


def as_html(outcome: Outcome) -> str:
    options = outcome.options
    what = (
        f"{options.client}, idempotence {'on' if options.is_idempotent else 'off'}, linger {options.linger_ms} ms, "
        f"seed {options.seed}, killed: {', '.join(sorted(options.targets)) or 'nothing'}"
    )
    where = options.servers or "a server of its own"
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td class=n>{count:,}</td></tr>" for name, count in counts(outcome).items()
    )
    rows += "".join(
        f"<tr><td>through Spark: {html.escape(name)}</td><td class=n>{count:,}</td></tr>"
        for name, count in written_counts(outcome).items()
    )
    runs = "".join(f"<li>{html.escape(words)}</li>" for words in _runs_in_words(outcome))
    faults = "".join(f"<li>{html.escape(words)}</li>" for words in _faults_in_words(outcome))
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>oncelog chaos: {html.escape(_WORDS[outcome.verdict])}</title><style>{_STYLE}</style>
<h1>oncelog chaos</h1>
<p class="verdict">{html.escape(verdict_in_words(outcome))}</p>
<p class="quiet">{html.escape(what)}; {outcome.seconds:.1f} s on {html.escape(where)}</p>
<table>{rows}</table>
<ul>{faults}</ul>
{_throughput(outcome)}
{_latency(outcome)}
{_duplicates(outcome)}
<ul>{runs}</ul>
</html>
"""


def _throughput(outcome: Outcome) -> str:
    points = [
        (later.seconds, (later.confirmed - earlier.confirmed) / max(later.seconds - earlier.seconds, 0.001))
        for earlier, later in zip(outcome.samples, outcome.samples[1:], strict=False)
    ]
    return _figure("confirmed messages a second, and the faults", points, outcome.seconds, outcome.happened)


def _latency(outcome: Outcome) -> str:
    points = [(sample.seconds, sample.slowest_ms) for sample in outcome.samples]
    return _figure("the slowest confirmation, ms", points, outcome.seconds, outcome.happened)


def _duplicates(outcome: Outcome) -> str:
    """Where in the sequence of messages they fell."""
    runs = [run for run in outcome.result.runs if run.duplicates]
    if not runs:
        return ""
    tallest = max(run.duplicates for run in runs)
    whole = max(outcome.result.sent, 1)
    bars = []
    for run in runs:
        x = MARGIN + (WIDTH - MARGIN) * run.number / whole
        width = max(1.5, (WIDTH - MARGIN) * run.length / whole)
        height = max(2.0, (HEIGHT - 30) * run.duplicates / tallest)
        bars.append(
            f'<rect class="bar" x="{x:.1f}" y="{HEIGHT - 20 - height:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
        )
    caption = "duplicates by the message at which a run began"
    return _svg(caption, "".join(bars) + _axes(f"{tallest:,}", f"message {whole:,}"))


def _figure(caption: str, points: Sequence[tuple[float, float]], seconds: float, happened: Sequence[Killed]) -> str:
    if not points:
        return ""
    tallest = max(value for _, value in points) or 1.0
    whole = max(seconds, points[-1][0], 0.001)
    line = " ".join(
        f"{MARGIN + (WIDTH - MARGIN) * at / whole:.1f},{HEIGHT - 20 - (HEIGHT - 30) * value / tallest:.1f}"
        for at, value in points
    )
    marks = "".join(_mark(MARGIN + (WIDTH - MARGIN) * each.seconds / whole, each.words) for each in happened)
    return _svg(
        caption, f'{marks}<polyline class="line" points="{line}"/>' + _axes(f"{tallest:,.0f}", f"{whole:.1f} s")
    )


def _mark(x: float, words: str) -> str:
    place = f'x1="{x:.1f}" x2="{x:.1f}" y1="10" y2="{HEIGHT - 20}"'
    return f'<line class="fault" {place}><title>{html.escape(words)}</title></line>'


def _axes(top: str, right: str) -> str:
    return (
        f'<line class="axis" x1="{MARGIN}" x2="{WIDTH}" y1="{HEIGHT - 20}" y2="{HEIGHT - 20}"/>'
        f'<text x="{MARGIN - 6}" y="16" text-anchor="end">{top}</text>'
        f'<text x="{MARGIN - 6}" y="{HEIGHT - 20}" text-anchor="end">0</text>'
        f'<text x="{WIDTH}" y="{HEIGHT - 4}" text-anchor="end">{right}</text>'
    )


def _svg(caption: str, inside: str) -> str:
    return (
        f'<figure><svg viewBox="0 0 {WIDTH} {HEIGHT}" width="100%" role="img" aria-label="{html.escape(caption)}">'
        f"{inside}</svg><figcaption>{html.escape(caption)}</figcaption></figure>"
    )
