"""`oncelog.spark.check`: of some sixty queries, which sink each may use, and what is named where it is not the direct.

Each is judged twice: by the plan in the JVM, and by the text that a Connect server prints of the same plan.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

import oncelog.spark
from oncelog.spark.checking import DIRECT, NONE, SEALED, Verdict
from oncelog.spark.checking_connect import DRAWN, Untold, parse
from oncelog.spark.checking_plan import Expression, Operator, Reason, reasons

# No broker is asked for a plan.
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
FIXED = {"startingOffsets": "earliest", "endingOffsets": '{"t":{"0":5,"1":7}}'}
KEY = "'0000111122223333'"


def mine(value: Any) -> str:
    return f"{value}"


def my_function() -> Any:
    return F.udf(mine, StringType())


def passed(batches: Any) -> Any:
    yield from batches


def stream(spark: Any) -> Any:
    return spark.readStream.format("oncelog").options(**SERVERS).load()


def batch(spark: Any, **options: str) -> Any:
    return spark.read.format("oncelog").options(**SERVERS, **options).load()


Query = Callable[[Any], Any]


def of_stream(change: Query) -> Query:
    return lambda spark: change(stream(spark))


def columns(*texts: str) -> Query:
    return lambda spark: stream(spark).selectExpr(*texts)


# What repeats.
REPEATS: dict[str, Query] = {
    "the source itself": stream,
    "a selection": columns("key", "value"),
    "casts": columns("CAST(value AS STRING) AS v", "CAST(offset AS DECIMAL(20,2)) AS o"),
    "upper": columns("upper(CAST(value AS STRING)) AS v"),
    "a column that is named like a call": lambda spark: columns("upper(CAST(value AS STRING))")(spark).select("*"),
    "a text that looks like a call": columns("concat('rand(', value) AS v"),
    "filter": of_stream(lambda rows: rows.where("offset % 2 = 0 AND value IS NOT NULL")),
    "case when": columns("CASE WHEN offset > 5 THEN value ELSE key END AS v"),
    "explode": columns("explode(sequence(1, 3)) AS n", "value"),
    "json to columns": columns("from_json(CAST(value AS STRING), 'a INT, b STRING') AS j"),
    "struct": columns("to_json(struct(topic, partition, offset)) AS value"),
    "a lambda": columns("transform(array(1, 2), x -> x + partition) AS a"),
    "hash": columns("sha2(value, 256) AS h", "xxhash64(value) AS x"),
    "union": of_stream(lambda rows: rows.union(rows.where("offset > 3"))),
    "coalesce": of_stream(lambda rows: rows.coalesce(1)),
    "withWatermark": of_stream(lambda rows: rows.withWatermark("timestamp", "1 minute")),
    "observe": of_stream(lambda rows: rows.observe("seen", F.count(F.lit(1)).alias("rows"))),
    "hint": of_stream(lambda rows: rows.hint("broadcast")),
    "withColumns and drop": of_stream(lambda rows: rows.withColumn("n", F.lit(1)).drop("headers")),
    "unpivot": of_stream(lambda rows: rows.select("offset", "partition").unpivot([], ["offset"], "k", "v")),
    "the batch's time": columns("current_timestamp() AS t", "current_date() AS d", "localtimestamp() AS l"),
    "unix_timestamp": columns("unix_timestamp() AS u"),
    "encryption with a vector": columns(f"aes_encrypt(value, {KEY}, 'GCM', 'DEFAULT', '000011112222') AS e"),
    "a batch up to fixed offsets": lambda spark: batch(spark, **FIXED),
}

NOT_TOLD_BY_TEXT = {"encryption with a vector", "a batch up to fixed offsets", "a text that looks like a call"}

# What does not, and what is named.
DIFFERS: dict[str, tuple[Query, str]] = {
    "rand": (columns("rand() AS r"), "rand(): it yields other values"),
    "rand with a seed": (columns("rand(7) AS r"), "rand(): it yields other values"),
    "randn": (columns("randn() AS r"), "randn(): it yields other values"),
    "uuid": (columns("uuid() AS u"), "uuid(): it yields other values"),
    "shuffle": (columns("shuffle(array(1, 2, 3)) AS s"), "shuffle(): it yields other values"),
    "uuid within": (columns("concat('a', upper(uuid())) AS u"), "uuid(): it yields other values"),
    "filter by rand": (of_stream(lambda rows: rows.where("rand() < 0.5")), "rand(): it yields other values"),
    "now": (columns("now() AS n"), "now(): it reads the clock"),
    "current_time": (columns("CAST(current_time() AS STRING) AS n"), "current_time(): it reads the clock"),
    "encryption": (columns(f"aes_encrypt(value, {KEY}) AS e"), "aes_encrypt(): without an initialization vector"),
    "udf": (of_stream(lambda rows: rows.select(my_function()("value").alias("v"))), "mine(): it is code of yours"),
    "udf that draws": (
        of_stream(lambda rows: rows.select(my_function().asNondeterministic()("value").alias("v"))),
        "mine(): its author says that it is not deterministic",
    ),
    "mapInArrow": (of_stream(lambda rows: rows.mapInArrow(passed, rows.schema)), "mapInArrow: it is code of yours"),
    "groupBy": (of_stream(lambda rows: rows.groupBy("key").count()), "groupBy: it keeps state"),
    "window aggregation": (
        of_stream(
            lambda rows: rows.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count()
        ),
        "groupBy: it keeps state",
    ),
    "dropDuplicates": (of_stream(lambda rows: rows.dropDuplicates(["key"])), "dropDuplicates: it keeps state"),
    "distinct": (of_stream(lambda rows: rows.select("key").distinct()), "dropDuplicates: it keeps state"),
    "dropDuplicatesWithinWatermark": (
        of_stream(lambda rows: rows.withWatermark("timestamp", "1 minute").dropDuplicatesWithinWatermark(["key"])),
        "dropDuplicatesWithinWatermark: it keeps state",
    ),
    "repartition": (of_stream(lambda rows: rows.repartition(3)), "repartition: rows come through a shuffle"),
    "repartition by a column": (of_stream(lambda rows: rows.repartition("key")), "repartition: rows come through"),
    "sortWithinPartitions": (
        of_stream(lambda rows: rows.sortWithinPartitions("key")),
        "sortWithinPartitions: rows that are equal",
    ),
    "limit": (of_stream(lambda rows: rows.limit(3)), "limit: which rows come first"),
    "sample": (of_stream(lambda rows: rows.sample(0.1)), "sample: it draws other rows"),
    "stream-static join": (
        lambda spark: stream(spark).join(spark.range(0, 10, 1, 2), F.expr("offset = id")),
        "a join of a stream with a table: the table may be another one",
    ),
    "stream-stream join": (
        lambda spark: stream(spark).select("key").join(stream(spark).select("key", "offset"), "key"),
        "a join of two streams: it keeps state",
    ),
    "rate": (lambda spark: spark.readStream.format("rate").load(), "the source rate: how it divides"),
    "Spark's Kafka source": (
        lambda spark: spark.readStream.format("kafka").options(**SERVERS).load(),
        "the source kafka: how it divides and orders its rows",
    ),
    "a union with another source": (
        lambda spark: (
            stream(spark)
            .select("value")
            .union(spark.readStream.format("kafka").options(**SERVERS).load().select("value"))
        ),
        "the source kafka: how it divides",
    ),
}

BATCHES: dict[str, tuple[Query, str]] = {
    "an open end": (lambda spark: batch(spark), "the source oncelog without fixed endingOffsets: run again"),
    "an end that is latest in one partition": (
        lambda spark: batch(spark, endingOffsets='{"t":{"0":5,"1":-1}}'),
        "the source oncelog without fixed endingOffsets",
    ),
    "an end by time": (
        lambda spark: batch(spark, endingTimestamp="1700000000000"),
        "the source oncelog with endingTimestamp: without a record of that time",
    ),
    "the clock": (
        lambda spark: batch(spark, **FIXED).selectExpr("current_timestamp() AS t"),
        "current_timestamp(): a batch job that is run again runs at another time",
    ),
    "createDataFrame": (lambda spark: spark.createDataFrame([("a",)], "value STRING"), "how it divides and orders|"),
    "range": (lambda spark: spark.range(10), "range: if not told otherwise it is divided by the number of cores"),
    "orderBy": (lambda spark: batch(spark, **FIXED).orderBy("key"), "orderBy: rows come through a shuffle"),
    "join": (lambda spark: spark.range(0, 9, 1, 2).join(spark.range(0, 9, 1, 2), "id"), "join: rows come through"),
    "window function": (
        lambda spark: batch(spark, **FIXED).selectExpr("row_number() OVER (PARTITION BY key ORDER BY offset) AS n"),
        "a window function: rows come through a shuffle",
    ),
    "subquery": (
        lambda spark: spark.range(0, 9, 1, 2).where("id IN (SELECT 1)"),
        "a subquery: what it reads may be another",
    ),
    "rdd": (
        lambda spark: spark.sparkContext.parallelize([("a",)]).toDF("value STRING"),
        "an RDD: Spark does not tell",
    ),
}


def by_text(spark: Any, frame: Any) -> Operator:
    """As Spark Connect is told the plan."""
    analyzed = frame._jdf.queryExecution().analyzed().treeString()
    return parse(f"== Analyzed Logical Plan ==\nschema\n{analyzed}\n\n== Optimized Logical Plan ==\n", classes(spark))


_known: dict[str, str | None] = {}


def classes(spark: Any) -> Callable[[str], str | None]:
    """What `spark.catalog.listFunctions()` says, which asks the JVM thousands of times where Connect asks once."""
    if not _known:
        listed = DataFrame(spark._jsparkSession.catalog().listFunctions().toDF(), spark).collect()
        _known.update({row.name: row.className for row in listed})
    return _known.get


@pytest.mark.parametrize("name", REPEATS)
def test_what_repeats_may_use_the_direct_sink(spark: Any, name: str) -> None:
    frame = REPEATS[name](spark)
    assert oncelog.spark.check(frame) == Verdict(DIRECT)
    if name not in NOT_TOLD_BY_TEXT:
        assert reasons(by_text(spark, frame)) == ()


@pytest.mark.parametrize("name", DIFFERS)
def test_what_differs_is_named_and_needs_the_sealed_sink(spark: Any, name: str) -> None:
    query, words = DIFFERS[name]
    frame = query(spark)
    verdict = oncelog.spark.check(frame)
    assert verdict.sink == SEALED and not verdict.is_repeatable
    assert [reason for reason in verdict.reasons if str(reason).startswith(words)], str(verdict)
    if "draws" not in name:  # the text does not tell what a UDF's author says
        assert [reason for reason in reasons(by_text(spark, frame)) if str(reason).startswith(words)]


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_job_that_differs_is_not_to_be_run_twice(spark: Any, name: str) -> None:
    query, words = BATCHES[name]
    frame = query(spark)
    verdict = oncelog.spark.check(frame)
    assert verdict.sink == NONE
    assert re.search("|".join(map(re.escape, words.split("|"))), str(verdict)), str(verdict)
    assert reasons(by_text(spark, frame)) != ()


def test_own_functions_count_as_repeating_where_the_user_says_so(spark: Any) -> None:
    rows = stream(spark).select(my_function()("value").alias("value"))
    mapped = rows.mapInArrow(passed, rows.schema)
    assert oncelog.spark.check(mapped).sink == SEALED
    assert oncelog.spark.check(mapped, functions_repeat=True).sink == DIRECT
    assert reasons(by_text(spark, mapped), functions_repeat=True) == ()
    drawn = stream(spark).select(my_function().asNondeterministic()("value").alias("value"))
    assert oncelog.spark.check(drawn, functions_repeat=True).sink == SEALED


def test_a_registered_function_is_somebodys_own_whatever_its_name(spark: Any) -> None:
    spark.udf.register("my_upper", lambda text: text, "string")
    frame = stream(spark).selectExpr("my_upper(CAST(value AS STRING)) AS v")
    for found in (oncelog.spark.check(frame).reasons, reasons(by_text(spark, frame))):
        assert [reason.what for reason in found] == ["my_upper()"]


def test_everything_is_named_once_from_the_output_down(spark: Any) -> None:
    frame = stream(spark).selectExpr("uuid() AS a", "uuid() AS b", "partition").repartition(2).repartition("partition")
    verdict = oncelog.spark.check(frame)
    assert [reason.what for reason in verdict.reasons] == ["repartition", "uuid()"]
    assert str(verdict).splitlines() == [
        "sealed: run again, a batch of this query may yield other rows, or the same in another order:",
        "- repartition: rows come through a shuffle, in whatever order they arrive",
        "- uuid(): it yields other values each time that a batch is run",
        "Write it with writeStream.foreachBatch(oncelog.spark.sealed(path=..., topic=...)).",
    ]


def test_files_are_named_as_a_source(spark: Any, tmp_path: Any) -> None:
    spark.range(3).write.parquet(str(tmp_path / "files"))
    files = spark.readStream.schema(StructType.fromDDL("id BIGINT")).parquet(str(tmp_path / "files"))
    (reason,) = oncelog.spark.check(files).reasons
    assert reason.what.startswith("the source FileSource[")
    (reason,) = oncelog.spark.check(spark.read.parquet(str(tmp_path / "files"))).reasons
    assert reason.why.startswith("how it divides and orders its rows")
    assert reasons(by_text(spark, files)) != ()


def test_checking_runs_nothing(spark: Any) -> None:
    tracker = spark.sparkContext.statusTracker()
    before = tracker.getJobIdsForGroup(None)
    oncelog.spark.check(stream(spark).groupBy("key").count())
    assert tracker.getJobIdsForGroup(None) == before


def test_what_is_no_frame_is_told() -> None:
    with pytest.raises(TypeError, match=r"takes a DataFrame of PySpark, not str"):
        oncelog.spark.check("SELECT 1")


def test_an_operator_that_nobody_has_heard_of_is_not_taken_for_one_that_repeats() -> None:
    leaf = Operator("StreamingRelationV2", True, {"source": "oncelog"})
    assert reasons(leaf) == ()
    assert reasons(Operator("Marvel", True, children=(leaf,))) == (
        Reason("Marvel", "this operator is not on the list of those that are known to repeat"),
    )
    assert reasons(Operator("Wonder", True))[0].what == "Wonder"
    call = Expression("Wand", "wand", is_deterministic=False)
    assert reasons(Operator("Project", True, expressions=(call,), children=(leaf,)))[0].what == "wand()"


def test_every_function_that_spark_calls_non_deterministic_is_known_by_name(spark: Any) -> None:
    """The text of a plan does not say it, so the list must be whole."""
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()

    def load(name: str) -> Any:
        return jvm.java.lang.Class.forName(name, False, loader)

    drawn = load("org.apache.spark.sql.catalyst.expressions.Nondeterministic")
    seeded = load("org.apache.spark.sql.catalyst.expressions.ExpressionWithRandomSeed")
    found = set()
    classes(spark)
    for name in {name for name in _known.values() if name is not None and name.startswith("org.apache.spark")}:
        kind = load(name)
        if drawn.isAssignableFrom(kind) or seeded.isAssignableFrom(kind):
            found.add(name.rpartition(".")[2])
    assert {"Rand", "Uuid", "MonotonicallyIncreasingID"} <= found <= DRAWN


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("== Physical Plan ==\n", "does not print the analyzed plan in full"),
        (
            "== Analyzed Logical Plan ==\na\nProject [a#1, ... 3 more fields]\n",
            "does not print the analyzed plan in full",
        ),
        ("== Analyzed Logical Plan ==\na\n", "an empty plan"),
        ("== Analyzed Logical Plan ==\na\n???\n", "cannot be read"),
    ],
)
def test_a_text_that_does_not_tell_is_told(text: str, words: str) -> None:
    with pytest.raises(Untold, match=words):
        parse(text, lambda name: None)
