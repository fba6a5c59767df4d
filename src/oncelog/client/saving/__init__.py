"""A producer's identity, saved and resumed anywhere."""

from oncelog.client.saving.errors import BadSavedProducer, CannotResume, ReplayDiffers, TakenOver
from oncelog.client.saving.saved import SavedProducer
from oncelog.client.saving.saved_topics import SavedTopic
from oncelog.slots import NEVER, Identity, Span
from oncelog.slots.chain import SavedPartition

__all__ = [
    "NEVER",
    "BadSavedProducer",
    "CannotResume",
    "Identity",
    "ReplayDiffers",
    "SavedPartition",
    "SavedProducer",
    "SavedTopic",
    "Span",
    "TakenOver",
]
