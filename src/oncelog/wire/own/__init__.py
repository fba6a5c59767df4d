"""Our own three messages, declared as kio declares Kafka's. Byte by byte they are described in docs/protocol.md.

Their keys spell "OL" in ASCII and lie far from Kafka's, which count up from 0, and from those that vendors begin at
10,000. Stock clients pass over keys that they do not know.
"""

LEASE_PID_KEY = 0x4F4C
RESUME_PID_KEY = 0x4F4D
DESCRIBE_LEASES_KEY = 0x4F4E
