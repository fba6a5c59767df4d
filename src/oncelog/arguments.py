"""What a program gives at a public door, looked at before anything is done with it.

What is of another kind is a TypeError, what is out of bounds a ValueError: one sentence that says what to give. What
was given is named by its type alone, since a password may stand in it.
"""


def check_kind(what: str, given: object, kinds: type | tuple[type, ...], takes: str) -> None:
    """`takes`: in words, best with an example. True and False are no numbers."""
    all_kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(given, all_kinds) or (isinstance(given, bool) and bool not in all_kinds):
        raise TypeError(f"{what}: expected {takes}, not {type(given).__name__}")


def check_number(what: str, given: object, least: int, most: int | None = None) -> None:
    """A whole one, within these bounds."""
    takes = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most:,}"
    check_kind(what, given, int, takes)
    assert isinstance(given, int), "it was checked"
    if given < least or (most is not None and given > most):
        raise ValueError(f"{what}: expected {takes}, not {given}")


def check_text(what: str, given: object, such_as: str) -> None:
    """One that says something."""
    takes = f"a text, such as {such_as}"
    check_kind(what, given, str, takes)
    if not given:
        raise ValueError(f"{what}: expected {takes}, not an empty one")
