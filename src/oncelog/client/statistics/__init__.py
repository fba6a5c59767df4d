"""The statistics that `stats_cb` gets every `statistics.interval.ms`: librdkafka's JSON, as far as it applies here."""
