"""The places that files of flows lie in, and what writes them: whole, under names that only the first to come fills."""
