"""Parts that several commands share, or that one has beside its own file: each file of the folder above is a
command."""
