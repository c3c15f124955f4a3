"""The revisions of the schema, one a file, in the order of their numbers. A pushed revision is never edited.

0001_baseline      every table
0002_market_facts  what others than our own requests and machines say of markets
"""
