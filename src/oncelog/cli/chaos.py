"""`oncelog chaos`: numbered messages, everything killed that one asks for, and every message counted."""

import json
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Any, Final

import click

from oncelog.chaos.sinks import DIRECT, FLOW, SINKS
from oncelog.cli.parts.chaos_display import Display, Frame, is_plain_ascii, styled
from oncelog.cli.parts.chaos_login import login_of
from oncelog.cli.parts.endings import ended_by_sigterm, failure, forget_stdout, nearest, speaks_to_brokers
from oncelog.cli.parts.options import FILE_OPTION, GIVEN_OPTION
from oncelog.cli.serve import CONSOLE_ADDRESS
from oncelog.clock import wall_s

if TYPE_CHECKING:
    from oncelog.chaos.outcome import Outcome, Pipeline, Progress
    from oncelog.chaos.plan import Target
    from oncelog.cli.parts.chaos_page import Page

CLIENTS: Final = ("oncelog", "librdkafka", "java")
MESSAGES: Final = 1_000_000
CLUSTERS: Final = ("2", "3", "4", "5")
MOST_OF_A_SEED: Final = 40  # of its digits, in the name of a topic
MOST_THROUGH_SPARK: Final = 500_000_000
MOST_IN_MINUTES: Final = 200_000_000  # messages that a run by the clock has room for


