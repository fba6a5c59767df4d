"""The replicated log: its rules one by one, and whole clusters that live through faults in memory."""
