"""A simulated spot market behind an EC2-compatible endpoint.

actions           what each EC2 action means over a simulated market: parameters in, answer out, as EC2 would
write it
faults            troubles that a simulated market is told to make: a script of faults, each matched against
time, market and call
instances         the machines of the simulated EC2: processes that run user-data, each in a session of its own,
and end as a whole
market            a simulated spot market: the rules of EC2 over price traces, free of I/O, driven by whoever
tells it the time
metadata_service  the metadata service that a simulated machine sees: IMDSv2, one path prefix an instance
price_history     describeSpotPriceHistory over the traces of a simulated market, in pages, newest first, never
from the future
process_reaper    find and end every process of a simulated machine; and watch over an endpoint, ending its
machines if it dies
server            a simulated EC2 on this machine: the EC2 API, the metadata service and real processes for
machines, in one process
snapshot          the simulated market in a file, so that a world that was ended goes on where it was: time
stands still in between
wire_protocol     EC2's wire protocol, without knowing what any action means: parameters out of a form, XML out
of a dict
"""
