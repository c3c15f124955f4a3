"""Calls between processes.

cancellation       tasks are ended for sure
integer_narrowing  whole numbers on the way: an array travels in the narrowest type that holds all of its
numbers
transport          calls between processes, each with a deadline
"""
