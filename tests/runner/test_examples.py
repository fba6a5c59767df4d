"""The examples of flows do what they say, as a user starts them."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_those_who_do_not_pay_are_reminded(
    servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["flow_reminders", "--servers", servers])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLES / "flow_reminders.py"), run_name="__main__")
    assert ended.value.code == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["bert owes 7", "carla owes 1"]
