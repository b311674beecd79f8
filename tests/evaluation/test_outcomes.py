import numpy as np
import pytest

from so101.datasets.demo import Demo, load_demo, load_demo_header, save_demo
from so101.errors import DataError
from so101.evaluation.outcomes import OutcomeReader, Share
from so101.evaluation.statistics import wilson_interval
from so101.pipeline.run_folder import RunFolder


def demo(index, cause="", *, strict=None):
    strict = not cause if strict is None else strict
    return Demo(
        index=index, seed=index, task="t", fps=30.0, q_target=np.zeros((2, 6)), q=np.zeros((2, 6)),
        objects={"o": np.zeros((2, 7))}, physics_state=np.zeros(3), cause=cause, strict=strict, geometric=True,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path)


def test_a_header_says_what_the_demo_says(run):
    path = save_demo(run.generated, demo(3, "slipped"))
    header, whole = load_demo_header(path), load_demo(path)
    assert header.pop("objects") == list(whole.objects)
    assert header == {name: getattr(whole, name) for name in header} and header["cause"] == "slipped"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="not a demo file or truncated"):
        load_demo_header(path)


def test_an_empty_folder_has_no_outcomes(run):
    outcomes = OutcomeReader(run).read()
    assert (outcomes.succeeded, outcomes.causes) == (Share(0, 0), [])
    assert outcomes.succeeded.interval == (0.0, 1.0)


def test_shares_are_of_all_attempts_and_of_all_replays(run):
    for index, cause in enumerate(["", "", "missed", "missed", "dropped", ""]):
        save_demo(run.failed if cause else run.generated, demo(index, cause))
    for index in range(2):
        save_demo(run.verified, demo(index))
    save_demo(run.rejected, demo(5, "slipped"))
    outcomes = OutcomeReader(run).read()
    assert outcomes.succeeded == Share(3, 6) and outcomes.verified == Share(2, 3)
    assert outcomes.causes == [("missed", Share(2, 6)), ("dropped", Share(1, 6))]
    assert outcomes.replay_causes == [("slipped", Share(1, 3))]
    assert outcomes.succeeded.interval == wilson_interval(3, 6)


def test_read_as_it_grows_or_at_once_it_is_the_same(run):
    growing = OutcomeReader(run)
    for index in range(12):
        save_demo(run.failed if index % 3 == 0 else run.generated, demo(index, "missed" if index % 3 == 0 else ""))
        growing.read()
        if index % 5 == 4:  # generation takes back what finished out of turn
            (run.generated / f"demo_{index:06d}.npz").unlink(missing_ok=True)
    assert growing.read() == OutcomeReader(run).read()


def test_what_counts_is_what_the_run_keeps(run):
    save_demo(run.generated, demo(0, "seated badly", strict=False))
    assert OutcomeReader(run, "strict").read().succeeded == Share(0, 1)
    assert OutcomeReader(run, "geometric").read().succeeded == Share(1, 1)


def test_a_damaged_file_does_not_count(run):
    save_demo(run.generated, demo(0))
    (run.generated / "demo_000001.npz").write_bytes(b"junk")
    assert OutcomeReader(run).read().succeeded == Share(1, 1)
