"""Made-up load: arrival processes, lengths, shared prefixes, priorities, put together."""
