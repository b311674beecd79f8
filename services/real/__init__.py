"""What `./real` is made of: its processes, its keys, its sessions."""
