"""The analyzed plan of a frame whose JVM is at hand, read over py4j."""

from collections.abc import Iterator
from typing import Any, Final

from oncelog.spark.checking_plan import Expression, Operator

_SPARKS: Final = "org.apache.spark."


def read_plan(frame: Any) -> Operator:
    return _operator(frame._jdf.queryExecution().analyzed())


def _operator(plan: Any) -> Operator:
    kind = plan.getClass().getSimpleName()
    return Operator(
        kind,
        bool(plan.isStreaming()),
        _facts(kind, plan),
        tuple(_expression(each) for each in _each(plan.expressions())),
        tuple(_operator(each) for each in _each(plan.children())),
    )


def _facts(kind: str, plan: Any) -> dict[str, str]:
    """The facts about a few operators that the judgement needs."""
    if kind == "Repartition":
        return {"shuffle": _truth(plan.shuffle())}
    if kind == "Sort":
        return {"global": _truth(getattr(plan, "global")())}
    if kind in ("StreamingRelationV2", "StreamingRelation"):
        return {"source": plan.sourceName()}
    if kind == "DataSourceV2Relation":
        return {**plan.options().asCaseSensitiveMap(), "source": plan.table().name()}
    if kind == "LogicalRelation":
        return {"source": plan.relation().toString()}
    return {}


def _expression(expression: Any) -> Expression:
    owner = expression.getClass().getName()
    return Expression(
        expression.getClass().getSimpleName(),
        _name(expression),
        bool(expression.deterministic()),
        owner.startswith(_SPARKS),
        expression.toString(),
        tuple(_expression(each) for each in _each(expression.children())),
    )


def _name(expression: Any) -> str:
    kind = expression.getClass().getSimpleName()
    if kind in ("PythonUDF", "PythonUDTF", "PythonUDAF"):
        return str(expression.name())
    return str(expression.prettyName())


def _each(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _truth(value: Any) -> str:
    return "true" if value else "false"
