"""Faults that take minutes to show, or hundreds of seeds; `make storms` runs them, `make test` the first seeds."""
