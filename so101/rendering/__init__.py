"""Rendering by state replay: no physics, one picture a state and camera, one h264 file a demo and camera."""