@click.command(name="chaos")
@click.option("--messages", type=click.IntRange(1, 1_000_000_000), help=f"How many to send; {MESSAGES:,} if not given.")
@click.option(
    "--minutes", type=click.FloatRange(0.01, 10_000), help="For how long to send, in the place of --messages."
)
@click.option("--client", type=click.Choice(CLIENTS), default="oncelog", show_default=True, help="The sender.")
@click.option("--idempotence", type=click.Choice(("on", "off")), default="on", show_default=True)
@click.option("--linger", type=click.IntRange(0, 60_000), default=5, show_default=True, help="linger.ms of the client.")
@click.option("--rate", type=click.IntRange(1), help="Messages a second at most; as fast as it goes if not given.")
@click.option("--partitions", type=click.IntRange(1, 1000), default=1, show_default=True)
@click.option(
    "--kill",
    "kills",
    default="connections,responses",
    show_default=True,
    metavar="WHAT,...",
    help="connections, responses, server, producer; with --cluster in the place of server: leader, follower, "
    "partition, pause, power, rolling, zookeeper; "
    "with --spark also driver, executor, with --flow orphan, orphan-driver; or nothing; or all that may be killed here "
    "without a duplicate.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    help="Confirmed messages between two faults, about; a 40th of all if not given, with --spark or --cluster a 20th.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed plans the same faults.")
@click.option(
    "--servers",
    metavar="HOST:PORT,...",
    help="A Kafka of yours; only connections to it are hurt. A server of its own if not given.",
)
@GIVEN_OPTION
@FILE_OPTION
@click.option(
    "--keep",
    "is_kept",
    is_flag=True,
    help="Leave the topics on a Kafka of yours; they are deleted if not given and the count is not wrong.",
)
@click.option("--topic", default=None, help="A new one is made; chaos-SEED-TIME if not given.")
@click.option(
    "--report",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.html and report.json there.",
)
@click.option(
    "--spark/--no-spark",
    "is_spark",
    help="A pipeline on Spark in between, whose output is counted, too.  [default: no]",
)
@click.option(
    "--flow/--no-flow", "is_flow", help="The same as --spark --sink flow: a flow of two stages.  [default: no]"
)
@click.option(
    "--cluster",
    "brokers",
    metavar="BROKERS",
    is_flag=False,
    flag_value="no number",  # as it was said before there were brokers
    help="A cluster of this number of brokers of its own, 2 to 5, in the place of its server.",
)
@click.option(
    "--spark-cluster",
    "is_cluster",
    is_flag=True,
    help="With --spark: on a Spark cluster of its own, so that executors are JVMs.",
)
@click.option(
    "--sink",
    type=click.Choice(SINKS),
    help="With --spark: the sink; kafka is Spark's own sink, flow no sink but a flow.  [default: direct]",
)
@click.option(
    "--spark-conf",
    "spark_conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="With --spark: a setting of the session; may be said again.",
)
@click.option(
    "--console",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=CONSOLE_ADDRESS,
    help=f"Show the server on a page meanwhile, with each fault as it happens; {CONSOLE_ADDRESS} when not given.",
)
@click.option("-q", "is_quiet", is_flag=True, help="No progress on stderr.")
@speaks_to_brokers
def command(**given: Any) -> None:
    """Send numbered messages, kill what you are told to kill, read everything back, and count.

    Faults come after a number of confirmed messages, never by the clock, so that the same seed plans the same faults.

    Exit codes: 0 exact, 1 not exact, 2 inconclusive (a kind of fault never hit work) or wrong usage, 130 Ctrl-C.
    """
    try:
        from oncelog.chaos.report import lines
        from oncelog.chaos.stopped import Stopped
    except ImportError as missing:
        raise failure(f'the audit works on columns: pip install "oncelog[chaos]" ({missing})') from missing

    try:
        with ended_by_sigterm():
            outcome = _run(given)
    except Stopped as stopped:
        raise click.ClickException(str(stopped).rstrip()) from stopped  # with lines of a log, as they are
    _say(styled(lines(outcome), int(outcome.verdict)))
    if given["report"] is not None:
        _write(outcome, given["report"])
        _say([f"report: {given['report'] / 'report.html'}"])
    raise SystemExit(int(outcome.verdict))


def _say(said: Iterable[str]) -> None:
    try:
        for line in said:
            click.echo(line, color=False if os.environ.get("NO_COLOR") else None)
        sys.stdout.flush()
    except BrokenPipeError:  # a reader that ends early, as `head` does, changes no verdict
        forget_stdout()


def _run(given: dict[str, Any]) -> "Outcome":
    from oncelog.chaos.experiment import run
    from oncelog.chaos.outcome import Options

    if given["is_flow"]:
        if given["sink"] not in (None, FLOW):
            raise click.UsageError(f"--flow is a pipeline of its own: it does not write with --sink {given['sink']}")
        given |= {"is_spark": True, "sink": FLOW}
    if given["sink"] == FLOW and find_spec("msgspec") is None:
        raise failure('flows need msgspec: pip install "oncelog[flow]"')
    given["brokers"] = _brokers(given)
    _check_options(given)
    is_saved = given["client"] == "oncelog" and given["idempotence"] == "on"
    targets = _targets(given, is_saved=is_saved)
    kafka_libs = _check_client(given["client"], targets)
    login = login_of(given)
    if given["is_spark"]:
        _check_spark()
    messages = given["messages"] or (MOST_IN_MINUTES if given["minutes"] else MESSAGES)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="oncelog-chaos-")))
        options = Options(
            messages=messages,
            topic=given["topic"] or f"chaos-{str(given['seed'])[:MOST_OF_A_SEED]}-{int(wall_s())}",
            partitions=given["partitions"],
            client=given["client"],
            is_idempotent=given["idempotence"] == "on",
            linger_ms=given["linger"],
            targets=targets,
            spark=_pipeline(given),
            every=given["every"] or _spacing(given["messages"], is_rare=given["is_spark"] or given["brokers"] > 0),
            seed=given["seed"],
            kafka_libs=kafka_libs,
            servers=given["servers"] or "",
            login=login,
            brokers=given["brokers"],
            is_kept=given["is_kept"],
            rate=given["rate"] or 0,
            seconds=(given["minutes"] or 0) * 60,
        )
        frame = Frame(
            0 if given["minutes"] else messages,
            has_pipeline=given["is_spark"],
            is_plain_ascii=is_plain_ascii(sys.stderr),
        )
        page = _page(given, folder)
        display = stack.enter_context(Display(frame, is_quiet=given["is_quiet"]))

        def watch(progress: "Progress") -> None:
            display.show(progress)
            if page is not None:
                page.show(progress, int(wall_s() * 1000))

        serve_with = () if page is None else page.arguments
        return run(options, folder, watch, serve_with=serve_with, is_folder_removed=True)


