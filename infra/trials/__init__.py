"""Trials of a sweep: what runs on a trial's machine, on a laptop and in a test. No Prefect, no database.

errors   what is wrong with a trial, in one line
records  recorded trials as .npz files
states   saved states as files, without pickle
trial    `Trial`, the object that a training function gets
"""

from infra.trials.trial import Trial

__all__ = ["Trial"]
