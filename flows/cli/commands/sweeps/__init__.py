"""Verbs for hyper-parameter sweeps, `proteus sweep …`.

local         the verb `local`: a sweep on this machine, without a market
run_sweep     the verb `run`: a whole sweep on a simulated market
show          the verb `show`: a sweep and its trials, once or live
submit_sweep  the verb `submit`: a sweep to the Prefect server
sweep         the group of these verbs; the verbs `stop` and `report`
"""
