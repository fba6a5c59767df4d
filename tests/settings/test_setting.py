"""What every setting promises, of the server, of a client or of Spark's format."""

from dataclasses import dataclass
from typing import Any

import pytest

from oncelog.settings import INT_MAX, LONG_MAX, Kind, Setting, SettingsError, Unfit, Why, nearest, text_of
from oncelog.settings.declaring import callback, choice, declared, integer, long, text
from tests.settings.page import DEFAULT, DOC, NAME, TAKES, table


def setting(kind: Kind, **more: Any) -> Setting:
    return Setting(name="some.bytes", kind=kind, default=None, doc="", **more)


COUNT = setting(Kind.INTEGER, low=1, high=9, words={"all": -1})
CODEC = setting(Kind.CHOICE, words={"none": "none", "inherit": "none"})
EXACT = setting(Kind.TEXT, words={"Now": "Now"})
POLICY = setting(Kind.LIST, words={"delete": "delete", "compact": "compact"})


@pytest.mark.parametrize(
    ("known", "written", "value"),
    [
        (COUNT, "9", 9),
        (COUNT, "ALL", -1),
        (CODEC, "Inherit", "none"),
        (EXACT, "Now", "Now"),
        (POLICY, "compact, delete,", ("compact", "delete")),
        (POLICY, "", ()),
        (setting(Kind.FLAGS, words={"a": "a", "b": "b"}), "-A,+b", ("a", "b")),
        (setting(Kind.BOOLEAN), "True", True),
        (setting(Kind.NUMBER, low=0, high=1), "0.5", 0.5),
        (setting(Kind.DURATION), "15m", 900_000),
        (setting(Kind.DURATION), "7", 7),
        (setting(Kind.TEXT, convert=str.split), "a b", ["a", "b"]),
        (setting(Kind.TEXT), "", ""),
    ],
)
def test_a_text_becomes_the_value_that_it_means(known: Setting, written: str, value: Any) -> None:
    assert known.parse(written) == value


@pytest.mark.parametrize(
    ("known", "written", "why", "value"),
    [
        (COUNT, "", Why.EMPTY, ""),
        (COUNT, "1_0", Why.NOT_OF_ITS_KIND, "1_0"),
        (COUNT, "٣", Why.NOT_OF_ITS_KIND, "٣"),
        (COUNT, "0", Why.OUT_OF_BOUNDS, 0),
        (COUNT, "10", Why.OUT_OF_BOUNDS, 10),
        (CODEC, "zip", Why.NO_SUCH_WORD, "zip"),
        (EXACT, "now", Why.NO_SUCH_WORD, "now"),
        (POLICY, "delete,shred", Why.NO_SUCH_WORD, "shred"),
        (setting(Kind.TEXT, is_one_word=True), "a,b", Why.NO_SUCH_WORD, "a,b"),
        (setting(Kind.NUMBER), "nan", Why.NOT_OF_ITS_KIND, "nan"),
        (setting(Kind.DURATION), "-5s", Why.NOT_OF_ITS_KIND, "-5s"),
        (setting(Kind.DURATION), "5 moons", Why.NOT_OF_ITS_KIND, "5 moons"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(known: Setting, written: str, why: Why, value: Any) -> None:
    with pytest.raises(Unfit) as caught:
        known.parse(written)
    assert (caught.value.why, caught.value.value) == (why, value)
    assert str(caught.value) == f"some.bytes={written}: expected {known.allowed}"
    assert isinstance(caught.value, SettingsError)


@dataclass
class Some:
    log_dir: str = text("data", "A folder.")
    log_bytes: int | None = long(None, "A size.", roles=("server",))
    codec: str = choice("none", "How.", ("none", "Zip"), name="compression.codec", aliases=("codec",))
    retries: int = integer(3, "How often.", 0, INT_MAX, is_secret=True)
    on_end: Any = callback("Called.")


def test_a_class_of_settings_is_the_table_and_has_typed_attributes() -> None:
    known = declared(Some)
    assert list(known) == ["log.dir", "log.bytes", "compression.codec", "retries", "on_end"]
    assert [each.attribute for each in known.values()] == ["log_dir", "log_bytes", "codec", "retries", "on_end"]
    assert known["log.bytes"].high == LONG_MAX
    assert known["log.bytes"].is_for("server") and not known["log.bytes"].is_for("client")
    assert known["log.dir"].is_for("client")
    assert known["compression.codec"].parse("ZIP") == "Zip"
    assert "retries" not in repr(Some()), "a secret is not printed"


def test_a_page_says_what_each_takes() -> None:
    assert list(table(declared(Some).values(), NAME, TAKES, DEFAULT, DOC)) == [
        "| name | takes | default | |",
        "|---|---|---|---|",
        "| `log.dir` | a text | `data` | A folder. |",
        "| `log.bytes` | a whole number of at least 0 (bytes) |  | A size. |",
        "| `compression.codec` | one of none, zip | `none` | How. |",
        "| `retries` | a whole number from 0 to 2147483647 | `3` | How often. |",
        "| `on_end` | a callable |  | Called. |",
    ]


@pytest.mark.parametrize(("value", "text"), [(None, None), (True, "true"), (("a", "b"), "a,b"), (0.5, "0.5")])
def test_a_value_is_shown_as_it_is_written(value: Any, text: str | None) -> None:
    assert text_of(value) == text


def test_the_nearest_name_is_named_where_any_is_near_enough() -> None:
    assert nearest("log.dri", ["log.dir", "retries"]) == "log.dir"
    assert nearest("x", ["log.dir"], at_least=0.5) is None
    assert nearest("x", []) is None
