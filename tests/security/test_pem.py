"""PEM as people and orchestrators write it."""

import pytest

from oncelog.security.pem import MOST_CHARACTERS, Unreadable, blocks

BODY = "QUJD" * 30
CERTIFICATE = f"-----BEGIN CERTIFICATE-----\n{BODY[:64]}\n{BODY[64:]}\n-----END CERTIFICATE-----\n"


def test_text_around_the_blocks_is_passed_over() -> None:
    found = list(blocks(f"Bag Attributes\n  friendlyName: x\n{CERTIFICATE}subject=/CN=x\n{CERTIFICATE}"))
    assert [each.label for each in found] == ["CERTIFICATE", "CERTIFICATE"]
    assert found[0].text == CERTIFICATE


def test_a_block_in_one_line_gets_its_lines_back() -> None:
    (found,) = blocks(CERTIFICATE.replace("\n", " "))
    assert found.text == CERTIFICATE


def test_an_encrypted_key_of_the_old_kind_keeps_its_headers() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nQUJD\n"
    (found,) = blocks(text + "-----END RSA PRIVATE KEY-----\n")
    assert found.is_key
    assert found.is_encrypted
    assert found.text == text + "-----END RSA PRIVATE KEY-----\n"


def test_a_key_is_not_shown() -> None:
    (found,) = blocks("-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----")
    assert "QUJD" not in repr(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-----BEGIN PRIVATE KEY-----\nQUJD\n", "a block PRIVATE KEY does not end"),
        ("x" * (MOST_CHARACTERS + 1), "more than 1,048,576 characters"),
    ],
)
def test_what_is_unreadable_is_said_without_its_contents(text: str, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as refused:
        list(blocks(text))
    assert "QUJD" not in str(refused.value)


def test_no_base64_is_said() -> None:
    (found,) = blocks("-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----")
    with pytest.raises(Unreadable, match="no base64"):
        _ = found.der
