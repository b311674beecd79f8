"""From action chunks to joint targets, thirty times a second, and what is kept of it. No socket in here."""
