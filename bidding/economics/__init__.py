"""The paper's equations, and the facts of a job that they need.

The modules:

    budget         the maximum of a job's ledger, and what a purchase may add
    deadline       the job's slack, and when machines on demand must finish it
    elasticity     elasticity models: time lost at an eviction and at a change of the footprint
    equations      equations (1)-(4): expected cost of a footprint, in total and per unit of work
    hour_value     expected cost and work of one purchased machine hour
    job_model      `JobModel`: the application's parameters (Table 2 of the paper) and limits of the footprint
    reliable_tier  number of reliable machines of a job: the cheapest that can hold its state
"""
