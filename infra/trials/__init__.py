"""Trials of a sweep: what runs on a trial's machine, and on a laptop.

records  recorded trials as .npz files
"""
