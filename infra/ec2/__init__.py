"""EC2 through boto3: the spot market, user-data, eviction notices.

notice_poller  ask the metadata service whether this machine is about to be taken
spot_market    `SpotMarket` on boto3: the real EC2, or whatever answers at an endpoint as EC2 does
user_data      the script that a machine runs when it starts: the same in the cloud and on this machine
"""
