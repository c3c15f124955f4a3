"""Verbs for hyper-parameter sweeps, `proteus sweep …`.

local   the verb `local`: a sweep on this machine, without a market
record  the verb `record`: each setting trained once, its curve and step times in a file
report  the verb `report`: the HTML report of a sweep
run     the verb `run`: a whole sweep on a simulated market
show    the verb `show`: a sweep and its trials, once or live
stop    the verb `stop`: the end of a sweep
submit  the verb `submit`: a sweep to the Prefect server
sweep   the group of these verbs
"""
