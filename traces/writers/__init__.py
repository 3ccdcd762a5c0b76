"""The formats that a trace can be written in: each says first what it can't hold."""
