"""The command line of `./twin`: one module a subcommand. Nothing heavy is imported before a command runs."""
