"""The recorded formats: one a file, behind the Protocol in `base`, listed in `registry`."""
