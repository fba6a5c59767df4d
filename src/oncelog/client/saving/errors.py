"""What can be wrong with a saved producer, before anything is sent and while a replay is checked."""


class BadSavedProducer(ValueError):
    """The saved value itself cannot be used: tampered with, cut short, from a future version, of another place."""


class CannotResume(Exception):
    """What the log holds and what was saved do not fit together, or the log can no longer tell. Nothing was sent."""


class TakenOver(Exception):
    """Another copy of the same job has taken the saved producer over; this one must stop."""


class ReplayDiffers(Exception):
    """The application produced something else than what stands in the slot already. Nothing more may be written."""
