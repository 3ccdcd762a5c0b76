"""From one trace to another: each transform is a function that notes itself in the source."""
