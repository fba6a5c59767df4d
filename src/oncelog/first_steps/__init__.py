"""`oncelog serve --secure`: a certificate, a user and the files by which clients get in, made in the data folder."""
