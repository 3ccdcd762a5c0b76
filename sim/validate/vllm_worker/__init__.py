"""What runs in a Python that has vLLM: an engine that logs its steps, and a client that times it.

`serve.py` is started by its path, in an environment that knows nothing of Headway; the files of
this folder import only the standard library and vLLM.
"""
