"""Adapters that carry out instructions: EC2, S3, the state database, Dask nodes, and the simulated market.

applications/        user applications on their way to the nodes, and the models they produce
datasets/            data files and built-in sets, prepared as partitions
ec2/                 EC2 through boto3: the spot market, user-data, eviction notices
local_market/        servers of a simulated market on this machine
market_data/         files about markets: prices, catalogues, availability, requests
nodes/               the process that a machine runs, and the client of its controller
processes/           what all our processes have in common: their environment
simulated_ec2/       a simulated spot market behind an EC2-compatible endpoint
state/               the state database: jobs, the journal, purchases, the ledger
storage/             files in the blob store: checkpoints, prices, logs
tls/                 TLS between the processes of a job: its keys
trials/              trials of a sweep: the training function, its process and supervisor
child_process        child processes that end with this process, each in its own process group
clock                market time, shared by all processes
errors               errors that are shown to the user
extras               the extras of the installation, and how to install one that is missing
files                reads and writes files by path or fsspec URL
json_values          values that JSON can represent
masking              secrets in URLs, masked in what is shown
open_close           base classes of what a with statement opens and closes
parent_death_signal  a launcher that makes a command end with its parent process
runtime              the adapters of this process, opened from its settings
settings             all settings, from ``PROTEUS_…`` environment variables
structured_text      YAML and JSON files that a user writes, without surprises of type
text_lines           lines and cells of a text table held as bytes
urls                 URLs of files and SQLite databases, for paths with any character
validation           faults that pydantic finds, in words for the user
version              the version of this program
"""
