"""Jobs on a Prefect server.

jobs    the verb `proteus jobs`
stop    the verb `proteus stop`
submit  the verb `proteus submit`
"""
