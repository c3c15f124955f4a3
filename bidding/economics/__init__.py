"""The paper's equations, and what they need to know of a job.

The modules:

    elasticity     how a job bears that machines come and go: what an eviction and a change of the footprint cost
                   it, by elasticity
    equations      what a footprint is expected to cost, and that per unit of work: equations (1)-(4)
    hour_value     what an hour of machines is worth: the cost of the work that can be expected of it
    job_model      what BidBrain knows of the application: Table 2 of the paper, and how much may be held
    reliable_tier  how many reliable machines a job holds: the cheapest number that can keep its state
"""
