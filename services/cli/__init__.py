"""The commands that start and use services, beside those of `so101.cli`."""
