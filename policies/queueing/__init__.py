"""The built-in queue policies beside vLLM's own two, one a file.

A module here is a policy: its name with dashes is its name in a study, and its `build(**options)`
makes a fresh instance for one replica. Nothing else lists them.
"""
