"""The revisions of the schema, one a file, in the order of their numbers. A pushed revision is never edited.

0001_baseline      every table
0002_market_facts  what others than our own requests and machines say of markets
0003_handed_over   machines that a job took over from another
"""
