"""The analyzed plan of a frame of Spark Connect, read from what the server prints of it: there is no JVM to ask.

What the text does not tell counts as not known to repeat, so a verdict here may be stricter than in classic Spark.
"""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from oncelog.spark.checking_plan import Expression, Operator

_ANALYZED: Final = "== Analyzed Logical Plan =="
_FIELDS: Final = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS: Final = str(1 << 20)
_LEFT_OUT: Final = re.compile(r"\.\.\. \d+ more fields")
_LINE: Final = re.compile(r"^((?:[ :]  )*(?:[+:]- )?)([~'!]*)([A-Za-z]\w*)(.*)$", re.DOTALL)
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\(")
_ALIAS: Final = re.compile(r" AS [^#]*#(\d+)")
_RESULT: Final = re.compile(r"#(\d+)")
_SUBQUERY: Final = re.compile(r"\b(?:scalar-subquery|exists|list|lateral-subquery)#\d+ \[")
_BUILT_IN: Final = "org.apache.spark.sql.catalyst.expressions."
# Printed like calls, and not listed among the server's functions.
_NO_FUNCTIONS: Final = frozenset(
    {"ArrayType", "DecimalType", "MapType", "Some", "StructField", "StructType", "and", "as", "cast", "char", "decimal"}
    | {
        "else",
        "in",
        "knownnullable",
        "lambdafunction",
        "namedlambdavariable",
        "not",
        "or",
        "precisetimestampconversion",
    }
    | {"then", "time", "try_cast", "varchar", "when"}
)
# Those of Spark's functions that it calls non-deterministic; a test holds this against Spark's classes.
DRAWN: Final = frozenset(
    {
        "CallMethodViaReflection",
        "InputFileBlockLength",
        "InputFileBlockStart",
        "InputFileName",
        "RaiseErrorExpressionBuilder",
    }
    | {
        "MonotonicallyIncreasingID",
        "Rand",
        "RandStr",
        "Randn",
        "Shuffle",
        "SparkPartitionID",
        "TryReflect",
        "Uniform",
        "Uuid",
    }
)

Classes = Callable[[str], str | None]


class Untold(RuntimeError):
    """The server does not tell what must be known."""


def read_plan(frame: Any) -> Operator:
    session = frame.sparkSession
    text = _explained(frame, session)
    known: dict[str, str | None] = {}

    def class_of(name: str) -> str | None:
        if not known:
            known.update({each.name: each.className for each in session.catalog.listFunctions()})
        return known.get(name)

    return parse(text, class_of)


def _explained(frame: Any, session: Any) -> str:
    before = session.conf.get(_FIELDS, None)
    session.conf.set(_FIELDS, _ALL_FIELDS)
    try:
        text: str = frame._explain_string(extended=True)
    finally:
        session.conf.unset(_FIELDS) if before is None else session.conf.set(_FIELDS, before)
    return text


def parse(text: str, class_of: Classes) -> Operator:
    """The tree of the analyzed plan. `class_of` tells the class of a function that the server knows by this name."""
    _, found, rest = text.partition(f"{_ANALYZED}\n")
    if not found or _LEFT_OUT.search(rest):
        raise Untold(
            "the server does not print the analyzed plan in full, so check() cannot tell over Spark Connect; ask it "
            "in a session with a JVM of its own"
        )
    _schema, _, plan = rest.partition("\n")
    plan, _, _ = plan.partition("\n\n== ")
    return _Reader(plan, class_of).read()


class _Reader:
    def __init__(self, plan: str, class_of: Classes) -> None:
        self._lines = plan.splitlines()
        self._class_of = class_of
        # A column may be named like the call that made it, and so may look like one of somebody's own functions.
        self._columns = set(_ALIAS.findall(plan))

    def read(self) -> Operator:
        if not self._lines:
            raise Untold("the server printed an empty plan")
        return self._operator(0, len(self._lines))

    def _operator(self, first: int, end: int) -> Operator:
        """The operator of a line, and those below it that are indented one step further."""
        found = _LINE.match(self._lines[first])
        if found is None:
            raise Untold(f"the server printed a plan that cannot be read: {self._lines[first]!r}")
        prefix, marks, kind, rest = found.groups()
        starts = [at for at in range(first + 1, end) if self._depth(at) == len(prefix) // 3 + 1]
        return Operator(
            _KINDS.get(kind, kind),
            "~" in marks,
            _facts(kind, rest),
            tuple(self._expressions(rest)),
            tuple(self._operator(*each) for each in pairwise([*starts, end])),
        )

    def _depth(self, at: int) -> int:
        found = _LINE.match(self._lines[at])
        return len(found[1]) // 3 if found else -1

    def _expressions(self, text: str) -> Iterator[Expression]:
        if _SUBQUERY.search(text):
            yield Expression("ScalarSubquery", "subquery")
        for call in _CALL.finditer(text):
            name = call[1]
            if self._is_own(text, call.end()):
                yield Expression("PythonUDF", name)
                continue
            if name in _NO_FUNCTIONS:
                continue
            owner = self._class_of(name.lower()) or ""
            kind = owner.rpartition(".")[2]
            yield Expression(kind or name, name, kind not in DRAWN, owner.startswith(_BUILT_IN))

    def _is_own(self, text: str, start: int) -> bool:
        """A Python UDF is printed with the number of its result behind its arguments."""
        depth = 1
        for at in range(start, len(text)):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if depth == 0:
                result = _RESULT.match(text, at + 1)
                return result is not None and result[1] not in self._columns
        return False


_KINDS: Final = {"RelationV2": "DataSourceV2Relation"}


def _facts(kind: str, rest: str) -> dict[str, str]:
    fields = [each.strip() for each in rest.split(",")]
    if kind == "StreamingRelationV2" and len(fields) > 1:
        return {"source": fields[1]}
    if kind == "RelationV2":
        return {"source": rest.rpartition("]")[2].strip()}
    if kind == "Repartition":
        return {"shuffle": fields[-1]}
    if kind == "Sort":
        return {"global": fields[-1]}
    return {}
