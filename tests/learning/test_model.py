import dataclasses

import pytest
import torch

from so101.learning.model import Architecture, ChunkNetwork, FlowHead, point_loss

SHAPE = Architecture("flow", (8, 8, 8), 32, 1, 0.0, cameras=2, joints=6, horizon=4, tasks=2, points=3)
HEADS = ("flow", "regression")


def inputs(batch=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.rand(2, batch, 3, 48, 64, generator=generator)
    return pictures, torch.randn(batch, 6, generator=generator), torch.arange(batch) % 2


def make(head="flow"):
    torch.manual_seed(0)
    return ChunkNetwork(dataclasses.replace(SHAPE, head=head))


def act(network, *given, seed=0):
    noise = torch.randn(given[1].shape[0], 4, 6, generator=torch.Generator().manual_seed(seed))
    return network.act(*given, 4, noise)


@pytest.mark.parametrize("head", HEADS)
def test_every_sample_of_a_batch_is_on_its_own(head):
    network = make(head).eval()
    pictures, joints, task = inputs()
    together = network.encode(pictures, joints, task)
    alone = network.encode(pictures[:, 2:3], joints[2:3], task[2:3])
    torch.testing.assert_close(together[2:3], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_pictures_joints_and_task_all_matter(head):
    network = make(head).eval()
    pictures, joints, task = inputs()
    base = act(network, pictures, joints, task)
    assert base.shape == (5, 4, 6)
    for changed in ((1 - pictures, joints, task), (pictures, joints + 1, task), (pictures, joints, 1 - task)):
        assert (act(network, *changed) - base).abs().max() > 1e-4


def test_equal_noise_gives_equal_chunks_and_other_noise_others():
    network, given = make().eval(), inputs()
    torch.testing.assert_close(act(network, *given), act(network, *given), rtol=0, atol=0)
    assert (act(network, *given, seed=1) - act(network, *given)).abs().max() > 1e-3


def test_the_velocity_of_one_chunk_is_followed_to_that_chunk(monkeypatch):
    """The field that carries all noise to `goal` is (goal - x) / (1 - t)."""
    goal = torch.arange(24.0).reshape(1, 4, 6)
    head = FlowHead(SHAPE)
    monkeypatch.setattr(head, "velocity", lambda x, t, encoded: (goal - x) / (1 - t)[:, None, None])
    for steps in (1, 6):  # its paths are straight
        chunk = head.act(torch.zeros(1, 32), steps, torch.randn(1, 4, 6))
        torch.testing.assert_close(chunk, goal, atol=1e-4, rtol=0)


@pytest.mark.parametrize("head", HEADS)
def test_two_chunks_are_learned_from_two_pictures(head):
    network = make(head)
    pictures, joints, task = inputs(2)
    joints, task = torch.zeros(2, 6), torch.zeros(2, dtype=torch.long)  # only the pictures tell them apart
    goal = torch.stack([torch.ones(4, 6), -torch.ones(4, 6)])
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    for step in range(300):
        generator = torch.Generator().manual_seed(step)
        loss = network.head.losses(network.encode(pictures, joints, task), goal, 8, generator).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (act(network.eval(), pictures, joints, task) - goal).abs().mean() < 0.25


def test_points_that_nobody_knows_cost_nothing_and_give_no_gradient():
    told = torch.ones(2, 3, 3, requires_grad=True)
    points = torch.zeros(2, 3, 3)
    points[1] = torch.nan
    loss = point_loss(told, points)
    assert loss.item() == 1.0
    loss.backward()
    assert told.grad[1].abs().max() == 0 and told.grad[0].abs().min() > 0
    assert point_loss(told, torch.full((2, 3, 3), torch.nan)).item() == 0
    assert point_loss(torch.ones(2, 0, 3), torch.zeros(2, 0, 3)).item() == 0


def test_json_keeps_the_shape():
    assert Architecture.from_json(SHAPE.to_json()) == SHAPE
