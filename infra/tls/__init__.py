"""TLS between the processes of a job: one certificate authority a job, one key a role.

certificates  makes the authority and the keys, and puts the keys into the job's prefix in the bucket
job_keys      reads the key of a role, for Dask and for the controller's port
"""
