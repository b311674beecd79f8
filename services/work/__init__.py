"""Work on many processes and machines: the broker, its workers, and the executors that use them."""

from so101.pipeline.executors import register_executor


def register() -> None:
    """Make the executors `network` and `ray` known to the stages."""
    register_executor("network", "services.work.network_executor:NetworkExecutor")
    register_executor("ray", "services.work.ray_executor:RayExecutor")
