"""The scheduler on a real model: a torch decoder with a paged KV cache, in real time.

Ground truth for the simulator on any machine; needs PyTorch (the extra `bench`).
"""
