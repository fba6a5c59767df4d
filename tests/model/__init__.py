"""What the models of a broker have in common, so that a rule of Kafka stands once.

Three stay apart. `tests.client.net.fake_broker` answers at a socket what a test wants, and has no rules. The replicas
of `tests.client.fetching.cluster` have logs of their own, which part and are cut, and know no producers. In
`tests.client.groups.simulated` the coordinator is the server's own.
"""
