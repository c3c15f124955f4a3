"""What carries instructions to the world: EC2, S3, the state database, the Dask cluster, and the simulated market."""
