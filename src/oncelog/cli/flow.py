"""`oncelog flow`: flows run, and looked at as their registers and journals say."""

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from oncelog.cli.parts.endings import failure, nearest
from oncelog.cli.parts.flow_cleanup import cleanup
from oncelog.cli.parts.flow_runs import metrics_option, work
from oncelog.cli.parts.flow_trials import ends_with_2_where_it_cannot, lines_of_trial, told_of_trial
from oncelog.cli.parts.flows import (
    damaged_option,
    flow_argument,
    loaded,
    looked,
    made_calls,
    name_argument,
    reached,
    register_of,
    rows_of_stage,
    sized,
    speaks_of_flows,
    time_ms,
    told_of_cell,
    told_of_state,
    told_of_unread,
)
from oncelog.cli.parts.groups import ListsAtFirst
from oncelog.cli.parts.options import SERVERS, Connecting, connecting, formatted, pairs
from oncelog.cli.parts.output import emit
from oncelog.cli.parts.pinning import pin_hashes
from oncelog.printable import printable

if TYPE_CHECKING:
    from oncelog.client.types import NewTopic
    from oncelog.runner.looking import Looking

LIST_COLUMNS = ("flow", "stages", "cells", "order", "runs", "open_runs", "code")
CELL_COLUMNS = (
    "stage",
    "cell",
    "input",
    "next_offset",
    "end",
    "lag",
    "commit",
    "watermark",
    "written",
    "late",
    "state",
    "held",
    "code",
    "holder",
)
TRIAL_COLUMNS = (
    "stage",
    "cell",
    "from_commit",
    "commits",
    "records",
    "outputs",
    "same",
    "gone",
    "new",
    "moved",
    "states_differ",
)


@click.group(name="flow", cls=ListsAtFirst)
def command() -> None:
    """Run flows, list them, and look at how far they are; without a command: list."""


command.add_command(cleanup)


