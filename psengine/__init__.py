"""AgileML: a parameter server in tiers, with Litz's programming model.

`controller` and what it uses are pure (events in, instructions out); `shell`, `transport` and `plugins` carry them out
on Dask and are the only modules that import it.
"""
