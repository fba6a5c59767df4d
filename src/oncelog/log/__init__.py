"""A partition on disk: segments, index, recovery, retention, compaction. All disk access goes through `disk.Disk`."""
