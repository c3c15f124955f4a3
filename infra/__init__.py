"""Adapters that carry out instructions: EC2, S3, the state database, Dask nodes, and the simulated market.

applications/   user applications on their way to the nodes, and the models they produce
datasets/       data files and built-in sets, prepared as partitions
ec2/            EC2 through boto3: the spot market, user-data, eviction notices
local/          runs on one machine: servers, nodes and child processes
market_data/    files about markets: prices, catalogues, availability, requests
nodes/          the process that a machine runs, and the client of its controller
simulated_ec2/  a simulated spot market behind an EC2-compatible endpoint
state/          the state database: jobs, the journal, purchases, the ledger
storage/        files in the blob store: checkpoints, prices, logs
clock           market time, the same in every process
errors          errors that a user reads
files           files that a user names, by path or by fsspec URL: read whole, written whole or not at all,
every fault in one line
open_close      what is opened by a with statement and closed at its end
json_values     values as JSON can write them
runtime         the world as this process was set up to see it: settings, clock, state, blobs, market, catalogue
settings        every setting, from the environment (``PROTEUS_…``), with what it means and a default that works
on one machine
structured_text  YAML and JSON files that a user writes: every value means what it looks like, and no key is given twice
text_lines      lines and cells of a text table that is held as bytes: where a line begins, what is in it, which
line a row is on
urls            URLs of files of this machine, of paths with any character but the few that a URL has no word for
validation      what pydantic finds wrong with a record, in words for the user who wrote it
"""
