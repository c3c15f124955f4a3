"""Fault tests that take minutes, or hundreds of seeds; `make storms` runs them, `make test` the first seeds."""
