"""Every check of a dataset: its name, what holds when it passes, and what to do when it does not."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """`what` completes "this dataset: ..."; `fix` is the next step."""

    what: str
    fix: str


_AGAIN = "write the dataset again: ./twin dataset --fresh, or the tool that made it"
_CONVERT = (
    "convert it: ./twin merge FOLDER --out OTHER reads v3.0 and writes v2.1, and so does Isaac-GR00T's "
    "scripts/lerobot_conversion/convert_v3_to_v2.py"
)

CHECKS: dict[str, Check] = {
    # files
    "version": Check("is LeRobot v2.1, which GR00T reads", _CONVERT),
    "info": Check(
        "info.json has all keys, of the right types", "take info.json from a dataset that LeRobot v2.1 wrote"
    ),
    "features": Check("state, action and counters have LeRobot's types and shapes", _AGAIN),
    "jsonl": Check(
        "jsonl files hold one JSON object a line, no blank line", "delete blank lines and repair the line that is named"
    ),
    "episode_index": Check("episodes count 0, 1, 2, ... in order", "number files and lines anew from 0 without gaps"),
    "totals": Check("the counts in info.json are those of the files", "correct info.json to what the files say"),
    "strays": Check("every data and video file belongs to an episode", "remove the file, LeRobot would load it"),
    # rows
    "columns": Check("each episode is one parquet file with exactly the columns of info.json", _AGAIN),
    "length": Check(
        "parquet rows and the length in episodes.jsonl agree", "set length to the number of rows, or " + _AGAIN
    ),
    "finite": Check(
        "no empty cell, NaN or infinity (they make the loss NaN)", "drop or record again the episodes that are named"
    ),
    "counters": Check("frame_index, episode_index and index count on", _AGAIN),
    "fps": Check(
        "info.json, rows, videos and the control loop have one rate",
        "set fps to the true rate and timestamps to frame_index / fps; "
        "to change the rate: ./twin merge FOLDER --resample 30 --out OTHER",
    ),
    "timestamps": Check(
        "timestamps are frame_index / fps, from 0 in each episode",
        "set timestamp to frame_index / fps in the parquet files",
    ),
    "tasks": Check(
        "each row has a task whose text is not empty and is the episode's", "repair tasks.jsonl and task_index"
    ),
    # videos
    "videos": Check("each camera has a readable video of each episode", "render or copy the video that is named again"),
    "video_frames": Check(
        "videos have a frame a row, none lost",
        "encode the video again from all its frames, or cut rows and length to it",
    ),
    "video_times": Check("frames are at frame_index / fps", "encode the video again at constant rate"),
    "video_format": Check("size, codec and pixel format are those in info.json", "correct info.json, or encode alike"),
    "codec": Check(
        "GR00T's decoders read the codec",
        "encode as h264: ./twin merge FOLDER --encode --out OTHER",
    ),
    "frozen_camera": Check(
        "no camera stands still while the arm moves", "look at the video; drop or record the episode again"
    ),
    # statistics
    "episode_stats": Check(
        "episodes_stats.jsonl is what the data give", "write it again: it is stale or of other data (./twin dataset)"
    ),
    "stats": Check(
        "stats.json is what the data give", "delete meta/stats.json and meta/relative_stats.json; GR00T makes them anew"
    ),
    "relative_stats": Check(
        "relative_stats.json is what the data give, at the horizon of the training",
        "delete meta/relative_stats.json; GR00T makes it anew",
    ),
    # how GR00T sees it
    "modality": Check(
        "modality.json cuts state and action as dataset.yaml does", "copy meta/modality.json of ./twin dataset"
    ),
    "cameras": Check(
        "the cameras of dataset.yaml are in info.json, modality.json and videos/",
        "add the camera's entry, or train without it: --set 'dataset.cameras={ego: wrist, side: front}'",
    ),
    "language": Check(
        "modality.json says where the task text is", "add annotation: {LANGUAGE_KEY: {original_key: task_index}}"
    ),
    "horizon": Check(
        "episodes are at least as long as an action chunk", "leave short episodes out; GR00T learns nothing from them"
    ),
    # what the numbers mean
    "joints": Check(
        "joints are named, and in LeRobot's order", "order the columns as robot.yaml and name them JOINT.pos"
    ),
    "units": Check(
        "state and action are in the unit of dataset.units",
        "say what it is: --set dataset.units.body=normalized; "
        "or convert it: ./twin merge FOLDER --to-units degrees --out OTHER",
    ),
    "duplicates": Check(
        "no episode is there twice", "leave the copy out; to weigh episodes: ./twin merge --materialise-weights"
    ),
    "action_copies_state": Check(
        "actions are commands, no copy of the measured joints",
        "record the leader's or controller's targets; a policy trained on a copy learns to stand still",
    ),
    "motion": Check("the arm moves, and its state follows", "look at the episode; drop it, or repair the recorder"),
    "gripper": Check(
        "the gripper opens or closes in each episode", "look at the episode; is the jaw recorded and commanded?"
    ),
}
