"""Errors about slots: their content cannot be told any more, or they are filled with something else."""


class CannotTell(Exception):
    """The log and the saved value do not fit together, or the log can no longer tell."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what, self.remedy = what, remedy
        super().__init__(what)


class Differs(Exception):
    """A record is another than the one that stands in its slot already. Nothing more may be written."""
