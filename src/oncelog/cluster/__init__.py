"""Who leads, the pid sequence and the data folder's lock: a file today."""

from oncelog.cluster.file import DamagedFolder, FileCluster, UnfitFolder
from oncelog.cluster.folder_lock import FolderInUse, FolderLock

__all__ = ["DamagedFolder", "FileCluster", "FolderInUse", "FolderLock", "UnfitFolder"]
