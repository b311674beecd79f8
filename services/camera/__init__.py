"""The camera service, and `RemoteCameras`, its client."""
