"""Data files and built-in sets, prepared as partitions.

formats/           readers of data formats, one a file
documents          documents as a kind of data: word counts are read and checked, a tenth held out, the rest
dealt to partitions
examples           labelled examples as a kind of data: read, checked, a part held out, the rest dealt to
partitions
files              the data that a user names: a built-in set, or a file by path or fsspec URL; which forms
there are, how each is read
generated_ratings  ratings that are made up: a factorisation of low rank, noise, and users and items of very
different activity
kinds              kinds of data that applications learn from, and what each kind has to offer so that a job can
be given its input
prepare            a job's input: a data set cut into partitions and a held-out part, written as blobs before
the first node starts
ratings            ratings as a kind of data: read, a part held out, users and items numbered so that parts and
blocks weigh the same
"""
