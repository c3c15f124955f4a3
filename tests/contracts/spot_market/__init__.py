"""The contract of every `SpotMarket`: the simulated one, and boto3 on the endpoint in front of it.

With availability traces the same holds while there is capacity, and further rules hold while there is none.
"""
