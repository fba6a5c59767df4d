"""What brings each peer into the user's cache: pinned, and held to what is written down of it here (go.sum,
package-lock.json, the hashes in requirements/)."""

import hashlib
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from bench.flow_contestant import frameworks
from bench.process import ROOT
from tests.peers.go_programs import go_program
from tests.peers.jars import POMS, MissingPeer, cache_folder

HERE: Final = Path(__file__).parent
INSTALL_S: Final = 900
PYTHONS: Final = HERE / "python"
NODES: Final = HERE / "node"
LOCKS: Final = ROOT / "requirements"


# --- Go ---------------------------------------------------------------------------------------------------------------


def go(name: str) -> list[str]:
    return [str(go_program(HERE / "go", f"./{name}"))]


def go_version(module: str, folder: Path = HERE / "go") -> str:
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", (folder / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, module
    return found[1]


# --- Node -------------------------------------------------------------------------------------------------------------


def node(name: str) -> list[str]:
    """The programs of the folder beside what they need, so that they find it."""
    program = shutil.which("node")
    if program is None:
        raise MissingPeer("there is no `node` on the path; install Node.js 20 or newer, with npm")
    return [program, str(_packages() / f"{name}.js")]


@cache
def _packages() -> Path:
    files = sorted(NODES.iterdir())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    folder = cache_folder() / f"node-{digest}"
    if (folder / "complete").exists():
        return folder
    npm = shutil.which("npm")
    if npm is None:
        raise MissingPeer("there is no `npm` on the path, which installs packages for Node.js")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, folder)
    order = [npm, "ci", "--no-audit", "--no-fund", "--cache", str(cache_folder() / "npm")]
    done = subprocess.run(order, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise MissingPeer(f"npm could not install the packages of {NODES.name}: {done.stderr[-600:]}")
    (folder / "complete").touch()
    return folder


def node_version(package: str) -> str:
    return str(json.loads((NODES / "package.json").read_text())["dependencies"][package])


# --- what is there already


def on_path(program: str, remedy: str = "") -> str:
    found = shutil.which(program)
    if found is None:
        raise MissingPeer(f"there is no `{program}` on the path{remedy}")
    return found


# --- Java and Python --------------------------------------------------------------------------------------------------


def java_version(name: str, artifact: str) -> str:
    pom = (POMS / name / "pom.xml").read_text()
    found = re.search(rf"<artifactId>{re.escape(artifact)}</artifactId>\s*<version>(.*?)</version>", pom)
    assert found is not None, artifact
    return found[1]


def python(name: str) -> list[str]:
    return [str(frameworks()), str(PYTHONS / f"{name}.py")]


def locked_version(package: str) -> str:
    for lock in sorted(LOCKS.glob("frameworks*.txt")):
        found = re.search(rf"^{re.escape(package)}==(\S+)", lock.read_text(), re.MULTILINE)
        if found is not None:
            return found[1]
    raise LookupError(f"no lock in {LOCKS} has {package}")
