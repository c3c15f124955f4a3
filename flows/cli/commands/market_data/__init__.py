"""Verbs for markets, price files and eviction models.

catalog    the verb `catalog fetch`: instance types and their on-demand prices
evictions  the verbs `evictions fit`, `show` and `check`: eviction models
market     the verb `market`: what is known of markets
traces     the verbs `traces describe`, `generate` and `convert`: price files
"""
