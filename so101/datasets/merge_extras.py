"""What datasets of this program say beside LeRobot's files, carried into a merge under the new episode numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from so101.datasets.lerobot_files import read_json_lines, read_parquet
from so101.datasets.lerobot_v21 import OBJECTS, RANDOMISATION
from so101.datasets.lerobot_write import write_json_lines, write_tables
from so101.datasets.merge_plan import MergePlan
from so101.datasets.recordings import START_POSES

_POSE = pa.list_(pa.float32())  # of no fixed length: Arrow writes empty cells of those, and cannot read them


def carry_extras(meta: Path, plan: MergePlan) -> None:
    """Write the files that at least one source has. Episodes of others have no line, and empty cells."""
    folders = {source.name: source.data.path / "meta" for source in plan.sources}
    for name in (START_POSES, RANDOMISATION):
        rows = {
            source: {row.get("episode_index"): row for row in read_json_lines(folder / name)}
            for source, folder in folders.items()
            if (folder / name).is_file()
        }
        lines = [
            {**rows[episode.source][episode.origin], "episode_index": index}
            for index, episode in enumerate(plan.episodes)
            if episode.origin in rows.get(episode.source, {})
        ]
        if lines:
            write_json_lines(meta / name, lines)
    tables = {s: read_parquet(folder / OBJECTS) for s, folder in folders.items() if (folder / OBJECTS).is_file()}
    if tables:
        write_tables(meta / OBJECTS, [_objects(plan, tables)])


def _objects(plan: MergePlan, tables: dict[str, pa.Table]) -> pa.Table:
    """A row a frame; poses are null where nobody knows them."""
    numbers = {source: np.asarray(table["episode_index"]) for source, table in tables.items()}
    parts = []
    for index, episode in enumerate(plan.episodes):
        counts = {
            "episode_index": pa.array(np.full(episode.length, index)),
            "frame_index": pa.array(range(episode.length)),
        }
        known = {}
        if episode.source in tables:
            of_it = np.flatnonzero(numbers[episode.source] == episode.origin)
            if len(of_it) > episode.rows.max():
                table = tables[episode.source].take(pa.array(of_it[episode.rows]))
                known = {name: table[name].cast(_POSE) for name in table.column_names if name not in counts}
        parts.append(pa.table({**counts, **known}))
    return pa.concat_tables(parts, promote_options="default").combine_chunks()
