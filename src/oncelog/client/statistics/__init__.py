"""What `stats_cb` is told every `statistics.interval.ms`: librdkafka's JSON, as far as it means something here."""
