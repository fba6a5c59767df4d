"""Where files of flows lie, and what writes them there: whole, under names that only the first to come fills."""
