"""Look at a job and its machines.

cost    the verb `proteus cost`
logs    the verb `proteus logs`
report  the verb `proteus report`
"""
