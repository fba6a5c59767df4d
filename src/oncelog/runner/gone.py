"""Topics that are not the same any more under a flow: deleted, or deleted and made again."""

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from oncelog.client.door import Metadata
from oncelog.flow.description import Stage

GONE_S: Final = 5.0  # so long a topic is not there before that is believed: a broker may lag behind
WAS_DELETED: Final = "was deleted while it ran"


class Used(NamedTuple):
    """A topic of a stage."""

    name: str
    topic_id: str
    role: str
    remedy: str  # behind what happened to it

    def words(self, what: str) -> str:
        return f"its {self.role} {self.name} {what}{self.remedy}"


def used_by(stage: Stage, reset: str) -> list[Used]:
    """`reset`: the command that does it."""
    inputs = {each.topic: each.topic_id for each in stage.inputs}
    outputs = {each.place.topic: each.topic_id for each in stage.outputs}
    anew = f". {reset} begins anew with what a new one holds, and writes behind what stands in the outputs"
    filled = f", with what stood in it. {reset} writes what the inputs hold into a new one"
    lost = f", and with it what was read, written and kept as state. {reset} begins anew, and writes all outputs again"
    return [
        *(Used(name, topic_id, "input", anew) for name, topic_id in inputs.items()),
        *(Used(name, topic_id, "output", filled) for name, topic_id in outputs.items()),
        Used(stage.journal.topic, stage.journal_id, "journal", lost),
    ]


class UsedTopics:
    """The topics that a cell uses; the first one that is not what it was is told."""

    def __init__(self, used: list[Used], lost: Callable[[Used, str], None]) -> None:
        self.used, self.gone = used, ""
        self._lost = lost
        self._checked: Metadata | None = None

    def look(self, metadata: Metadata) -> bool:
        """Whether one was deleted and made again meanwhile; then it is not read, nor written."""
        if metadata is not self._checked:
            self._checked = metadata
            for each in self.used:
                known = metadata.topics.get(each.name)
                now = None if known is None else known.topic_id
                if each.topic_id and now is not None and str(now) != each.topic_id:
                    self._lose(each, f"was deleted and made again while it ran ({each.topic_id} is {now} now)")
        return bool(self.gone)

    def deleted(self, names: Collection[str]) -> None:
        """They have not been there for a while."""
        for each in self.used:
            if each.name in names:
                self._lose(each, WAS_DELETED)

    def _lose(self, used: Used, what: str) -> None:
        if not self.gone:
            self.gone = used.name
            self._lost(used, what)


def missing(names: Collection[str], metadata: Metadata) -> list[str]:
    topics = metadata.topics
    return [name for name in names if name not in topics or not topics[name].partitions]
