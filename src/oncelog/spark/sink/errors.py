"""What a sink refuses. The message is for whoever runs the query: it says what differs, in numbers, and what to do."""


class SinkRefused(Exception):
    """Nothing more is written. Running the same again brings the same answer."""


class BadState(SinkRefused):
    """What stands in the sink's topic cannot be read as its state."""
