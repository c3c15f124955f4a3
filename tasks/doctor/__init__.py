"""Checks of a set-up: what is missing or wrong, with the fix of each.

account    checks of the account in the cloud: credentials, rights, limits, network, image
boot       a machine of the image that is bought, joins and is ended
checks     all checks, in the order of the walk of docs/aws.md, and their findings
machine    checks of this machine and what it reaches: versions, server, database, bucket, catalogue
setup      what is checked: settings, account and job; and how a check says what is wrong
"""
