"""Look at a job and its machines.

logs    the verb `proteus logs`
report  the verb `proteus report`
"""
