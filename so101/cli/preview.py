"""`./twin preview`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from so101.cli.family_options import FamilySettings
from so101.cli.options import with_options
from so101.errors import ConfigError

EPILOG = "Example: ./twin preview --state 24.4,-105.8,95.8,77.1,59.2,25.1 --brick .33,-.07 --out-dir runs/preview"
_REST = "24.4,-105.8,95.8,77.1,59.2,25.1"  # a folded arm, as one was measured
_DEFAULTS = {"bowl": ".30,.09", "brick": ".33,-.07"}


@with_options(FamilySettings)
def preview(
    settings: FamilySettings,
    state: Annotated[
        str, typer.Option(metavar="DEG,...", help="Six LeRobot numbers: five angles in degrees, the jaw 0 to 100.")
    ] = _REST,
    task: Annotated[
        str, typer.Option(metavar="TASK", help="Its family's scene and cameras.")
    ] = "so101_tower_cube_in_bowl",
    bowl: Annotated[str, typer.Option(metavar="X,Y", help="Where the bowl stands, m; none: not there.")] = _DEFAULTS[
        "bowl"
    ],
    brick: Annotated[str, typer.Option(metavar="X,Y", help="Where the brick stands, m; none: not there.")] = _DEFAULTS[
        "brick"
    ],
    width: Annotated[int, typer.Option(min=16, max=1280, metavar="PX", help="Of the pictures.")] = 320,
    photo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CAMERA=]FILE",
            help="A real picture of this camera (overhead when not said), drawn beside the twin's and blended with it; "
            "repeatable.",
        ),
    ] = None,
    blend: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the twin in the blend.")] = 0.5,
    out_dir: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the pictures go.")] = Path("runs/preview"),
) -> None:
    """Draw what wrist and overhead camera see of an arm in these joints; beside a photo it shows what differs."""
    from so101.families.preview import beside, blended, draw_views, joints_of, read_photo, state_of, write_png

    console = Console()
    family = settings.task(task).family
    q, clamped = joints_of(family, numbers(state, "--state"))
    wanted = {"bowl": bowl, "brick": brick}
    slots = family.declaration.slots
    places = {
        name: tuple(numbers(text, f"--{name}", 2))
        for name, text in wanted.items()
        if text != "none" and (name in slots or text != _DEFAULTS[name])
    }
    views = draw_views(family, state_of(family, q, places), width)
    for joint in clamped:
        console.print(
            f"{joint.joint} is at {joint.given:g}; the model ends at {joint.drawn:.1f}: drawn there",
            highlight=False,
        )
    written = []
    for camera, picture in views.items():
        written.append(out_dir / f"{camera}_cam.png")
        write_png(written[-1], picture)
    for camera, path in photos(photo or [], list(views)):
        drawn = views[camera]
        real = read_photo(path, drawn.shape[1], drawn.shape[0])
        for name, picture in (("beside", beside(real, drawn)), ("blend", blended(real, drawn, blend))):
            written.append(out_dir / f"{camera}_{name}.png")
            write_png(written[-1], picture)
    console.print("written: " + ", ".join(str(path) for path in written), soft_wrap=True, highlight=False, markup=False)


def numbers(text: str, option: str, count: int = 6) -> list[float]:
    """`count` numbers with commas between.

    Raises:
        ConfigError: they are not.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count:
        raise ConfigError(f"{option} is {text!r}; write {count} numbers with commas between, without blanks")
    return values


def photos(given: list[str], cameras: list[str]) -> list[tuple[str, Path]]:
    """Camera and file of each --photo.

    Raises:
        ConfigError: no such camera.
    """
    from so101.errors import did_you_mean

    chosen = []
    for text in given:
        camera, sign, path = text.partition("=")
        if not sign:
            camera, path = "overhead", text
        if camera not in cameras:
            raise ConfigError(
                f"--photo {text!r}: there is no camera {camera!r}; the family has {', '.join(cameras) or 'none'}"
                f"{did_you_mean(camera, cameras)}"
            )
        chosen.append((camera, Path(path)))
    return chosen
