"""Verbs for hyper-parameter sweeps, `proteus sweep …`.

local   the verb `local`: a sweep on this machine, without a market
record  the verb `record`: each setting trained once, its curve and step times in a file
report  the verb `report`: the HTML report of a sweep
show    the verb `show`: a sweep and its trials, once or live
sweep   the group of these verbs
"""
