"""Producers: records to batches, batches to brokers, answers to reports."""
