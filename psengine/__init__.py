"""AgileML: a parameter server in tiers, with Litz's programming model.

Decisions and arithmetic are pure, without clocks, network, files or threads: `controller` (events in, instructions
out), `drivers`, `membership`, `protocol`, `scheduling`, `tables`, `telemetry`, `tiers`, the stores of `server`. `shell`
carries out the instructions on Dask, and is the only package of psengine that imports it.

    apps/              built-in applications: logistic regression, k-means, LDA, matrix factorisation
    controller/        the controller: one state machine that receives every event and issues every instruction
    drivers/           drivers: which tasks are dispatched when, and which are committed together
    membership/        nodes: which are members, which are lost, and which partitions each works on
    protocol/          values that the controller, the shell and the nodes exchange
    rpc/               calls between processes
    scheduling/        tasks: which of them may run, where they run, and when a job stops
    server/            the server of a node: the shards it serves and the replicas it stores
    shell/             the engine on Dask: controller process, node plugins, transport
    tables/            tables of parameters: sets of rows, updates of rows, shards, sums in a fixed order
    telemetry/         records of a training: progress, traffic, stalls, the event log
    tiers/             AgileML's tiers: stages, the shard map, replication to the reliable tier
    worker/            the worker of a node: it runs tasks, and reads and updates parameters
    application_check  check of an application: each task twice, with all bits compared
    config             configuration of jobs, tables and tiers
    digests            digests of values that hold arrays, by which two calls of a user's code are compared
    read_order_check   check that tasks come after those whose rows they read
    single_process     an application in a bare loop: one process, no network, no servers
    snapshot_check     check of the snapshots of partitions and drivers
"""
