"""One file a touch: a name, a retry policy and a Prefect record for each thing that is done to the world."""
