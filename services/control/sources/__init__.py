"""What other services say, kept up to date. A service that is not there is an ordinary state, told as such."""
