"""Values that stand elsewhere, so that a secret is in no command line and no file of settings, as Kafka writes them:

    ${env:NAME}           a variable of the environment
    ${file:/path:key}     a line `key=value` of a file
    ${dir:/path:file}     a file of a folder, whole, as Kubernetes and Docker lay out secrets

A text may hold several of them. They are read once, when settings are.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from oncelog.settings import SettingsError

MOST_BYTES: Final = 2**20
_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[a-zA-Z][\w-]*):(?:(?P<path>[^{}]*):)?(?P<key>[^{}:]*)\}")
_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def resolved(name: str, text: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of a setting, read from the place that it refers to. Errors name the reference, and never a value."""
    if "${" not in text:
        return text
    environ = os.environ if environ is None else environ
    return _REFERENCE.sub(lambda each: _value(name, each, environ), text)


def _value(name: str, reference: re.Match[str], environ: Mapping[str, str]) -> str:
    provider, path, key = reference["provider"], reference["path"], reference["key"]
    where = f"{name}={reference[0]}"
    if provider == "env":
        if path or key not in environ:
            raise SettingsError(f"{where}: the environment has no such variable")
        return environ[key]
    if provider not in ("file", "dir"):
        raise SettingsError(f"{where}: expected ${{env:NAME}}, ${{file:/path:key}} or ${{dir:/path:file}}")
    if not path or not key:
        raise SettingsError(f"{where}: expected ${{{provider}:/path:{'key' if provider == 'file' else 'file'}}}")
    if provider == "dir":
        if "/" in key or key in (".", ".."):
            raise SettingsError(f"{where}: expected a file of that folder")
        return _text(where, Path(path) / key)
    found = dict(properties(_text(where, Path(path)).splitlines()))
    if key not in found:
        raise SettingsError(f"{where}: the file has no line {key}=")
    return found[key]


def _text(where: str, path: Path) -> str:
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise SettingsError(f"{where}: {path} has more than {MOST_BYTES:,} bytes")
        return data.decode()
    except OSError as error:
        raise SettingsError(f"{where}: {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{where}: {path} is no UTF-8") from None


def properties(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Java's .properties: # and ! begin a comment, a backslash at the end goes on with the next line."""
    logical = ""
    for line in [*lines, ""]:
        part = line.lstrip()
        if not logical and (not part or part[0] in "#!"):
            continue
        if len(part) - len(part.rstrip("\\")) & 1:
            logical += part[:-1]
            continue
        name, *rest = _SEPARATOR.split(logical + part, maxsplit=1)
        logical = ""
        yield _unescape(name), _unescape(rest[0] if rest else "")


def name_in(text: str) -> str:
    """The beginning of a text that is no NAME=VALUE, for an error: behind a colon or a space may stand a secret, as in
    Java's .properties, and behind an equals sign where the name is missing."""
    return re.split(r"[\s:=]", text.strip(), maxsplit=1)[0] or "..."


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        body = match[1]
        return chr(int(body[1:], 16)) if len(body) == 5 else _ESCAPED.get(body, body)

    found = _ESCAPE.sub(one, text)
    if found.isascii():
        return found
    # Java writes what lies behind U+FFFF as two halves.
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
