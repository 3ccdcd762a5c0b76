"""Microbenchmarks of a torch decoder with a paged KV cache, and the profile made of them.

PyTorch (the extra `bench`) is imported by the modules that run kernels: `attention`, `decoder`,
`device`, `sections`, `bench_run`. The others (points, samples, session, tables, errors) need none.
"""
