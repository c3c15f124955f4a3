"""EC2 through boto3: the spot market, user-data, eviction notices.

account        what an account is, has and may do; for `proteus doctor`
aws_configuration  the variables that choose the AWS configuration, for a message
event_messages     EventBridge's messages about machines: warnings and recommendations
ec2_spot_market    `SpotMarket` on boto3, for EC2 and every EC2-compatible endpoint
notice_poller      polls the metadata service for this machine's eviction notice and rebalance recommendation
owned_machines     the machines of an owner, by their tags, and their end; for `proteus panic`
offers             instance types on sale, from the Price List and DescribeInstanceTypes
sqs_events         `EventQueue` on SQS: the queue that EventBridge fills
user_data          the start script of a machine, the same on EC2 and in a local run
"""
