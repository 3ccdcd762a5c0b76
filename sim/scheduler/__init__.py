"""The real scheduler: it knows no clock and could drive a real executor."""
