"""Files about markets: prices, catalogues, availability, requests.

aws_price_list        AWS's price list of EC2 (``index.csv`` or ``index.json``): on-demand Linux machines
capacity_files        the spot advisor's bands, and availability traces
capacity_sets         sets of records of availability: counts by zone, or files of one market each
catalogs              catalogues of instance types, read and written as CSV
eviction_model_files  eviction models, read and written as .npz
price_files           price files: checks, reading and writing
price_formats         the forms of price files (CSV, Parquet, JSON), read into the same columns
request_files         requests for spot machines from the command line or a file
"""
