"""The clock: the only room that knows the others."""
