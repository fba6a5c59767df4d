"""What groups of KIP-848 may do: what the server's settings say, and where a group has configs of its own, those."""

from oncelog.security.documents import Document, Kind
from oncelog.server.group_configs import own_of
from oncelog.server.groups.consumer.values import ConsumerLimits
from oncelog.server.groups.limits import consumer_limits_of
from oncelog.server.settings import Settings
from oncelog.server.topics import Topics


class OwnLimits:
    def __init__(self, settings: Settings, topics: Topics) -> None:
        self.common = consumer_limits_of(settings)
        self._settings = settings
        self._topics = topics
        self._document: Document = {}
        self._found: dict[str, ConsumerLimits] = {}  # what was looked up since it changed
        topics.tell_documents(self._see)

    def of(self, group_id: str) -> ConsumerLimits:
        """Asked at each heartbeat, so that what is set counts from the next one on."""
        if group_id not in self._document:
            return self.common
        found = self._found.get(group_id)
        if found is None:
            own = own_of(self._document, group_id)
            found = self._found[group_id] = consumer_limits_of(self._settings, own)
        return found

    def _see(self, kind: Kind) -> None:
        if kind is Kind.GROUP_CONFIGS:
            self._document = self._topics.document(kind)
            self._found = {}
