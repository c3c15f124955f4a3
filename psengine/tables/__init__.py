"""Tables of parameters: sets of rows, updates of rows, shards, sums in a fixed order.

contiguous          shards of a table that lie side by side in memory: whoever reads them all is given one
array, and nobody copies
incremental_update  a table as it becomes with the updates of a clock, written piece by piece as they come
row_sets            some rows of tables: sets of rows, updates of some rows alone, and which form of them is the
smallest
row_updates         updates of some rows of a table: cut, joined, added
sharding            which rows of which table lie in which shard: contiguous ranges, fixed at the start of the
job, never changed
tree_sum            the sum of the updates of one clock: a tree over the partitions, so that parts of it may be
added up on the way
"""
