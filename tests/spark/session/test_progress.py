"""What a person reads while Spark works, word by word."""

from typing import Any

import pytest

from oncelog.spark.progress import Batch, Stage, bar, batch_of, batch_words, end_words, fitted, seconds, stages_words

KAFKA = {"description": "KafkaV2", "endOffset": {"t": {"0": 10, "1": 5}}, "latestOffset": {"t": {"0": 30, "1": 5}}}
OURS = {
    "description": "oncelog",
    "endOffset": '{"t": {"0": 7}, "$start": {"t": {"0": 0}}, "$split": {"minPartitions": 2}}',
    "latestOffset": '{"t": {"0": 8, "1": 4}}',
}
RATE = {"description": "RateStreamV2", "endOffset": 7, "latestOffset": 9}


def progress(**changed: Any) -> dict[str, Any]:
    return {
        "id": "0e11f10d-7382-4714-b824-3ebab14841dd",
        "runId": "e58905f8-db93-4666-a942-78702f2c6555",
        "name": "words",
        "batchId": 3,
        "batchDuration": 605,
        "numInputRows": 1210,
        "durationMs": {"triggerExecution": 605, "addBatch": 452},
        "sources": [KAFKA],
        **changed,
    }


def test_a_batch_is_told_with_its_rows_its_speed_and_what_is_still_to_come() -> None:
    assert batch_words(batch_of(progress())) == "words, batch 3: 1,210 rows in 0.6 s, 2,000 rows/s, 20 behind"


def test_a_query_without_a_name_is_told_by_its_id() -> None:
    assert batch_words(batch_of(progress(name=None))).startswith("query 0e11f10d, batch 3:")


def test_a_batch_without_rows_has_no_speed() -> None:
    said = batch_words(batch_of(progress(numInputRows=0, sources=[])))
    assert said == "words, batch 3: 0 rows in 0.6 s"


@pytest.mark.parametrize(
    "sources, behind",
    [
        ([KAFKA], 20),
        ([OURS], 5),  # a partition that the batch did not know yet counts from its begin
        ([KAFKA, OURS, RATE], 25),
        ([RATE], None),
        ([{**KAFKA, "latestOffset": None}], None),
        ([{**KAFKA, "latestOffset": "not json"}], None),
        ([{**KAFKA, "endOffset": {"t": "x"}}], None),
        ([{**KAFKA, "endOffset": {"t": {"0": "x"}}}], None),
        ([{**KAFKA, "latestOffset": {"t": {"0": 3, "1": 5}}}], 0),  # a topic that was made anew
        ([], None),
    ],
)
def test_what_is_behind_is_counted_from_the_offsets_of_sources_that_have_such(
    sources: list[dict[str, Any]], behind: int | None
) -> None:
    assert batch_of(progress(sources=sources)).behind == behind


def test_a_query_that_has_read_everything_is_up_to_date() -> None:
    source = {**KAFKA, "latestOffset": KAFKA["endOffset"]}
    assert batch_words(batch_of(progress(sources=[source]))).endswith(" rows/s, up to date")


def test_batches_that_are_told_together_add_up() -> None:
    first = Batch(query="q", first=4, last=4, rows=1, took_ms=200, behind=7)
    second = Batch(query="q", first=5, last=5, rows=2, took_ms=300, behind=0)
    assert batch_words(first.and_then(second)) == "q, batches 4 to 5: 3 rows in 0.5 s, 6 rows/s, up to date"


def test_the_end_of_a_query_is_told_with_what_it_did() -> None:
    assert end_words("words", 2, 1, 61_000, None) == "words ended after 2 batches, 1 row in 1 min 01 s"


def test_an_error_is_told_with_its_first_line() -> None:
    said = end_words("words", 1, 50, 900, "[BROKEN] it is.\n\tat some.Java(frame)\n")
    assert said == "words stopped by an error after 1 batch: [BROKEN] it is."


def test_what_a_python_worker_raised_is_told_and_not_that_there_was_a_worker() -> None:
    said = end_words(
        "words",
        0,
        0,
        900,
        "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize writer: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in <module>\n    refuse()\n'
        "oncelog.spark.option.BadOption: No such option: 'sink.nam'; the nearest known one is 'sink.name'\n"
        "\tat org.apache.spark.Frame(frame)\n",
    )
    assert said == (
        "words stopped by an error after 0 batches: No such option: 'sink.nam'; the nearest known one is 'sink.name'"
    )


def test_what_we_raised_is_told_where_no_frames_stand_before_it() -> None:
    said = end_words(
        "words",
        0,
        0,
        900,
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to initialize "
        "writer: oncelog.spark.option.BadOption: No such option: 'sink.nam'\n SQLSTATE: 38000\n=== Streaming Query ===",
    )
    assert said == "words stopped by an error after 0 batches: No such option: 'sink.nam'"


def test_a_bar_fills_as_tasks_are_done() -> None:
    drawn = [bar([Stage(number=4, tasks=4, done=done, active=1)], 1400) for done in (0, 1, 4)]
    assert drawn == [
        "stage 4 [>                       ] 0/4 tasks, 1 running, 1.4 s",
        "stage 4 [======>                 ] 1/4 tasks, 1 running, 1.4 s",
        "stage 4 [========================] 4/4 tasks, 1 running, 1.4 s",
    ]


def test_stages_that_run_side_by_side_share_a_bar_and_failed_tasks_are_named() -> None:
    stages = [Stage(number=n, tasks=10, done=5, active=1, failed=n) for n in (1, 2)]
    assert bar(stages, 0) == "stages 1, 2 [============>           ] 10/20 tasks, 2 running, 3 failed, 0.0 s"
    assert stages_words(stages, 30_000) == "stages 1, 2: 10 of 20 tasks done, 3 failed, 30 s"


def test_more_stages_than_anybody_reads_are_cut() -> None:
    stages = [Stage(number=n, tasks=1, done=0) for n in range(9)]
    assert bar(stages, 0).startswith("stages 0, 1, 2, … [>")


def test_a_stage_without_tasks_has_an_empty_bar() -> None:
    assert bar([Stage(number=1, tasks=0, done=0)], 0).startswith("stage 1 [>  ")


@pytest.mark.parametrize("width", [0, 1, 2, 10, 39, 40, 41])
def test_a_line_never_wraps(width: int) -> None:
    line = fitted(["a" * 20, "b" * 17], width)
    assert len(line) < max(width, 2)
    assert width <= 40 or line == "a" * 20 + " | " + "b" * 17


@pytest.mark.parametrize(
    "ms, words", [(0, "0.0 s"), (9_999, "10.0 s"), (10_000, "10 s"), (60_000, "1 min 00 s"), (7_260_000, "2 h 01 min")]
)
def test_times_are_as_exact_as_one_wants_to_read_them(ms: int, words: str) -> None:
    assert seconds(ms) == words
