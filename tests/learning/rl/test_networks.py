from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from so101.learning.rl.networks import Actor, Critics, Standardise


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_batched_critics_are_so_many_single_ones(layer_norm):
    torch.manual_seed(0)
    critics = Critics(5, 2, [8, 6], count=3, layer_norm=layer_norm)
    for gain in critics.gains:
        nn.init.uniform_(gain, 0.5, 1.5)
    obs, action = torch.randn(11, 5), torch.randn(11, 2)
    together = critics(obs, action)
    assert together.shape == (3, 11)
    for number in range(3):
        x = torch.cat((obs, action), 1)
        for layer in range(3):
            x = x @ critics.weights[layer][number] + critics.biases[layer][number]
            if layer < 2:
                if layer_norm:
                    x = (x - x.mean(1, keepdim=True)) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
                    x = x * critics.gains[layer][number] + critics.shifts[layer][number]
                x = x.relu()
        torch.testing.assert_close(together[number], x[:, 0])
    torch.testing.assert_close(critics(obs, action, torch.tensor([2, 0])), together[[2, 0]])


def test_critics_begin_different():
    critics = Critics(5, 2, [8], count=2, layer_norm=True)
    values = critics(torch.randn(4, 5), torch.randn(4, 2))
    assert not torch.allclose(values[0], values[1])


def test_the_density_of_an_action_is_that_of_a_squashed_gaussian():
    torch.manual_seed(1)
    actor = Actor(4, 3, [16], (-5.0, 2.0)).double()
    obs = torch.randn(50, 4, dtype=torch.double)
    action, log_prob, greedy = actor.sample(obs)
    mean, log_std = actor.distribution(obs)
    squashed = TransformedDistribution(Independent(Normal(mean, log_std.exp()), 1), [TanhTransform()])
    torch.testing.assert_close(log_prob, squashed.log_prob(action), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(greedy, torch.tanh(mean))


def test_the_density_stays_finite_far_out():
    actor = Actor(1, 2, [4], (-5.0, 2.0))
    with torch.no_grad():
        actor.head.bias[:2] = 60.0
    _, log_prob, _ = actor.sample(torch.zeros(3, 1))
    assert torch.isfinite(log_prob).all()


def test_observations_are_standardised_and_clipped():
    standardise = Standardise(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 0.5]), clip=10.0)
    seen = standardise(torch.tensor([[3.0, 2.0], [1.0, 100.0]]))
    assert seen.tolist() == [[1.0, 0.0], [0.0, 10.0]]
