"""Refusals of a request of the page."""


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def not_found(what: str) -> Refused:
    return Refused(404, f"there is no {what}")
