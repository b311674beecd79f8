"""Decimation: what it may and may not change, the cache, and what happens to the model."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scipy.spatial import cKDTree

from so101.config import load_config
from so101.errors import SimulationError
from so101.sim.bake import ROBOT_MJCF, bake, robot_mjcf_path
from so101.sim.meshes import SUFFIX, apply_visual_meshes, cache_dir, cluster, decimated_mesh, read_stl

STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("SO101_CACHE", str(tmp_path / "cache"))
    return load_config()


@pytest.fixture
def ball(tmp_path):
    """An STL of a sphere of 20 mm radius, 3,960 triangles."""
    around, along = np.meshgrid(np.linspace(0, 2 * np.pi, 61), np.linspace(0, np.pi, 34), indexing="ij")
    grid = 0.02 * np.stack([np.cos(around) * np.sin(along), np.sin(around) * np.sin(along), np.cos(along)], -1)
    a, b, c, d = grid[:-1, :-1], grid[1:, :-1], grid[1:, 1:], grid[:-1, 1:]
    corners = np.concatenate([np.stack([a, d, b], -2).reshape(-1, 3, 3), np.stack([b, d, c], -2).reshape(-1, 3, 3)])
    triangles = np.zeros(len(corners), STL_TRIANGLE)
    triangles["corners"] = corners
    path = tmp_path / "ball.stl"
    path.write_bytes(bytes(80) + len(corners).to_bytes(4, "little") + triangles.tobytes())
    return path


@pytest.fixture(scope="module")
def stock():
    return mujoco.MjModel.from_xml_path(str(robot_mjcf_path()))


@pytest.fixture(scope="module")
def decimated(tmp_path_factory):
    """The stock arm with decimated visual meshes, and the settings used."""
    config = load_config(overrides=[f"render.cache_dir={tmp_path_factory.mktemp('cache')}"])
    spec = mujoco.MjSpec.from_file(str(robot_mjcf_path()))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SO101_CACHE", raising=False)
        apply_visual_meshes(spec, config)
        names = [mesh.name for mesh in spec.meshes]
        apply_visual_meshes(spec, config)
    assert [mesh.name for mesh in spec.meshes] == names, "applying twice must change nothing"
    return spec.compile(), config


def visual_faces(model):
    return sum(
        model.mesh_facenum[model.geom_dataid[g]]
        for g in range(model.ngeom)
        if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH and model.geom_group[g] == 2
    )


@pytest.mark.parametrize("cell", [0.001, 0.003, 0.01])
def test_clustering_moves_no_corner_further_than_the_diagonal_of_a_cell(ball, cell):
    triangles = read_stl(ball)
    vertices, faces = cluster(triangles, cell)
    distance, _ = cKDTree(vertices).query(triangles.reshape(-1, 3))
    assert distance.max() <= np.sqrt(3) * cell
    assert len(faces) <= len(triangles)
    assert faces.min() == 0 and faces.max() < len(vertices)


def test_clustering_leaves_no_degenerate_and_no_double_triangle(ball):
    _, faces = cluster(read_stl(ball), 0.004)
    assert all(len(set(face)) == 3 for face in faces.tolist())
    assert len({tuple(sorted(face)) for face in faces.tolist()}) == len(faces)


def test_tiny_cells_keep_every_triangle_and_its_orientation(ball):
    triangles = read_stl(ball)
    vertices, faces = cluster(triangles, 1e-6)
    kept = vertices[faces]
    whole = triangles[np.linalg.norm(np.cross(*(triangles[:, 1:] - triangles[:, :1]).swapaxes(0, 1)), axis=1) > 1e-12]
    assert len(kept) == len(whole)
    normals = np.cross(kept[:, 1] - kept[:, 0], kept[:, 2] - kept[:, 0])
    assert (np.sum(normals * kept.mean(axis=1), axis=1) > 0).all()  # outwards, as in the file


def test_a_decimated_ball_is_smaller_and_still_the_ball(ball, config):
    vertices, faces = decimated_mesh(ball, config)
    keep = config.render.meshes.keep_fraction
    assert len(faces) <= 1.05 * keep * len(cluster(read_stl(ball), config.render.meshes.cluster_m)[1])
    assert np.abs(np.linalg.norm(vertices, axis=1) - 0.02).max() < config.render.meshes.cluster_m
    assert vertices.dtype == np.float32 and faces.dtype == np.int32


def test_the_same_file_and_settings_give_the_same_bytes_from_and_without_the_cache(ball, config, tmp_path, monkeypatch):
    made = decimated_mesh(ball, config)
    read = decimated_mesh(ball, config)
    monkeypatch.setenv("SO101_CACHE", str(tmp_path / "other"))
    again = decimated_mesh(ball, config)
    for other in (read, again):
        assert made[0].tobytes() == other[0].tobytes() and made[1].tobytes() == other[1].tobytes()


def test_the_cache_is_used_and_a_damaged_entry_is_made_again(ball, config):
    vertices, _ = decimated_mesh(ball, config)
    (entry,) = (cache_dir(config) / "meshes").iterdir()
    np.savez(entry, vertices=vertices + 1, faces=np.array([[0, 1, 2]], np.int32))
    assert decimated_mesh(ball, config)[0][0, 0] == pytest.approx(vertices[0, 0] + 1)
    for damage in (b"", b"not a zip", entry.read_bytes()[:100]):
        entry.write_bytes(damage)
        assert np.array_equal(decimated_mesh(ball, config)[0], vertices)
        assert np.array_equal(np.load(entry)["vertices"], vertices)


def test_other_settings_or_another_file_do_not_meet_in_the_cache(ball, config, tmp_path):
    coarse = load_config(overrides=["render.meshes.cluster_m=0.006"])
    moved = tmp_path / "moved.stl"
    content = bytearray(ball.read_bytes())
    content[100] ^= 1
    moved.write_bytes(content)
    for path, settings in ((ball, config), (ball, coarse), (moved, config)):
        decimated_mesh(path, settings)
    assert len(list((cache_dir(config) / "meshes").iterdir())) == 3


def test_a_cache_that_cannot_be_written_is_done_without(ball, tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("a file where the cache folder should be")
    monkeypatch.setenv("SO101_CACHE", str(blocker))
    assert len(decimated_mesh(ball, load_config())[1]) > 100


def test_the_model_keeps_its_collision_meshes_and_loses_visual_faces(stock, decimated):
    before, after = stock, decimated[0]
    assert visual_faces(before) > 300_000
    assert visual_faces(after) < 25_000
    collision = [g for g in range(before.ngeom) if before.geom_group[g] == 3]
    for g in collision:
        if before.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH:
            a, b = before.geom_dataid[g], after.geom_dataid[g]
            assert before.mesh(a).name == after.mesh(b).name
            assert before.mesh_facenum[a] == after.mesh_facenum[b]
    assert np.array_equal(before.body_mass, after.body_mass) and np.array_equal(before.body_inertia, after.body_inertia)


def test_visual_parts_stay_where_they_were(stock, decimated):
    (after, config), before = decimated, stock

    def box_of(model, g):
        data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        mesh = model.geom_dataid[g]
        start, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        points = model.mesh_vert[start : start + count] @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g]
        return np.stack([points.min(0), points.max(0)])

    for g in range(before.ngeom):
        if before.geom_group[g] == 2:
            assert np.abs(box_of(before, g) - box_of(after, g)).max() < 2 * config.render.meshes.cluster_m


def test_decimation_can_be_off():
    spec = bake(load_config(overrides=["render.meshes.decimate=false"]))
    assert not [mesh.name for mesh in spec.meshes if mesh.name.endswith(SUFFIX)]


@pytest.mark.parametrize(
    "content",
    [b"", b"solid ascii\nfacet", bytes(84), bytes(80) + b"\x09\0\0\0" + bytes(50)],
    ids=["empty", "text", "no triangle", "cut short"],
)
def test_what_is_no_binary_stl_is_refused(tmp_path, config, content):
    path = tmp_path / "part.stl"
    path.write_bytes(content)
    with pytest.raises(SimulationError, match=r"part\.stl is not a whole binary STL file: .* convert it"):
        decimated_mesh(path, config)


def test_a_missing_mesh_and_a_cell_larger_than_the_part_are_explained(tmp_path, ball):
    with pytest.raises(SimulationError, match=r"cannot read the mesh .*absent\.stl .*reinstall"):
        decimated_mesh(tmp_path / "absent.stl", load_config())
    with pytest.raises(SimulationError, match=r"no triangle is left .*cluster_m is 0\.1 m.*make it smaller"):
        decimated_mesh(ball, load_config(overrides=["render.meshes.cluster_m=0.1"]))


def test_the_stock_model_is_where_bake_says():
    assert robot_mjcf_path().as_posix().endswith(ROBOT_MJCF.as_posix())
