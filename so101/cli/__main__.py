"""``python -m so101.cli``. Spawned workers import this module too, so it imports nothing unless it is the program."""

if __name__ == "__main__":
    import sys

    try:
        from so101.cli.app import main
    except KeyboardInterrupt:  # Ctrl-C before the program can say anything
        sys.exit(130)
    sys.exit(main())
