"""The built-in routers, one a file.

A module here is a router: its name with dashes is the router's name in a study, and its
`build(rng)` makes a fresh instance for one run. Nothing else lists them.
"""
