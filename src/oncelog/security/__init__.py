"""Who somebody is, what they may do, and how much: users, rights and quotas. No disk, no socket, no clock."""
