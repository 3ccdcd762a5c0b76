"""What arrives: request specifications, traces, loaders, generators, transforms."""
