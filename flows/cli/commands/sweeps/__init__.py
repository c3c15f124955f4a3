"""Verbs for hyper-parameter sweeps, `proteus sweep …`.

sweep  the group of these verbs
"""
