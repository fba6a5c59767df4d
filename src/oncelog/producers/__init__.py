"""The proposal's idempotent producer as pure code: no I/O, no clock of its own."""

from oncelog.producers.bound_pids import FIRST_BOUND_PID, PidBinding, of_transactional_id
from oncelog.producers.ceilings import Ceilings
from oncelog.producers.decision import APPEND, Decision, Judgement
from oncelog.producers.grants import AnyGrant, Grants
from oncelog.producers.producer_map import FIRST_KAFKA_PID, LiveProducer, ProducerLimits, ProducerMap
from oncelog.producers.snapshot import CorruptSnapshot

__all__ = [
    "APPEND",
    "FIRST_BOUND_PID",
    "FIRST_KAFKA_PID",
    "AnyGrant",
    "Ceilings",
    "CorruptSnapshot",
    "Decision",
    "Grants",
    "Judgement",
    "LiveProducer",
    "PidBinding",
    "ProducerLimits",
    "ProducerMap",
    "of_transactional_id",
]
