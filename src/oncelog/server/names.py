"""Names of topics that the server keeps for itself, and how long names may be that others choose."""

METADATA_TOPIC = "__oncelog_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({METADATA_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC})

# Of the id of a group, a client, a member, an instance or a transaction. Kafka has no bound of its own; topics end at
# 249.
MOST_ID_CHARACTERS = 1000
