"""The checks of a dataset folder: one module a subject, one name a check (catalogue.py). `so101.datasets.validate` runs
them."""
