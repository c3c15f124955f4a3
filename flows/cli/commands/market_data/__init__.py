"""Verbs for price files and eviction models.

evictions  the verbs `evictions fit`, `show` and `check`: eviction models
traces     the verbs `traces describe`, `generate` and `convert`: price files
"""
