"""Names of topics that the server keeps for itself."""

METADATA_TOPIC = "__oncelog_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
