"""Names of topics that the server keeps for itself."""

METADATA_TOPIC = "__oncelog_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC})
RESERVED_TOPICS = frozenset({"__transaction_state"})  # of what is not built yet: nobody's records may be in its way
