"""What several commands share, or one has beside its own file: each file of the folder above is a command."""
