"""The batch simulator: one job after the other on recorded prices, compiled, under any scheme. Pure: no clock, no files.

`markets` and `tables` hold what a job is run on as arrays, `setting` what it is, `view` what a scheme is shown, `schemes`
what it may decide, `simulate` runs one job, `driver` many of them. `clairvoyant` says what nobody
can go below.
"""
