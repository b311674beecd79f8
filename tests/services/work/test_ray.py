"""The executor `ray`: a real cluster of two nodes gives the bytes of this process, also when a node dies."""

from __future__ import annotations

import sys

import pytest

from services.work import ray_executor, register
from services.work.errors import WorkError
from so101.config import load_config
from so101.skillgen.generate import generate

from .test_processes import Disturb, contents, new_run, settings, whole  # noqa: F401

CPU = 1


@pytest.fixture
def cluster(monkeypatch):
    """A head and another node, one processor each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": CPU, "include_dashboard": False})
    cluster.second = cluster.add_node(num_cpus=CPU)
    cluster.wait_for_nodes()
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.ray
def test_two_nodes_of_which_one_dies_make_the_same_files(cluster, whole, tmp_path, vial_config, vial_seeds):  # noqa: F811
    import ray

    register()
    more = ("deploy.work.executor=ray", f"deploy.work.ray.address='{cluster.address}'")
    config = load_config(overrides=settings("ipc://unused", *more))
    run = new_run(tmp_path / "run", vial_config, vial_seeds)
    nodes = []

    def lose_a_node():
        nodes.append(ray.cluster_resources()["CPU"])
        cluster.remove_node(cluster.second, allow_graceful=False)

    result = generate(config, run, Disturb({4: lose_a_node}), 1)
    assert nodes == [2 * CPU]
    assert result.summary["attempts"] == len(whole)
    assert contents(run) == whole


def test_a_cluster_that_is_not_there_is_named():
    pytest.importorskip("ray")
    config = load_config(overrides=["deploy.work.ray.address='nowhere'"])
    with pytest.raises(WorkError, match=r"no Ray cluster at deploy\.work\.ray\.address 'nowhere'"):
        ray_executor.RayExecutor(config, 1)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(WorkError, match=r"pip install -e \.\[ray\]"):
        ray_executor.RayExecutor(load_config(), 1)


def test_a_node_with_another_program_refuses():
    summary, files, error = ray_executor._run("so101-twin 9", "attempt", [], {}, 0, [], 1, 1 << 26)
    assert (summary, files) == ("{}", []) and "runs another program" in error[1] and "so101-twin 9" in error[1]
