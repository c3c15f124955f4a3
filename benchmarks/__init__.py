"""Benchmarks: each puts one of our figures beside a peer or a limit that was measured in the same run."""
