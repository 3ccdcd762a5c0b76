"""Studies of many runs: sweeps, comparisons, capacity, and what a single long run can say."""
