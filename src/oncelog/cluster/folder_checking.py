"""Reading a whole data folder, and changing nothing: `oncelog check`.

What one partition's folder holds is checked in `log/partition_checking.py`; here it is whether the folder as a whole is
what a server left: its own file, the log of topics, a folder for each partition, and nothing that no topic knows.
"""

from collections.abc import Callable, Iterator

from oncelog.cluster.file import META_FILE, DamagedFolder, read_state
from oncelog.log.disk import Disk
from oncelog.log.partition_checking import Checked, OnBatch, check_partition
from oncelog.records.errors import InvalidRecord
from oncelog.records.header import BatchHeader
from oncelog.records.read import Record, records_of
from oncelog.security.documents import Damaged, Document, Kind
from oncelog.server.folders import METADATA_ID, Folders, owner_of
from oncelog.server.metadata_log import Definition, definitions_in, documents_in
from oncelog.server.names import METADATA_TOPIC

METADATA = f"{METADATA_TOPIC}-0"


def check_folder(
    disk: Disk, folder: str, watch: Callable[[str], OnBatch | None] = lambda name: None
) -> Iterator[Checked]:
    """The server's own file first, then the log of topics, then every partition. Which topics a broker of a cluster
    has is not to be read here; `watch` answers who wants to see the batches of one of its partitions."""
    folders = Folders(disk, folder)
    there = set(folders.found())
    checked, stayed_up, is_member = _check_meta(disk, folder)
    yield checked
    if not there:
        return
    if is_member:
        for name, index in sorted(there):
            path = folders.path(name, index)
            yield check_partition(disk, path, watch(f"{name}-{index}"), replicated=True, stayed_up=stayed_up)
        return
    checked, definitions = check_metadata(disk, folders, stayed_up)
    yield checked
    wanted = {
        (definition.name, index)
        for definition in definitions.values()
        if not definition.is_deleting
        for index in range(definition.partitions)
    }
    for name, index in sorted((there | wanted) - {(METADATA_TOPIC, 0)}):
        path = folders.path(name, index)
        if (name, index) not in there:
            checked = Checked(f"{name}-{index}")
            checked.damaged("the folder is missing")
        elif refusal := _refusal(disk, path):
            checked = Checked(f"{name}-{index}")
            checked.damaged(refusal)
        else:
            owner = owner_of(definitions[name].id, index) if (name, index) in wanted else ""
            checked = check_partition(disk, path, stayed_up=stayed_up, owner=owner)
            is_deleting = name in definitions and definitions[name].is_deleting
            if (name, index) not in wanted and not is_deleting:
                checked.note("no topic knows it; a server leaves it alone where it holds records, and removes it else")
        yield checked


def _refusal(disk: Disk, path: str) -> str:
    """The reason why nothing can be read there; empty where it can."""
    try:
        disk.listdir(path)
    except NotADirectoryError:
        return "it is no folder"
    except OSError as error:  # not ours to read, or a link that leads nowhere or to itself
        return f"it cannot be read: {error}"
    return ""


def _check_meta(disk: Disk, folder: str) -> tuple[Checked, bool, bool]:
    """Check the meta file; and whether the machine has run on since a server ran here, and that was a broker of a
    cluster."""
    checked = Checked(META_FILE)
    try:
        state = read_state(disk, folder)
    except (DamagedFolder, OSError) as damage:
        checked.damaged(str(damage))
        return checked, False, False
    noted = state["boot_id"]
    return checked, bool(noted) and noted == disk.boot_id(), state["is_member"]


def check_metadata(disk: Disk, folders: Folders, stayed_up: bool) -> tuple[Checked, dict[str, Definition]]:
    """Check the metadata log; and the topics that it defines."""
    if not folders.exists(METADATA_TOPIC, 0):
        checked = Checked(METADATA)
        checked.damaged("the folder is missing: without it nothing says which topics there are")
        return checked, {}
    definitions: dict[str, Definition] = {}
    try:
        checked, records = _read_metadata(disk, folders, stayed_up)
        definitions = definitions_in(records)
    except (InvalidRecord, ValueError, KeyError, TypeError) as damage:
        checked = Checked(METADATA)
        checked.damaged(f"a record is no definition of a topic: {damage}")
    return checked, definitions


def documents_of(disk: Disk, folder: str) -> dict[Kind, Document]:
    """Users, rights and quotas of a server that stands alone. Nothing where there was none; what is damaged,
    `check_folder` tells."""
    folders = Folders(disk, folder)
    try:
        return documents_in(_read_metadata(disk, folders, True)[1]) if folders.exists(METADATA_TOPIC, 0) else {}
    except (OSError, InvalidRecord, Damaged, ValueError, KeyError, TypeError):
        return {}


def _read_metadata(disk: Disk, folders: Folders, stayed_up: bool) -> tuple[Checked, list[Record]]:
    records: list[Record] = []

    def take(header: BatchHeader, batch: bytes) -> None:
        if not header.is_control:
            records.extend(records_of(batch))

    path, owner = folders.path(METADATA_TOPIC, 0), owner_of(METADATA_ID, 0)
    return check_partition(disk, path, take, stayed_up=stayed_up, owner=owner), records
