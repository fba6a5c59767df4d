"""The operations of flows: what each makes of the function that takes its results. Pure."""
