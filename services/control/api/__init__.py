"""The API, one router a resource."""
