"""Users, rights and quotas: who somebody is, what they may do, and how much. No disk, no socket, no clock."""
