"""An experiment's outcome as one page of HTML that needs nothing else. Pure."""

import html
from collections.abc import Mapping
from typing import Final

from oncelog.chaos.outcome import Killed, Outcome
from oncelog.chaos.plan import ON_THE_WIRE, Target
from oncelog.chaos.plots import Line, Mark, Plot, Point, rates, thinned
from oncelog.chaos.report import (
    GAP,
    MEANINGS,
    command_of,
    counts,
    faults_by_kind,
    gap_in_words,
    is_wrong,
    options_in_words,
    replica_counts,
    runs_in_words,
    verdict_in_words,
    written_counts,
)

MOST_FAULTS_SHOWN: Final = 500
_COLOURS: Final = {
    Target.CONNECTIONS: ("#0969da", "#58a6ff"),  # on white, on black
    Target.RESPONSES: ("#bf8700", "#e3b341"),
    Target.SERVER: ("#cf222e", "#ff7b72"),
    Target.LEADER: ("#a40e26", "#ff9492"),
    Target.FOLLOWER: ("#bc4c00", "#f0883e"),
    Target.PAUSE: ("#6e7781", "#8c959f"),
    Target.PARTITION: ("#6639ba", "#b083f0"),
    Target.POWER: ("#000000", "#ffffff"),
    Target.ZOOKEEPER: ("#953800", "#db6d28"),
    Target.ROLLING: ("#4d7c0f", "#a3e635"),
    Target.PRODUCER: ("#1a7f37", "#56d364"),
    Target.DRIVER: ("#8250df", "#bc8cff"),
    Target.EXECUTOR: ("#bf3989", "#f778ba"),
    Target.ORPHAN: ("#0a8f8f", "#39c5cf"),
    Target.ORPHAN_DRIVER: ("#57606a", "#adbac7"),
}
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --quiet: #59636e; --rule: #d8dee4; --paper: #fff; --card: #f6f8fa;
  --first: #1b1f24; --second: #0a8f8f; --good: #1a7f37; --bad: #cf222e; --open: #9a6700; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --quiet: #9198a1; --rule: #30363d; --paper: #0d1117; --card: #161b22;
    --first: #e6edf3; --second: #39c5cf; --good: #3fb950; --bad: #ff7b72; --open: #d29922; DARK }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 940px;
  margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1rem; font-weight: 600; color: var(--quiet); margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
.verdict { font-size: 1.5rem; line-height: 1.25; font-weight: 650; margin: .3rem 0 .6rem; padding-left: .8rem;
  border-left: .35rem solid; }
