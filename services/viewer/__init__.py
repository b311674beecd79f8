"""Shows of task families in a browser, on this machine's loopback only."""
