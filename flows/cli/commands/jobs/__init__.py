"""Jobs on a Prefect server.

jobs  the verbs that look after jobs: `jobs`, `cost`, `submit`, `stop`
"""
