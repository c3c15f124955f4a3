"""Files about markets: prices, catalogues, availability, requests.

aws_price_list        AWS's price list of EC2 (the offer file ``index.csv`` or ``index.json``), read for its on-
demand Linux machines
capacity_files        what is told of capacity: the advisor's bands, and availability traces
catalogs              catalogues of instance types: read with one clear line on what is wrong with them, and
written
eviction_model_files  eviction models as files: one .npz, with the model's header as JSON among its arrays;
nothing in it is executed
price_files           price files: read with one clear line on what is wrong with them, written whole or not at
all
price_formats         the forms of a price file, each read into the same columns by Arrow; told apart by
content, not by name
request_files         requests for spot machines as a user writes them, on the command line or in a file: every
fault in one line
"""
