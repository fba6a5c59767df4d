"""The reason why an experiment could not go on."""


class Stopped(RuntimeError):
    """The experiment could not go on: its words say why."""


class DidNotStart(Stopped):
    """A process did not start: with what it said."""
