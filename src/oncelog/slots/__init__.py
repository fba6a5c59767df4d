"""Exactly once as a core: who writes where, which slot each record fills, and what stands there already. Pure."""

from oncelog.slots.identity import NEVER, NOBODY, AnyPlace, HighWater, Identity, Place, Span, is_lease

__all__ = ["NEVER", "NOBODY", "AnyPlace", "HighWater", "Identity", "Place", "Span", "is_lease"]
