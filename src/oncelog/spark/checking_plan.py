"""Whether a query's rows come again, the same and in the same order, when Spark runs a batch again: an allow-list over
the analyzed plan. Pure; `checking_classic.py` and `checking_connect.py` read plans into these values.

What is not known to repeat does not, as far as this list is concerned. The direct sink finds out by comparing, but only
when a batch is run again, and then it must stop.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Expression:
    kind: str  # the name of its class
    name: str  # as a user calls it
    is_deterministic: bool = True  # so says Spark, and the author of a UDF
    is_sparks: bool = True  # not somebody's own code
    text: str = ""
    children: tuple["Expression", ...] = ()


@dataclass(frozen=True, slots=True)
class Operator:
    kind: str
    is_streaming: bool
    facts: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[Expression, ...] = ()
    children: tuple["Operator", ...] = ()


@dataclass(frozen=True, slots=True)
class Reason:
    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


OURS: Final = "oncelog"

# One row in, rows out, in its order; what they do depends on nothing else.
_NARROW: Final = frozenset(
    [
        "Project",
        "Filter",
        "Generate",
        "Union",
        "SubqueryAlias",
        "View",
        "EventTimeWatermark",
        "CollectMetrics",
        "ResolvedHint",
        "Expand",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "OneRowRelation",
    ]
)
_SHUFFLE: Final = "rows come through a shuffle, in whatever order they arrive"
_STATE: Final = "it keeps state, and its rows come through a shuffle, in whatever order they arrive"
_YOURS: Final = (
    "it is code of yours, which nobody here can look into; if the same rows in always give the same rows out, in the "
    "same order, say check(df, functions_repeat=True)"
)
_OPERATORS: Final[dict[str, tuple[str, str]]] = {
    "Aggregate": ("groupBy", _STATE),
    "Deduplicate": ("dropDuplicates", _STATE),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", _STATE),
    "Distinct": ("distinct", _STATE),
    "Window": ("a window function", _SHUFFLE),
    "WindowGroupLimit": ("a window function", _SHUFFLE),
    "Intersect": ("intersect", _SHUFFLE),
    "Except": ("except", _SHUFFLE),
    "RepartitionByExpression": ("repartition", _SHUFFLE),
    "RebalancePartitions": ("rebalance", _SHUFFLE),
    "GlobalLimit": ("limit", "which rows come first is not the same in each run"),
    "LocalLimit": ("limit", "which rows come first is not the same in each run"),
    "Offset": ("offset", "which rows come first is not the same in each run"),
    "Tail": ("tail", "which rows come last is not the same in each run"),
    "Sample": ("sample", "it draws other rows in each run"),
    "LogicalRDD": ("an RDD", "Spark does not tell where its rows come from"),
    "InMemoryRelation": ("a cached frame", "what fell out of the cache is computed again"),
    "Range": ("range", "if not told otherwise it is divided by the number of cores, and a plan does not tell"),
    "LocalRelation": ("createDataFrame", "its rows are divided by the number of cores"),
    "FlatMapGroupsInPandasWithState": ("applyInPandasWithState", _STATE),
    "TransformWithStateInPySpark": ("transformWithState", _STATE),
    "TransformWithState": ("transformWithState", _STATE),
    "FlatMapGroupsWithState": ("flatMapGroupsWithState", _STATE),
    "FlatMapGroupsInPandas": ("applyInPandas", _SHUFFLE),
    "FlatMapGroupsInArrow": ("applyInArrow", _SHUFFLE),
    "FlatMapCoGroupsInPandas": ("cogroup", _SHUFFLE),
    "FlatMapCoGroupsInArrow": ("cogroup", _SHUFFLE),
    "LateralJoin": ("a lateral join", _SHUFFLE),
}
_OWN_CODE: Final = {
    "MapInPandas": "mapInPandas",
    "MapInArrow": "mapInArrow",
    "PythonMapInArrow": "mapInArrow",
    "MapPartitions": "mapPartitions",
    "MapElements": "map",
    "TypedFilter": "filter with a function",
    "DeserializeToObject": "a typed operation",
    "SerializeFromObject": "a typed operation",
}
_OWN_EXPRESSIONS: Final = frozenset(
    [
        "PythonUDF",
        "PythonUDAF",
        "PythonUDTF",
        "ScalaUDF",
        "ScalaAggregator",
        "ApplyFunctionExpression",
        "HiveSimpleUDF",
        "HiveGenericUDF",
        "HiveGenericUDTF",
        "HiveUDAFFunction",
    ]
)
_SUBQUERIES: Final = frozenset({"ScalarSubquery", "InSubquery", "ListQuery", "Exists", "LateralSubquery"})
# Deterministic, says Spark, as within one run they are.
_CLOCKS: Final = frozenset({"Now", "CurrentTime"})
_BATCH_CLOCKS: Final = frozenset({"CurrentTimestamp", "CurrentDate", "LocalTimestamp"})
_DRAWN: Final = "it yields other values each time that a batch is run"
_EXPRESSIONS: Final = {
    "InputFileName": "files may be divided among tasks in another way",
    "SparkPartitionID": "it tells which task ran, not what the row is",
    "MonotonicallyIncreasingID": "it tells which task ran, not what the row is",
    "CallMethodViaReflection": "it calls code that this check cannot read",
}


def reasons(plan: Operator, *, functions_repeat: bool = False) -> tuple[Reason, ...]:
    """The operators of this plan that are not known to repeat, each named once, from the output down."""
    return tuple(dict.fromkeys(_of_operator(plan, plan.is_streaming, functions_repeat)))


def _of_operator(operator: Operator, is_streaming: bool, functions_repeat: bool) -> Iterator[Reason]:
    yield from _itself(operator, functions_repeat)
    # The expressions of a groupBy or a join tell nothing new.
    if operator.kind in _NARROW:
        for expression in operator.expressions:
            yield from _of_expression(expression, is_streaming, functions_repeat)
    for child in operator.children:
        yield from _of_operator(child, is_streaming, functions_repeat)


def _itself(operator: Operator, functions_repeat: bool) -> Iterator[Reason]:
    kind = operator.kind
    if kind in _NARROW:
        return
    if kind in _OWN_CODE:
        if not functions_repeat:
            yield Reason(_OWN_CODE[kind], _YOURS)
    elif kind in _OPERATORS:
        yield Reason(*_OPERATORS[kind])
    elif kind == "Repartition":
        # coalesce lays neighbours together, in their order; only a shuffle mixes.
        if operator.facts.get("shuffle") != "false":
            yield Reason("repartition", _SHUFFLE)
    elif kind == "Sort":
        yield _sort(operator)
    elif kind == "Join":
        yield _join(operator)
    elif not operator.children:
        yield from _leaf(operator)
    else:
        yield Reason(kind, "this operator is not on the list of those that are known to repeat")


def _sort(operator: Operator) -> Reason:
    if operator.facts.get("global") == "false":
        return Reason("sortWithinPartitions", "rows that are equal in its columns come in any order")
    return Reason("orderBy", _SHUFFLE)


def _join(operator: Operator) -> Reason:
    streams = [child.is_streaming for child in operator.children]
    if all(streams):
        return Reason("a join of two streams", _STATE)
    if any(streams):
        return Reason(
            "a join of a stream with a table",
            "the table may be another one when the batch is run again",
        )
    return Reason("join", _SHUFFLE)


def _leaf(operator: Operator) -> Iterator[Reason]:
    source = operator.facts.get("source")
    if source is None:
        yield Reason(operator.kind, "how it divides and orders its rows is not known to be the same in each run")
    elif source != OURS:
        yield Reason(
            f"the source {source}", "how it divides and orders its rows is not known to be the same in each run"
        )
    elif not operator.is_streaming:
        yield from _open_end(operator)


def _open_end(operator: Operator) -> Iterator[Reason]:
    """A batch that reads up to what is there when it runs reads more when it is run again."""
    facts = {name.lower(): value for name, value in operator.facts.items()}
    for name in ("endingTimestamp", "endingOffsetsByTimestamp"):
        if name.lower() in facts:
            yield Reason(
                f"the source {OURS} with {name}", "without a record of that time it ends where the topic ends just then"
            )
            return
    if not _is_fixed(facts.get("endingoffsets", "latest")):
        yield Reason(
            f"the source {OURS} without fixed endingOffsets", "run again, it also reads what has arrived since"
        )


def _is_fixed(ending_offsets: str) -> bool:
    try:
        bounds = json.loads(ending_offsets)
        return all(int(offset) >= 0 for partitions in bounds.values() for offset in partitions.values())
    except (ValueError, TypeError, AttributeError):
        return False


def _of_expression(expression: Expression, is_streaming: bool, functions_repeat: bool) -> Iterator[Reason]:
    yield from _by_kind(expression, is_streaming, functions_repeat)
    for child in expression.children:
        yield from _of_expression(child, is_streaming, functions_repeat)


def _by_kind(expression: Expression, is_streaming: bool, functions_repeat: bool) -> Iterator[Reason]:
    kind, what = expression.kind, f"{expression.name}()"
    if kind in _OWN_EXPRESSIONS or not expression.is_sparks:
        if not expression.is_deterministic:
            yield Reason(what, "its author says that it is not deterministic")
        elif not functions_repeat:
            yield Reason(what, _YOURS)
    elif kind in _SUBQUERIES:
        yield Reason("a subquery", "what it reads may be another when the batch is run again")
    elif kind in _CLOCKS:
        yield Reason(what, "it reads the clock whenever a batch is run; current_timestamp() is kept with the batch")
    elif kind in _BATCH_CLOCKS and not is_streaming:
        yield Reason(what, "a batch job that is run again runs at another time")
    elif kind == "AesEncrypt" and not _has_vector(expression):
        yield Reason(what, "without an initialization vector of yours it draws one for each row")
    elif not expression.is_deterministic and not any(not child.is_deterministic for child in expression.children):
        yield Reason(what, _EXPRESSIONS.get(kind, _DRAWN))


def _has_vector(encrypt: Expression) -> bool:
    """(input, key, mode, padding, vector, further data); mode ECB takes none."""
    if len(encrypt.children) < 5:
        return False
    mode, vector = encrypt.children[2].text, encrypt.children[4].text
    return mode.upper() == "ECB" or vector not in ("", "cast( as binary)")
