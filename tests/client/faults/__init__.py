"""Our producers through a proxy that cuts, swallows, delays and refuses, against oncelog and a real Kafka.

python -m tests.client.faults --records 1000000 --codec zstd --in-flight 5 --partitions 6 --server kafka --seed 3
python -m tests.client.faults --all
"""
