"""The control plane: starts, stops and watches runs over HTTP and on a page; hands out work."""
