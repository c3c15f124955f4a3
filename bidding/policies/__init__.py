"""Bidding policies, one file each."""
