"""The verbs of the command, in the groups of its help.

inspection/   look at a job and its machines
jobs/         jobs on a Prefect server
market_data/  price files and eviction models
planning/     weigh what a job would cost
training/     train a model and use it
bench         the verb `proteus bench`
"""
