"""Long storms of faults; `make storms` runs them."""
