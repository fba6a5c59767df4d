"""The milestones of a sealed batch on the driver. Between them come those of the lanes and of the driver that saves
them (`sink/milestones.py`)."""

from typing import Final

SEALING: Final = "sealed: no manifest"  # the frame is about to be written
WRITING: Final = "sealed: rows in a file"  # in a task, again and again
WRITTEN: Final = "sealed: files written"  # into a folder that no manifest names yet
PUBLISHED: Final = "sealed: manifest published"  # ours, or another driver's that came first
ADVANCED: Final = "sealed: state advanced"  # the manifest was there, and the frame was run for its state alone
SENDING: Final = "sealed: sending"
SAVED: Final = "sealed: lanes saved"  # Spark is about to be told
REMOVING: Final = "sealed: removing"  # of a batch before, what nobody needs any more