.exact { border-color: var(--good); } .not_exact { border-color: var(--bad); color: var(--bad); }
.inconclusive { border-color: var(--open); color: var(--open); }
.quiet, figcaption i, th { color: var(--quiet); font-style: normal; font-weight: 400; }
.cards { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.5rem 0; }
.card { flex: 1 1 24rem; background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: .8rem 1rem; }
.card h2 { margin: 0 0 .4rem; font-size: 1rem; }
.card td:first-child { white-space: nowrap; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .2rem .8rem .2rem 0; text-align: left;
  vertical-align: top; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.rows tr + tr td { border-top: 1px solid var(--rule); } .wide { overflow-x: auto; }
.rows td:nth-child(2) { white-space: nowrap; }
.bad td { color: var(--bad); font-weight: 650; }
code { font: .85em ui-monospace, monospace; background: var(--card); padding: .1rem .3rem; border-radius: 4px;
  overflow-wrap: anywhere; }
.card .quiet { font-size: .87em; } .card td:last-child, .card th:last-child { padding-right: 0; }
@media (max-width: 34rem) {
  .card { flex-basis: 100%; padding: .7rem .8rem; } .card .quiet { display: none; }
  td, th { padding-right: .5rem; } .legend .kind { margin-right: .7rem; }
}
figure { margin: 1.6rem 0 0; } .plot { overflow-x: auto; } .plot svg { width: 100%; min-width: 620px; display: block; }
svg text { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); } .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.bar { fill: var(--bad); } .mark line { stroke-width: 1; opacity: .45; }
.mark:hover line { opacity: 1; stroke-width: 2; }
.line.first { stroke: var(--first); } .line.second { stroke: var(--second); }
.key, .kind { display: inline-flex; align-items: center; gap: .35rem; margin-left: 1rem; white-space: nowrap; }
.key::before { content: ""; width: 1.1rem; border-top: 2px solid; } .key.first::before { border-color: var(--first); }
.key.second::before { border-color: var(--second); }
.kind { margin: 0; } .kind::before { content: ""; width: .6rem; height: .6rem; border-radius: 50%; }
.legend .kind { margin-right: 1.2rem; }
"""


def as_html(outcome: Outcome) -> str:
    name = outcome.verdict.name.lower()
    brokers = outcome.options.brokers
    own = f"a cluster of its own, {brokers} brokers" if brokers else "a server of its own"
    where = outcome.options.servers or own
    cards = _card("Messages", counts(outcome))
    if outcome.written is not None:
        cards += _card("Rows through Spark", written_counts(outcome))
    if outcome.replicas is not None:
        cards += _card("Replicas", replica_counts(outcome))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>oncelog chaos: {html.escape(name.replace("_", " "))}</title><style>{_style()}</style></head><body>
<h1>oncelog chaos</h1>
<p class="verdict {name}">{html.escape(verdict_in_words(outcome))}</p>
<p class="quiet">{html.escape(options_in_words(outcome.options))}; {outcome.seconds:.1f} s on {html.escape(where)}</p>
<div class="cards">{cards}</div>
{_what_was_hurt(outcome)}
{_over_time(outcome)}
{_doubles(outcome)}
{_faults(outcome)}
<h2>Again</h2>
<p>The same faults are planned by <code>{html.escape(command_of(outcome.options))}</code></p>
</body></html>
"""


def _style() -> str:
    light = " ".join(f"--{target}: {colours[0]};" for target, colours in _COLOURS.items())
    dark = " ".join(f"--{target}: {colours[1]};" for target, colours in _COLOURS.items())
    kinds = "".join(
        f".mark.{target} line {{ stroke: var(--{target}); }} .mark.{target} circle {{ fill: var(--{target}); }} "
        f".kind.{target}::before {{ background: var(--{target}); }}\n"
        for target in _COLOURS
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark) + kinds


def _card(title: str, found: Mapping[str, int]) -> str:
    rows = "".join(
        f"<tr{' class=bad' if is_wrong(name, count) else ''}><td>{html.escape(name)}</td><td class=n>{count:,}</td>"
        f"<td class=quiet>{html.escape(MEANINGS.get(name, ''))}</td></tr>"
        for name, count in found.items()
    )
    return f"<section class=card><h2>{html.escape(title)}</h2><table>{rows}</table></section>"


def _what_was_hurt(outcome: Outcome) -> str:
    if not outcome.options.targets:
        return "<p>Nothing was killed.</p>"
    rows = "".join(
        f"<tr><td><span class='kind {kind.target}'>{kind.target}</span></td><td class=n>{kind.planned:,}</td>"
        f"<td class=n>{kind.happened:,}</td><td class=n>{kind.hit_work:,}</td>"
        f"<td class=n>{gap_in_words(kind.gap_s)}</td></tr>"
        for kind in faults_by_kind(outcome)
    )
    head = (
        "<tr><th>killed</th><th class=n>planned</th><th class=n>came about</th><th class=n>hit work</th>"
        f"<th class=n>{GAP}</th></tr>"
    )
    return f"<section class=card><table>{head}{rows}</table></section>"


# --- over time --------------------------------------------------------------------------------------------------------


