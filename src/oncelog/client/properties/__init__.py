"""librdkafka's properties: names, aliases, ranges, defaults, refusals."""