def _brokers(given: dict[str, Any]) -> int:
    said = given["brokers"]
    if said is None:
        return 0
    if said not in CLUSTERS:
        raise click.UsageError(
            "--cluster is how many brokers there are, 2 to 5; a Spark cluster for the pipeline is --spark-cluster"
        )
    if given["servers"]:
        raise click.UsageError("--cluster starts brokers of the experiment's own, and --servers names yours")
    return int(said)


def _check_options(given: dict[str, Any]) -> None:
    """Refuse wrong options before anything starts: an experiment may take hours."""
    if given["minutes"] is not None and isnan(given["minutes"]):  # which is in every range
        raise click.UsageError("--minutes is a number")
    if given["messages"] and given["minutes"]:
        raise click.UsageError("--messages says how many to send and --minutes for how long: say one of them")
    if given["is_kept"] and not given["servers"]:
        raise click.UsageError("--keep is for a Kafka of yours, which --servers names")
    if given["report"] is not None:
        folder = given["report"].absolute()
        try:  # where the nearest folder that is there lets something be made; nothing is left of a run that is ended
            TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())).close()
        except OSError as refusal:
            raise failure(f"--report: nothing can be written to {given['report']}: {refusal.strerror}") from refusal


def _page(given: dict[str, Any], folder: Path) -> "Page | None":
    from oncelog.cli.parts.chaos_page import Page

    address = given["console"]
    if address is None:
        return None
    if given["servers"]:
        raise click.UsageError("--console shows a server of the experiment's own, and --servers names one of yours")
    if given["brokers"]:
        raise click.UsageError("--console shows one server, and --cluster starts several")
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise failure(f'--console needs {" and ".join(missing)}: pip install "oncelog[console]"')
    page = Page(address, folder)
    click.echo(f"the page is at http://{page.address}/", err=True)
    return page


def _pipeline(given: dict[str, Any]) -> "Pipeline | None":
    from oncelog.chaos.outcome import Pipeline

    if not given["is_spark"]:
        for option, name in (("--spark-cluster", "is_cluster"), ("--sink", "sink"), ("--spark-conf", "spark_conf")):
            if given[name]:
                raise click.UsageError(f"{option} is of the pipeline that --spark puts in between")
        return None
    conf = dict(said.split("=", 1) for said in given["spark_conf"] if "=" in said)
    if len(conf) < len(given["spark_conf"]) or not all(key.startswith("spark.") for key in conf):
        raise click.UsageError("--spark-conf is KEY=VALUE, each key once, and keys begin with `spark.`")
    if (given["messages"] or 0) > MOST_THROUGH_SPARK:
        raise click.UsageError(f"--spark counts up to two rows a message, and takes {MOST_THROUGH_SPARK:,} at most")
    if "spark.master" in conf:
        raise click.UsageError(
            "--spark-conf spark.master: the pipeline is to be killed, so it runs on nothing of yours"
        )
    return Pipeline(sink=given["sink"] or DIRECT, is_cluster=given["is_cluster"], conf=conf)


def _spacing(messages: int | None, *, is_rare: bool) -> int:
    """A driver or broker that is killed takes seconds to be back, so there are fewer faults where there is one."""
    return max(1, int((messages or MESSAGES) * (0.05 if is_rare else 0.025)))


def _check_spark() -> None:
    from oncelog.chaos import guard
    from oncelog.spark.java import NoJava, find_java

    if find_spec("pyspark") is None:
        raise failure('a pipeline runs on Spark: pip install "oncelog[spark]"')
    try:
        find_java(os.environ)
    except NoJava as missing:
        raise failure(str(missing)) from missing
    if not guard.PROCESSES.is_dir():
        raise failure("the processes of a pipeline are found in /proc, which only Linux has: --no-spark does without")


