"""The revisions of the schema, one a file, in the order of their numbers. A pushed revision is never edited.

0001_baseline                 the tables of version 0.1.0
0002_revisions_count          programs that know no revision refuse the database
0003_claims_and_observations  claims end by the database's clock; observations are found by their kind
0004_snapshots                snapshots of the engines
0005_requests_to_stop         requests to stop a job
0006_identity                 the owner, account and region of a database's machines
0007_frozen_requests          the request of an order, and what the market answered
0008_kinds_of_jobs            the kind of a row of `jobs`: a job or a sweep
0009_generations              the generation of a database, and its marks in the fences of its jobs
"""
