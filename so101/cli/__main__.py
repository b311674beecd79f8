"""``python -m so101.cli``. Spawned workers import this module too, so it imports nothing unless it is the program."""

if __name__ == "__main__":
    import sys

    from so101.cli.app import main

    sys.exit(main())
