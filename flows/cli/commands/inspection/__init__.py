"""Verbs that show a job and its machines, and the state of a set-up.

cost     the verb `cost`: costs by market, tier and use
doctor   the verb `doctor`: what is missing or wrong in a set-up
logs     the verb `logs`: logs of the nodes
metrics  the verb `metrics`: the jobs' figures for Prometheus
report   the verb `report`: the HTML report of a job
"""