@command.command()
@connecting
@click.option("--until", type=click.Choice(["end"]), help="Up to where the inputs end now; without it, until Ctrl-C.")
@click.option("--run-id", metavar="ID", help="A retry with the same ID is the same run, and ends where it was to end.")
@metrics_option
@flow_argument
@speaks_of_flows
def run(to: Connecting, until: str | None, run_id: str | None, metrics: str | None, target: str) -> None:
    """Run the flow FLOW of the module MODULE in this process.

    On Ctrl-C and SIGTERM it commits and says goodbye, within three seconds; the next start goes on from there.

    Exit codes: 0 it came to its end, 1 refused or failed, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    pin_hashes()
    flow = loaded(target)
    reached(to)
    work(to, flow, until, run_id, metrics)


@command.command()
@connecting
@click.option(
    "--into",
    metavar="THERE=HERE",
    multiple=True,
    help="Write to HERE what the flow writes to THERE: a topic, or the URL of files; repeatable.",
)
@click.option("--since", metavar="TIME", callback=time_ms, help="Input from this time on; without it from the start.")
@click.option("--until", metavar="TIME", callback=time_ms, help="Input before this time; without it up to the end.")
@metrics_option
@flow_argument
@name_argument
@speaks_of_flows
def backfill(
    to: Connecting,
    into: tuple[str, ...],
    since: int | None,
    until: int | None,
    metrics: str | None,
    target: str,
    name: str,
) -> None:
    """Run FLOW once more over earlier input, beside the live run, into other topics.

    It is a flow of its own, of the name of FLOW with -NAME behind it. The same command goes on where
    this one was, and does nothing once it is finished. A TIME is milliseconds since 1970, or 2026-05-01 or
    2026-05-01T12:00, of UTC where it says no other zone.

    Exit codes: as those of `run`.
    """
    from oncelog.flow.backfilling import beside

    pin_hashes()
    flow, places = loaded(target), pairs("--into", into, "THERE=HERE, such as totals=totals-may")
    try:
        other = beside(flow, name, looked(to, partial(sized, flow, places)), since_ms=since, until_ms=until)
    except ValueError as unfit:
        raise failure(str(unfit)) from unfit
    work(to, other, "end", name, metrics)


@command.command(name="list")
@connecting
@formatted
@speaks_of_flows
def list_flows(to: Connecting, form: str) -> None:
    """All flows that ever began on this cluster, as their registers say."""

    async def asked(look: "Looking") -> list[dict[str, Any]]:
        return [await _row(look, name) for name in await look.flows()]

    rows = looked(to, asked)
    has_errors = any(row["error"] for row in rows)
    emit(form, rows, rows, [*LIST_COLUMNS, *(["error"] if has_errors else [])])


async def _row(look: "Looking", name: str) -> dict[str, Any]:
    from oncelog.flow.errors import FlowRefused
    from oncelog.flow.formats import Unreadable

    try:
        register = await look.register(name)
    except (FlowRefused, Unreadable) as unreadable:  # the others are shown all the same
        return {"flow": name, **dict.fromkeys(LIST_COLUMNS[1:]), "error": str(unreadable)}
    runs = register.runs
    return {
        "flow": name,
        "stages": len(register.stages),
        "cells": sum(each.cells for each in register.stages),
        "order": register.order.value,
        "runs": len(runs),
        "open_runs": sum(not register.is_finished(each.run) for each in runs if each.ends is not None),
        "code": runs[-1].code if runs else None,
        "error": None,
    }


@command.command()
@connecting
@formatted
@name_argument
@speaks_of_flows
def describe(to: Connecting, form: str, name: str) -> None:
    """Show how far each cell of a flow is, and who holds it, as its last commit says."""

    async def asked(look: "Looking") -> dict[str, Any]:
        register = await register_of(look, name)
        assert register.flow_parts is not None
        stages: dict[str, list[dict[str, Any]]] = {each.stage: [] for each in register.stages}
        async for cell in look.cells(name, register, with_damaged=True):
            stages[cell.stage].append(told_of_cell(name, cell))
        return {
            "flow": name,
            "id": register.flow_parts.nonce,
            "order": register.order.value,
            "parts": [
                {"stage": stage, "from": source, "to": sink} for stage, source, sink in register.flow_parts.parts
            ],
            "runs": [
                {"run": each.run, "code": each.code, "ends": each.ends, "is_finished": register.is_finished(each.run)}
                for each in register.runs
            ],
            "stages": [{"stage": stage, "cells": cells} for stage, cells in stages.items()],
            "unread": [told_of_unread(name, each) for each in await look.unread(register)],
        }

    found = looked(to, asked)
    emit(form, found, [row for stage in found["stages"] for row in rows_of_stage(stage)], CELL_COLUMNS)
    if form == "table":
        cells = [cell for stage in found["stages"] for cell in stage["cells"]]
        whys = [cell["damage"] or (cell["holder"] or {}).get("why") for cell in cells]
        for words in (*whys, *(each["words"] for each in found["unread"])):
            if words:
                click.echo("\n" + "\n".join(map(printable, words.splitlines())))
        click.echo(f"\n{name}: order {found['order']}, {len(found['runs'])} runs, id {found['id']}")


@command.command()
@connecting
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=100, show_default=True, help="At most this many keys."
)
@name_argument
@click.argument("step", metavar="STEP")
@click.argument("key", metavar="[KEY]", required=False)
@speaks_of_flows
def state(to: Connecting, limit: int, name: str, step: str, key: str | None) -> None:
    """The committed states of a step, of KEY or of all keys: a JSON object a line."""
    prefix = step.encode() + b"\0"
    wanted = None if key is None else prefix + key.encode(errors="surrogateescape")
    steps: set[str] = set()

    async def asked(look: "Looking") -> list[dict[str, Any]]:
        found = []
        async for cell in look.cells(name, await register_of(look, name)):
            for each, stored in cell.journal.state.items():
                of, zero, _ = each.partition(b"\0")
                if zero:  # and not the time of totals, say
                    steps.add(of.decode(errors="replace"))
                if each == wanted or (wanted is None and each.startswith(prefix)):
                    found.append(told_of_state(cell.stage, cell.cell, each.removeprefix(prefix), stored))
                    if len(found) > limit:
                        return found
        return found

    found = looked(to, asked)
    if not found and step not in steps:
        known = f"steps with states are {', '.join(sorted(steps))}" if steps else "there is no state of any step"
        raise failure(f"no key of flow {name} has a state of a step {step} now{nearest(step, steps)}; {known}")
    if not found:
        raise failure(f"step {step} of flow {name} has no state of the key {key}: without a key all are shown")
    for told in found[:limit]:
        click.echo(json.dumps(told))
    if len(found) > limit:
        click.echo(f"there are more than these {limit}: --limit N shows more", err=True)


@command.command()
@connecting
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "sh"]),
    default="table",
    show_default=True,
    help="sh: a line of kafka-topics.sh for each topic that is missing.",
)
@flow_argument
@speaks_of_flows
def topics(to: Connecting, form: str, target: str) -> None:
    """The topics that a flow needs, with what is there of them; for those who make topics for others."""
    from oncelog.runner.layout import Layout
    from oncelog.runner.looking import topics_of

    layout = Layout(loaded(target))
    found = looked(to, lambda look: topics_of(look.cluster, layout))
    if form == "sh":
        for each in found:
            if not each.partitions:
                click.echo(
                    _to_make(next(to.properties[name] for name in SERVERS if name in to.properties), each.wanted)
                )
        return
    rows = [
        {
            "topic": each.wanted.topic,
            "role": each.role,
            "partitions": each.wanted.num_partitions,
            "found": each.partitions,
            "bytes": each.size_bytes,
            "configs": dict(each.wanted.config),
        }
        for each in found
    ]
    emit(form, rows, rows, ["topic", "role", "partitions", "found", "bytes"])


def _to_make(servers: str, topic: "NewTopic") -> str:
    words = ["kafka-topics.sh", "--bootstrap-server", servers, "--create", "--if-not-exists", "--topic", topic.topic]
    words += ["--partitions", str(topic.num_partitions)]
    for name, value in topic.config.items():
        words += ["--config", f"{name}={value}"]
    return shlex.join(words)


@command.command(name="try")
@connecting
@formatted
@click.option("--stage", "only", metavar="S", multiple=True, help="Only this one; all of the flow's if not given.")
@click.option(
    "--records",
    metavar="N",
    type=click.IntRange(min=1, max=10_000_000),
    default=100_000,
    show_default=True,
    help="How many in and out of a cell at most, the newest; one commit at least.",
)
@click.option(
    "--call",
    "calls",
    metavar="NAME[=MODULE:FUNCTION]",
    multiple=True,
    help="Make this call (`call(name=)`), or call another function in its place; repeatable.",
)
@click.option("--ignore-state", is_flag=True, help="Compare outputs only, as where states have another shape now.")
@click.option("--show", metavar="N", type=click.IntRange(0, 100), default=10, show_default=True, help="Of each cell.")
@flow_argument
@ends_with_2_where_it_cannot
@speaks_of_flows
def try_(
    to: Connecting,
    form: str,
    only: tuple[str, ...],
    records: int,
    calls: tuple[str, ...],
    ignore_state: bool,
    show: int,
    target: str,
) -> None:
    """Run the functions of FLOW over the input that its cells have committed, and compare; nothing is written.

    From a commit in the journal on, the same input goes through them in the same order. The result shows which outputs
    would differ from those in the topics, and which states.

    Exit codes: 0 the same, 1 something differs, 2 it cannot be tried.
    """
    from oncelog.runner.flow_trying import trials

    pin_hashes()
    flow = loaded(target)
    stages = [each.name for each in flow.parts]
    for each in only:
        if each not in stages:
            raise failure(f"flow {flow.name} has no stage {each}{nearest(each, stages)}; it has {', '.join(stages)}")

    called = made_calls(flow, calls)

    async def asked(look: "Looking") -> list[dict[str, Any]]:
        register = await register_of(look, flow.name)
        found = trials(look, flow, register, only or stages, records, called)
        return [told_of_trial(each, show) async for each in found]

    cells = looked(to, asked)
    if not any(each["commits"] for each in cells):
        raise failure(f"flow {flow.name} has nothing to try it on: its journals keep no two commits of a cell")
    differs = any(each["outputs_differ"] or (each["states_differ"] and not ignore_state) for each in cells)
    emit(form, {"flow": flow.name, "code": flow.code, "differs": differs, "cells": cells}, cells, TRIAL_COLUMNS)
    if form == "table":
        for line in (line for each in cells for line in lines_of_trial(each)):
            click.echo(line)
    if differs:
        raise SystemExit(1)


@command.command()
@connecting
@name_argument
@speaks_of_flows
def pause(to: Connecting, name: str) -> None:
    """Pause a flow: cells commit and take no more input until `resume`; a cell that starts meanwhile waits."""
    _order(to, name, is_paused=True)


@command.command()
@connecting
@name_argument
@speaks_of_flows
def resume(to: Connecting, name: str) -> None:
    """Resume a flow that was paused: its cells go on where they were."""
    _order(to, name, is_paused=False)


def _order(to: Connecting, name: str, *, is_paused: bool) -> None:
    from oncelog.flow.register import Order
    from oncelog.runner.operating import give

    async def asked(look: "Looking") -> bool:
        await register_of(look, name)
        return await give(look, name, Order.PAUSE if is_paused else Order.RUN)

    if not looked(to, asked):
        click.echo(f"flow {name} {'is paused already' if is_paused else 'is not paused'}", err=True)


@command.command()
@connecting
@click.option("--dry-run", "is_dry", is_flag=True, help="Print which topics would be removed, and remove none.")
@damaged_option
@name_argument
@speaks_of_flows
def delete(to: Connecting, is_dry: bool, with_damaged: bool, name: str) -> None:
    """Remove a flow with its journals, its register and the topics it passes `through`, for good; print their names.

    Its outputs stay. A flow that is started under this name afterwards begins anew, and writes all of them again.
    """
    from oncelog.runner.operating import at_rest, own_topics, remove

    async def asked(look: "Looking") -> list[str]:
        register = await register_of(look, name, is_deleted=True)
        await at_rest(look, name, register, with_damaged=with_damaged)
        names = await own_topics(look, name, register)
        if not is_dry:
            await remove(look, names)
        return names

    for each in looked(to, asked):
        click.echo(each)


@command.command()
@connecting
@formatted
@click.option("--stage", "only", metavar="S", help="Only this one; all of the flow's if not given.")
@click.option("--to-earliest", is_flag=True, help="With all that its inputs hold (default).")
@click.option("--to-latest", is_flag=True, help="Begin with records that come from now on.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Print what would change, and change nothing.")
@damaged_option
@name_argument
@speaks_of_flows
def reset(
    to: Connecting,
    form: str,
    only: str | None,
    to_earliest: bool,
    to_latest: bool,
    is_dry: bool,
    with_damaged: bool,
    name: str,
) -> None:
    """Begin anew, without state. What was written stays, and input that is read again is written again behind it.

    Prints for each cell and input where it was, where it begins, and how many records are read again; of a cell whose
    journal cannot be read (--damaged) where it was is lost.
    """
    from oncelog.runner import operating

    if to_earliest and to_latest:
        raise click.UsageError("--to-earliest and --to-latest are two beginnings: say one of them")

    async def asked(look: "Looking") -> list[dict[str, Any]]:
        register = await register_of(look, name)
        stages = [each.stage for each in register.stages]
        if only is not None and only not in stages:
            raise failure(f"flow {name} has no stage {only}{nearest(only, stages)}; it has {', '.join(stages)}")
        cells = await operating.at_rest(look, name, register, with_damaged=with_damaged)
        stages = stages if only is None else [only]
        entry = await operating.planned_reset(look, name, register, stages, to_latest=to_latest)
        if not is_dry:
            await operating.reset(look, name, entry, with_damaged=with_damaged)
        return [
            {
                "stage": stage,
                "cell": cell,
                "input": each.topic,
                "before": each.next_offset,
                "after": (after := entry.starts[stage][each.topic].offsets[cell]),
                "again": None if look_at.damage else max(0, (each.next_offset or 0) - after),
            }
            for (stage, cell), look_at in cells.items()
            if stage in stages
            for each in look_at.inputs
        ]

    rows = looked(to, asked)
    emit(form, rows, rows, ["stage", "cell", "input", "before", "after", "again"])
