"""Topics, configurations, offsets, groups, producers: what a command line needs."""
