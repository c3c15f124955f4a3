"""Readers of data formats, one per file.

csv_examples   examples in CSV or TSV files
csv_labels     the labels of a CSV: numbers, or texts where digits are names
csv_layout     which columns of a CSV are inputs and which is the label
example_table  labelled examples in memory: checks, numbered labels, the held-out part
idx            images and labels in IDX files, as of MNIST
ratings_text   ratings in text tables: user, item, rating
reading        how a table of examples is to be read
separators     what stands between the columns of a text table
svmlight       sparse examples in svmlight (libsvm) files
word_counts    word counts in LDA-C and UCI bag-of-words files
"""
