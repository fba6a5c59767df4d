"""Brokers among each other: a server alone, by a file; a cluster, by a tree; workers, by the folder they share."""

from oncelog.cluster.file import DamagedFolder, FileCluster, UnfitFolder
from oncelog.cluster.folder_lock import FolderInUse, FolderLock

__all__ = ["DamagedFolder", "FileCluster", "FolderInUse", "FolderLock", "UnfitFolder"]