def _over_time(outcome: Outcome) -> str:
    samples = outcome.samples
    if len(samples) < 2:
        return ""
    right = max(outcome.seconds, samples[-1].seconds)
    marks = [Mark(each.seconds, each.target, f"{each.seconds:.1f} s: {each.words}") for each in outcome.happened]
    confirmed: list[Point] = [(each.seconds, each.confirmed) for each in samples]
    slowest: list[Point] = [(each.seconds, each.slowest_ms) for each in samples]
    plots = [Plot("confirmed messages a second", right, [Line(rates(confirmed))], marks=marks)]
    if outcome.written is not None:
        written: list[Point] = [(each.seconds, each.written) for each in samples]
        lag: list[Point] = [(each.seconds, max(0, each.confirmed - each.written)) for each in samples]
        both = [
            Line(thinned(confirmed, last=True), "first", "messages confirmed"),
            Line(thinned(written, last=True), "second", "rows through Spark"),
        ]
        plots.append(Plot("how far", right, both, marks=marks))
        plots.append(
            Plot("rows to come", right, [Line(thinned(lag), "second")], marks=marks, note="about: one a message")
        )
    note = "of every 100th message, from its sending"
    plots.append(Plot("the slowest confirmation, ms", right, [Line(thinned(slowest))], marks=marks, note=note))
    legend = "".join(f"<span class='kind {target}'>{target}</span>" for target in sorted(outcome.options.targets))
    return f"<h2>Over time</h2><p class=legend>{legend}</p>" + "".join(plot.svg() for plot in plots)


def _doubles(outcome: Outcome) -> str:
    """The places in the sequence of messages at which duplicates fell."""
    runs = outcome.result.runs
    if not runs:
        return ""
    bars = [(run.number, run.number + run.length, run.duplicates) for run in runs if run.duplicates]
    plot = Plot("duplicates, by the message at which a run began", max(outcome.result.sent, 1), bars=bars, unit="")
    said = "".join(f"<li>{html.escape(words)}</li>" for words in runs_in_words(outcome))
    return f"<h2>What stands behind a larger number</h2>{plot.svg() if bars else ''}<ul>{said}</ul>"


# --- every fault ------------------------------------------------------------------------------------------------------


def _faults(outcome: Outcome) -> str:
    if not outcome.planned:
        return ""
    happened = outcome.happened
    rows = "".join(_fault_row(each) for each in happened[:MOST_FAULTS_SHOWN])
    more = len(happened) - MOST_FAULTS_SHOWN
    rest = f"<p class=quiet>and {more:,} more, in report.json</p>" if more > 0 else ""
    came = {(each.target, each.planned_at) for each in happened}
    never = [event for event in outcome.planned if (event.target, event.at) not in came]
    if never:
        words = ", ".join(f"{event.target} at {event.at:,}" for event in never[:MOST_FAULTS_SHOWN])
        rest += f"<p class=quiet>Planned, and never came about: {html.escape(words)}</p>"
    head = (
        "<tr><th class=n>s</th><th>killed</th><th class=n>planned at</th><th class=n>confirmed by then</th>"
        f"<th>what</th><th>in flight</th><th class=n>{GAP}</th></tr>"
    )
    return f"<h2>Every fault</h2><div class=wide><table class=rows>{head}{rows}</table></div>{rest}"


def _fault_row(each: Killed) -> str:
    return (
        f"<tr><td class=n>{each.seconds:.1f}</td><td><span class='kind {each.target}'>{each.target}</span></td>"
        f"<td class=n>{each.planned_at:,}</td><td class=n>{each.confirmed:,}</td>"
        f"<td>{html.escape(each.words)}</td><td>{_in_flight(each)}</td>"
        f"<td class=n>{gap_in_words(each.gap_s)}</td></tr>"
    )


def _in_flight(each: Killed) -> str:
    if not each.hit_work:
        return "nothing"
    what = "request" if each.target in ON_THE_WIRE else "message"
    return f"{each.in_flight:,} {what}{'' if each.in_flight == 1 else 's'}"