def _check_client(client: str, targets: "frozenset[Target]") -> str:
    """The jars that it needs; none where it is not Java's."""
    if client == "librdkafka" and find_spec("confluent_kafka") is None:
        raise failure('librdkafka comes with confluent-kafka: pip install "oncelog[chaos]"')
    if client != "java":
        return ""
    from oncelog.chaos.java_sending import NoKafka, kafka_libs
    from oncelog.chaos.plan import Target
    from oncelog.spark.java import NoJava, find_java

    if Target.PRODUCER in targets:
        raise click.UsageError(
            "--kill producer is not for --client java: Kafka's tool begins at the first message again"
        )
    try:
        find_java(os.environ)
        return str(kafka_libs(os.environ.get("KAFKA_HOME", "")))
    except (NoJava, NoKafka) as missing:
        raise failure(str(missing)) from missing


def _targets(given: dict[str, Any], *, is_saved: bool) -> "frozenset[Target]":
    from oncelog.chaos.plan import OF_BROKERS, ORPHANS, Target

    said, servers, is_spark = given["kills"], given["servers"], given["is_spark"]
    if said == "all":
        return _all_targets(given, is_saved=is_saved)
    names = [] if said == "nothing" else [name.strip() for name in said.split(",")]
    known = [str(target) for target in Target]
    for name in names:
        if name not in known:
            near = nearest(name, known) or f"; say all, nothing, or some of {', '.join(known)}"
            raise click.UsageError(f"--kill knows no {name!r}{near}")
    targets = frozenset(Target(name) for name in names)
    if not is_spark and targets & {Target.DRIVER, Target.EXECUTOR}:
        raise click.UsageError("--kill driver and executor are of the pipeline that --spark puts in between")
    if targets & ORPHANS and given["sink"] != FLOW:
        raise click.UsageError("--kill orphan and orphan-driver are of --flow: nobody takes over the work of a query")
    if Target.ORPHAN_DRIVER in targets and given["is_cluster"]:
        raise click.UsageError(
            "--kill orphan-driver is not for --spark-cluster: a driver that is stopped keeps its executors, and the "
            "next one would wait for them"
        )
    if servers and Target.SERVER in targets:
        raise click.UsageError("--kill server is for a server of the experiment's own: nothing of yours is killed")
    if given["brokers"] and Target.SERVER in targets:
        raise click.UsageError("--kill server is not for --cluster: say leader or follower")
    if not given["brokers"] and targets & OF_BROKERS:
        raise click.UsageError(f"--kill {min(targets & OF_BROKERS)} is of the brokers that --cluster starts")
    return targets


def _all_targets(given: dict[str, Any], *, is_saved: bool) -> "frozenset[Target]":
    from oncelog.chaos.plan import OF_BROKERS, Target

    found = {Target.CONNECTIONS, Target.RESPONSES}
    if given["brokers"]:
        found |= OF_BROKERS
    elif not given["servers"]:
        found.add(Target.SERVER)
    if is_saved:  # another one that is killed has no identity to go on with, and writes twice
        found.add(Target.PRODUCER)
    if given["is_spark"]:
        found |= {Target.DRIVER, Target.EXECUTOR}
    if given["sink"] == FLOW:
        found |= {Target.ORPHAN} if given["is_cluster"] else {Target.ORPHAN, Target.ORPHAN_DRIVER}
    return frozenset(found)


def _write(outcome: "Outcome", folder: Path) -> None:
    from oncelog.chaos.page import as_html
    from oncelog.chaos.report import as_json

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(as_json(outcome), indent=1) + "\n", encoding="utf-8")
    (folder / "report.html").write_text(as_html(outcome), encoding="utf-8")
