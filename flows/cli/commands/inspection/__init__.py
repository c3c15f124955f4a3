"""Verbs that show a job and its machines.

cost    the verb `cost`: costs by market, tier and use
logs    the verb `logs`: logs of the nodes
report  the verb `report`: the HTML report of a job
"""
