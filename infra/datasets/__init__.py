"""Data files and built-in sets, prepared as partitions.

formats/           readers of data formats, one per file
arrays             arrays of any rank, the data of nets: read, held-out part, partitions
data_files         the data that a user names: built-in sets, forms of files, decompression
documents          documents of words: read, held-out part, partitions of equal tokens
examples           labelled examples: read, held-out part, partitions
kinds              the kinds of data and the protocol that each implements
prepare            writes the partitions and the held-out part of a job's data
ratings            ratings: read, held-out part, balanced blocks of users and items
"""
