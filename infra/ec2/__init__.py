"""EC2 through boto3: the spot market, user-data, eviction notices.

account        what an account is, has and may do; for `proteus doctor`
aws_configuration  the variables that choose the AWS configuration, for a message
ec2_spot_market    `SpotMarket` on boto3, for EC2 and every EC2-compatible endpoint
notice_poller      polls the metadata service for the eviction notice of this machine
owned_machines     the machines of an owner, by their tags, and their end; for `proteus panic`
offers             instance types on sale, from the Price List and DescribeInstanceTypes
user_data          the start script of a machine, the same on EC2 and in a local run
"""
