"""What is known of the markets of a job: asked, kept and shown.

observing   placement scores and quotas, asked for seldom; what is known of a job's markets at a tick
planning    the plan of a job by what is known of its markets
rebalances  rebalance recommendations of machines of jobs, recorded
showing     what is known of markets, for the verb `proteus market` and the report
working     what the nodes of jobs have done, and how fast types work by it
"""
