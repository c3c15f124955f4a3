"""Tables of parameters: sets of rows, updates of rows, shards, sums in a fixed order.

allowed_values      the values that a table takes, from an application and in a sum
contiguous          shards of a table stored side by side in memory, so that all of them are one array without a copy
incremental_update  a table with the updates of a clock, written piece by piece as they arrive
row_cache           rows that were read, by the number of completed tasks that they show
row_owners          which partitions write each row of a partition-local table
row_sets            sets of rows (runs or sorted indices), their unions, and blocks of rows that were read
row_updates         updates of some rows of a table (`RowDelta`): cutting, joining, adding
sharding            the cut of tables into shards: contiguous row ranges, fixed for the life of the job
sparse_rows         tables of counts with their rows in the smaller form: entries that are not 0, or all
tree_sum            deterministic sum of the updates of a clock, by a binary tree over the partitions
update_rules        what becomes of a table with the summed updates of a clock: add, sgd, momentum, adam
"""
