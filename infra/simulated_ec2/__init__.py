"""A simulated spot market behind an EC2-compatible endpoint.

rules/            the rules, one a module: purchases, reads, evictions, quotas, the bill
account_services  STS, Service Quotas and IAM: the account's identity and quotas
actions           the EC2 actions over a simulated market: parameters in, answer out
event_queue       `EventQueue` of the simulated market, in this process
faults            scripted faults of the simulated market: kills, refused calls, late or lost answers
held_instances    the record of one machine: purchase, boots, eviction, end
instances         the machines: processes that run user-data, each in its own session
market            the spot market: EC2's rules over price traces, free of I/O
metadata_service  the instance metadata service (IMDSv2) of the machines
price_history     DescribeSpotPriceHistory, in pages
process_reaper    finds and kills the processes of machines, also when the endpoint was killed
server            the server process: EC2 API, metadata service and machines
stored_market     the state of the market in a file, from which a later run continues
wire_protocol     EC2's wire protocol: the signer's key id, form to parameters, dict to XML
"""
