"""What slots can be found to be: not to be told any more, or filled with something else."""


class CannotTell(Exception):
    """What the log holds and what was saved do not fit together, or the log can no longer tell."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.what, self.remedy = what, remedy
        super().__init__(what)


class Differs(Exception):
    """What came is something else than what stands in its slot already. Nothing more may be written."""
