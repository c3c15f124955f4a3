"""Tests of `bidding.evictions.predictors`."""
