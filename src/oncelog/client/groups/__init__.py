"""Consumer groups from the member's side, by the classic protocol."""
