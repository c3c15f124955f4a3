"""Readers of data formats, one per file.

csv_examples   examples in CSV or TSV files
example_table  labelled examples in memory: checks, numbered labels, the held-out part
idx            images and labels in IDX files, as of MNIST
ratings_text   ratings in text tables: user, item, rating
svmlight       sparse examples in svmlight (libsvm) files
word_counts    word counts in LDA-C and UCI bag-of-words files
"""
