"""Visual meshes light enough for a software renderer.

The stock STL files are CAD exports: 322,000 triangles, most in rounded edges and threads that no camera resolves. Two
steps, each doing what the other cannot: clustering merges everything inside a cell, however badly the triangles are
connected (edge collapse alone gets stuck there), then edge collapse spends what is left where the shape bends.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import mujoco
import numpy as np

from so101.config import Config
from so101.config.render import MeshConfig
from so101.errors import SimulationError
from so101.files import write_atomic

CACHE_VARIABLE = "SO101_CACHE"
CACHE_VERSION = 1  # raise it when the algorithm changes
VISUAL_GROUP = 2
SUFFIX = "_visual"
_STL_HEADER_BYTES = 80
_STL_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


def cache_dir(config: Config) -> Path:
    """Where derived files are kept: the environment variable SO101_CACHE, else render.cache_dir."""
    return Path(os.environ.get(CACHE_VARIABLE) or config.render.cache_dir).expanduser()


def read_stl(path: Path | str) -> np.ndarray:
    """(F, 3, 3) corners of the triangles of a binary STL file, in the units of the file.

    Raises:
        SimulationError: unreadable, or not a whole binary STL file.
    """
    return _triangles(_read_bytes(path), path)


def decimated_mesh(path: Path | str, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Vertices (V, 3) float32 and faces (F, 3) int32 of a binary STL file, decimated as render.meshes says.

    The result is cached by the bytes of the file and the settings; a damaged cache entry is made again, and a cache
    that cannot be written is done without.

    Raises:
        SimulationError: the file cannot be read, or nothing is left of it.
    """
    settings = config.render.meshes
    content = _read_bytes(path)
    key = f"{CACHE_VERSION} {settings.cluster_m!r} {settings.keep_fraction!r} {settings.aggressiveness!r} ".encode()
    cached = cache_dir(config) / "meshes" / f"{hashlib.sha256(key + content).hexdigest()[:32]}.npz"
    mesh = _load(cached)
    if mesh is None:
        mesh = _collapse_edges(*cluster(_triangles(content, path), settings.cluster_m), settings)
        if len(mesh[1]) == 0:
            raise SimulationError(
                f"{path}: no triangle is left after clustering; render.meshes.cluster_m is {settings.cluster_m} m, as "
                "large as the part: make it smaller"
            )
        _store(cached, mesh)
    return mesh


def cluster(triangles: np.ndarray, cell_m: float) -> tuple[np.ndarray, np.ndarray]:
    """Merge all corners (F, 3, 3) that share a cubic cell into their mean; triangles that collapse or repeat go.

    Returns:
        vertices (V, 3) and faces (G, 3) with G <= F; every corner moved less than the diagonal of a cell.
    """
    corners = triangles.reshape(-1, 3).astype(np.float64)
    cells = np.floor((corners - corners.min(axis=0)) / cell_m + 0.5).astype(np.int64)
    _, owner, count = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    owner = owner.ravel()
    vertices = np.stack([np.bincount(owner, corners[:, axis]) for axis in range(3)], axis=1) / count[:, None]
    faces = owner.reshape(-1, 3)
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (a != c)]
    _, first = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)
    return vertices, faces[np.sort(first)]


def apply_visual_meshes(spec: mujoco.MjSpec, config: Config) -> None:
    """Replace the meshes of all visual geoms (group 2) by decimated ones; collision geoms keep theirs."""
    settings = config.render.meshes
    if not settings.decimate:
        return
    for geom in spec.geoms:
        if geom.type != mujoco.mjtGeom.mjGEOM_MESH or geom.group != VISUAL_GROUP or geom.meshname.endswith(SUFFIX):
            continue
        name = geom.meshname + SUFFIX
        if spec.mesh(name) is None:
            stock = spec.mesh(geom.meshname)
            vertices, faces = decimated_mesh(_mesh_path(spec, stock), config)
            spec.add_mesh(
                name=name, uservert=vertices.ravel(), userface=faces.ravel(), scale=stock.scale, refpos=stock.refpos,
                refquat=stock.refquat, smoothnormal=settings.smooth_normals,
                inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,  # no longer closed: it has no volume
            )  # fmt: skip
        geom.meshname = name
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used and mesh.name + SUFFIX in used:
            spec.delete(mesh)


def _mesh_path(spec: mujoco.MjSpec, mesh: mujoco.MjsMesh) -> Path:
    return Path(spec.modelfiledir or ".") / (spec.meshdir or "") / mesh.file


def _read_bytes(path: Path | str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SimulationError(f"cannot read the mesh {path} ({error.strerror}); reinstall its package") from None


def _triangles(content: bytes, path: Path | str) -> np.ndarray:
    body = content[_STL_HEADER_BYTES:]
    count = int.from_bytes(body[:4], "little")
    if len(body) != 4 + count * _STL_TRIANGLE.itemsize or count == 0:
        raise SimulationError(
            f"{path} is not a whole binary STL file: {len(content)} bytes, {count} triangles declared; "
            "convert it to binary STL, or reinstall the package it is part of"
        )
    return np.frombuffer(body, _STL_TRIANGLE, count, offset=4)["corners"]


def _collapse_edges(vertices: np.ndarray, faces: np.ndarray, settings: MeshConfig) -> tuple[np.ndarray, np.ndarray]:
    vertices, faces = vertices.astype(np.float32), faces.astype(np.int32)
    if settings.keep_fraction < 1 and len(faces):
        import fast_simplification

        vertices, faces = fast_simplification.simplify(
            vertices, faces, target_reduction=1 - settings.keep_fraction, agg=settings.aggressiveness
        )
    return np.ascontiguousarray(vertices, np.float32), np.ascontiguousarray(faces, np.int32)


def _load(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            return file["vertices"], file["faces"]
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _store(path: Path, mesh: tuple[np.ndarray, np.ndarray]) -> None:
    try:
        write_atomic(path, lambda file: np.savez(file, vertices=mesh[0], faces=mesh[1]))
    except OSError:
        pass  # a read-only or full home: it costs a second next time, no more
