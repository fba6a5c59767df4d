"""Access rules on a command line, in the words of kafka-acls: options, rules that they say, and rules as options."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from shlex import quote
from typing import Any, NamedTuple

import click

CLUSTER_NAME = "kafka-cluster"
EVERYWHERE = "*"
EVERYTHING = "All"
THINGS = "--topic, --group, --transactional-id or --cluster"
# The operations, by the words of kafka-acls, for each kind of resource.
OPERATIONS_OF = {
    "TOPIC": ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"),
    "GROUP": ("Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs"),
    "BROKER": ("Create", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"),
    "TRANSACTIONAL_ID": ("Write", "Describe"),
}
OPERATIONS = tuple(dict.fromkeys([EVERYTHING, *(each for known in OPERATIONS_OF.values() for each in known)]))
OPTIONS = {"TOPIC": "--topic", "GROUP": "--group", "BROKER": "--cluster", "TRANSACTIONAL_ID": "--transactional-id"}
# The operations that a role needs on each kind of resource, as in kafka-acls.
ROLES = {
    "producer": {"TOPIC": ("Write", "Describe", "Create"), "TRANSACTIONAL_ID": ("Write", "Describe")},
    "consumer": {"TOPIC": ("Read", "Describe"), "GROUP": ("Read",)},
}


class Principal(click.types.StringParamType):
    """Whom a rule is about. A name without its type would be about nobody."""

    name = "TYPE:NAME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        said = str(super().convert(value, param, ctx))
        if ":" not in said:
            raise click.UsageError(f"{said}: expected TYPE:NAME, such as User:{said}")
        return said


class Target(NamedTuple):
    """The resource that a rule is about: a kind by the name of its `ResourceType`, and a name."""

    kind: str
    name: str


CLUSTER = Target("BROKER", CLUSTER_NAME)


class Given(NamedTuple):
    """A rule but for who it is about."""

    target: Target
    operation: str


def on_cluster(operation: str) -> Given:
    return Given(CLUSTER, operation)


def on_group(operation: str, name: str) -> Given:
    return Given(Target("GROUP", name), operation)


def on_topic(operation: str, name: str) -> Given:
    return Given(Target("TOPIC", name), operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """The options that say what rules are about."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    transactional_ids: tuple[str, ...]
    is_cluster: bool
    pattern: str

    def __iter__(self) -> Iterator[Target]:
        yield from (Target("TOPIC", name) for name in self.topics)
        yield from (Target("GROUP", name) for name in self.groups)
        yield from (Target("TRANSACTIONAL_ID", name) for name in self.transactional_ids)
        if self.is_cluster:
            yield CLUSTER

    def pattern_of(self, target: Target) -> str:
        """There is one cluster, and its name begins no other."""
        return "LITERAL" if target == CLUSTER and self.pattern == "PREFIXED" else self.pattern


def about(patterns: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds what rules are about, handed over as `targets`."""

    def decorate(body: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="A topic, or * for all; repeatable.")
        @click.option("--group", "groups", metavar="GROUP", multiple=True, help="A group, or * for all; repeatable.")
        @click.option("--transactional-id", "ids", metavar="ID", multiple=True, help="A transactional id; repeatable.")
        @click.option("--cluster", "is_cluster", is_flag=True, help="The cluster.")
        @click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(patterns, case_sensitive=False),
            default=patterns[0],
            show_default=True,
            help="How the names are meant.",
        )
        @wraps(body)
        def run(
            *arguments: Any,
            topics: tuple[str, ...],
            groups: tuple[str, ...],
            ids: tuple[str, ...],
            is_cluster: bool,
            pattern: str,
            **keywords: Any,
        ) -> Any:
            targets = Targets(
                topics=topics, groups=groups, transactional_ids=ids, is_cluster=is_cluster, pattern=pattern.upper()
            )
            return body(*arguments, targets=targets, **keywords)

        return run

    return decorate


def operations_option(words: str) -> Callable[[Any], Any]:
    return click.option(
        "--operation",
        "operations",
        metavar="OPERATION",
        type=click.Choice(OPERATIONS, case_sensitive=False),
        multiple=True,
        help=f"{words} One of {', '.join(OPERATIONS)}; repeatable.",
    )


def name_of(operation: str) -> str:
    """`DescribeConfigs` is `DESCRIBE_CONFIGS`."""
    return "".join(f"_{each}" if each.isupper() else each for each in operation).lstrip("_").upper()


def word_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def command_of(principal: str, given: Sequence[Given], pattern: str) -> str:
    """The command that adds these rules, which are about one resource."""
    target = given[0].target
    words = ["oncelog acls add", f"--allow-principal {quote(principal)}"]
    words += [f"--operation {each.operation}" for each in given]
    words.append(OPTIONS[target.kind] if target.kind == "BROKER" else f"{OPTIONS[target.kind]} {quote(target.name)}")
    if pattern != "LITERAL":
        words.append(f"--resource-pattern-type {pattern.lower()}")
    return " ".join(words)
