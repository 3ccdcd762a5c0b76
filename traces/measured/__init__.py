"""What load-test tools wrote: as results to compare with, and as traces to replay."""
