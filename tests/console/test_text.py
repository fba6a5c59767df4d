"""Bytes of anyone as text: nothing is hidden, nothing is turned, nothing is longer than it may be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.console.limits import NAME_BYTES
from oncelog.console.text import name, shown, visible


def test_text_stays_as_it_is() -> None:
    text = "Grüße, 你好 \U0001f469‍\U0001f52c\n\t<b>&amp;</b> \u0646\u200c\u0645"
    assert shown(text.encode(), 1000) == {
        "kind": "text",
        "text": text,
        "size_bytes": len(text.encode()),
        "is_cut": False,
    }


def test_null_and_nothing_are_told_apart() -> None:
    assert shown(None, 10)["kind"] == "null"
    assert shown(b"", 10) == {"kind": "text", "text": "", "size_bytes": 0, "is_cut": False}


def test_bytes_that_are_no_text_are_spelled_out() -> None:
    found = shown(b"\xff\xfe caf\xe9", 100)
    assert (found["kind"], found["text"]) == ("bytes", "\\xff\\xfe caf\\xe9")


@pytest.mark.parametrize("most_bytes", range(1, 12))
def test_a_cut_through_a_character_does_not_make_text_into_bytes(most_bytes: int) -> None:
    found = shown("äß€\U0001f600".encode(), most_bytes)
    assert found["kind"] == "text"
    assert "äß€\U0001f600".startswith(found["text"])
    assert found["is_cut"] == (most_bytes < 11)


@pytest.mark.parametrize("code", [0x00, 0x07, 0x1B, 0x7F, 0x85, 0xAD, 0x200B, 0x200F, 0x202E, 0x2028, 0x2066, 0xFEFF])
def test_what_cannot_be_seen_is_made_visible(code: int) -> None:
    found = visible(f"a{chr(code)}b")
    assert chr(code) not in found
    assert f"{code:02x}" in found


def test_names_are_cut() -> None:
    assert name(None) is None
    assert name("x" * 1000) == "x" * NAME_BYTES + "…"


@given(st.binary(max_size=300), st.integers(1, 200))
def test_no_bytes_are_too_strange(data: bytes, most_bytes: int) -> None:
    found = shown(data, most_bytes)
    assert found["size_bytes"] == len(data)
    assert found["is_cut"] == (len(data) > most_bytes)
    assert len(found["text"]) <= 6 * most_bytes
    assert "\x1b" not in found["text"] and "\u202e" not in found["text"]
    json.dumps(found).encode("ascii")
