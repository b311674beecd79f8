"""Training of the embedded policy. A run that was killed goes on at its last saved state, with the same batches."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from so101.config import Config
from so101.errors import DataError
from so101.files import remove_temporaries, write_atomic, write_text
from so101.learning.batches import Batch, Samples, batches
from so101.learning.checkpoint import POLICY, TrainedPolicy, save_policy, to_device
from so101.learning.dataset import Dataset
from so101.learning.frames import FrameCache
from so101.learning.model import Architecture, ChunkNetwork, point_loss
from so101.learning.normalisation import Normalisation, fit_normalisation
from so101.learning.state_file import state_facts
from so101.pipeline.progress import Reporter
from so101.policies.base import PolicyError
from so101.policies.checkpoint import find_checkpoint
from so101.policies.interface import PolicyInterface
from so101.tracking import NullRun

STATE, LOG = "state.safetensors", "log.csv"
_CHECK_BATCHES = 4  # of the episodes that are held out


@dataclass
class Trainer:
    """Trains into `folder`, which becomes ``models/<role>``; its own files are in ``folder/training``.

    Args:
        weights: per episode its share of what is learned; None: by frames.
        begin_with: a trained policy whose weights and normalisation are begun with.

    Raises:
        DataError: the folder holds a training of something else, or `begin_with` is of another shape.
    """

    config: Config
    dataset: Dataset
    frames: FrameCache
    folder: Path
    weights: dict[int, float] | None = None
    begin_with: tuple[TrainedPolicy, ChunkNetwork] | None = None
    step: int = field(default=0, init=False)
    figures: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        settings = self.settings = self.config.training.embedded
        horizon = self.config.training.action_horizon
        self.own = self.folder / "training"
        self.own.mkdir(parents=True, exist_ok=True)
        remove_temporaries(self.own)
        learned, checked = split_episodes(len(self.dataset.states), settings.held_out_share)
        self.normalisation = _normalisation(self.config, self.dataset, learned, horizon)
        if self.begin_with is not None:
            self.normalisation = _widened(self.begin_with[0].normalisation, self.normalisation)
        make = (self.dataset, self.frames, self.normalisation, settings, horizon)
        self.samples = Samples(*make, learned, self.weights)
        self.held_out = Samples(*make, checked) if checked else None
        self.architecture = Architecture(
            head=settings.model.head,
            channels=settings.model.channels,
            width=settings.model.width,
            blocks=settings.model.blocks,
            dropout=settings.model.dropout,
            cameras=len(self.dataset.cameras),
            joints=self.dataset.states[0].shape[1],
            horizon=horizon,
            tasks=len(self.dataset.tasks),
            points=len(self.dataset.point_objects),
        )
        torch.manual_seed(settings.seed)
        self.network, self.average = ChunkNetwork(self.architecture), ChunkNetwork(self.architecture)
        if self.begin_with is not None:
            _check_same_shape(self, self.begin_with[0])
            self.network.load_state_dict(_fitting(self.begin_with[1].state_dict(), self.network.state_dict()))
        self.device = to_device(self.network, settings.device)
        self.average.to(self.device).load_state_dict(self.network.state_dict())
        self.network.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(),
            lr=settings.optimizer.learning_rate,
            weight_decay=settings.optimizer.weight_decay,
            fused=True,
        )
        self._resume()

    @property
    def identity(self) -> dict[str, Any]:
        """What a training is a training of; one that goes on must agree."""
        free = {"save_minutes", "log_steps", "keep_every_steps", "device", "max_steps", "acting"}
        settings = {k: v for k, v in self.settings.model_dump(mode="json").items() if k not in free}
        return {
            "dataset": self.dataset.fingerprint,
            "settings": settings,
            "max_steps": self.settings.max_steps,
            "horizon": self.config.training.action_horizon,
            "begin_with": None if self.begin_with is None else self.begin_with[0].training["weights_digest"],
            "weights": None if self.weights is None else {str(k): v for k, v in self.weights.items()},
        }

    def run(self, reporter: Reporter, run: NullRun, clock: Any) -> dict[str, float]:
        """Train to the end; the last figures. `clock` gives s, as `time.monotonic`."""
        settings = self.settings
        reporter.start("train", settings.max_steps, self.step, unit="steps")
        saved, sums, count, last = clock(), {}, 0, self.figures
        self.network.train()
        for batch in batches(self.samples, self.step, settings.max_steps):
            figures = self._learn(batch)
            self.step += 1
            sums = {key: sums.get(key, 0.0) + value for key, value in figures.items()}
            count += 1
            final = self.step == settings.max_steps
            if self.step % settings.log_steps == 0 or final:
                last = {key: value / count for key, value in sums.items()} | {"learning_rate": self._rate(self.step)}
                if self.held_out is not None and (self.step % (10 * settings.log_steps) == 0 or final):
                    last |= self._check()
                if not math.isfinite(last["loss"]):
                    raise DataError(
                        f"the loss is {last['loss']} at step {self.step}; lower "
                        "training.embedded.optimizer.learning_rate, or look at the data with "
                        f"`./twin dataset --check {self.dataset.folder}`"
                    )
                self.figures = last
                run.log(last, step=self.step)
                self._log(last)
                reporter.advance(count, note=f"loss {last['loss']:.4f}")
                sums, count = {}, 0
            keep = settings.keep_every_steps
            if keep and self.step % keep == 0 and not final:
                self.save(self.folder.with_name(f"{self.folder.name}-step{self.step:06d}"), last)
            if clock() - saved > 60 * settings.save_minutes:
                self._save_state(run.id)
                saved = clock()
        self._save_state(run.id)
        self.save(self.folder, last)
        return last

    def save(self, folder: Path, figures: dict[str, float]) -> None:
        """The averaged weights as a policy in `folder`."""
        interface = PolicyInterface(self.config)
        scale, offset = interface.units
        policy = TrainedPolicy(
            architecture=self.architecture,
            normalisation=self.normalisation,
            pictures=self.settings.pictures,
            cameras=self.dataset.cameras,
            tasks=self.dataset.tasks,
            joints=tuple(self.config.robot.joint_names),
            units={"scale_per_rad": scale.tolist(), "offset": offset.tolist()},
            control_hz=self.dataset.fps,
            dataset_fingerprint=self.dataset.fingerprint,
            training={
                "steps": self.step,
                "episodes": len(self.dataset.states),
                "samples": self.step * self.settings.batch_size,
                "weights_digest": _digest(self.average),
                "figures": {key: round(value, 6) for key, value in figures.items()},
            },
        )
        modality = interface.modality_for(self.dataset.cameras, self.config.training.action_horizon)
        save_policy(folder, self.config.task.name, modality, policy, self.average)

    def is_saved(self) -> bool:
        """Whether `folder` holds the policy of these very weights, whole."""
        try:
            folder = find_checkpoint(self.folder.parent, self.folder.name).folder
            told = json.loads((folder / POLICY).read_text(encoding="utf-8"))["training"]["weights_digest"]
        except (PolicyError, OSError, ValueError, KeyError, TypeError):
            return False
        return told == _digest(self.average)

    # one step

    def _learn(self, batch: Batch) -> dict[str, float]:
        settings = self.settings.optimizer
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(self.step)
        losses = self._losses(self.network, batch, self.step, noise=self.settings.augmentation.noise)
        loss = losses["chunk_loss"] + self.settings.objects_weight * losses["object_loss"]
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip_norm)
        self.optimizer.step()
        decay = min(settings.ema, (1 + self.step) / (10 + self.step))  # early averages are of early weights
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.network.parameters()), 1 - decay)
        return {"loss": loss.item(), "gradient_norm": norm.item(), **{k: v.item() for k, v in losses.items()}}

    def _losses(self, network: ChunkNetwork, batch: Batch, number: int, noise: float) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + number)
        pictures = self._pictures(batch, generator, noise)
        move = lambda array: torch.from_numpy(array).to(self.device)  # noqa: E731
        encoded = network.encode(pictures, move(batch.joints), move(batch.task))
        chunk = network.head.losses(encoded, move(batch.chunk), self.settings.model.flow_samples, generator).mean()
        return {"chunk_loss": chunk, "object_loss": point_loss(network.tell_points(encoded), move(batch.points))}

    def _pictures(self, batch: Batch, generator: torch.Generator, noise: float) -> Tensor:
        """(C, B, 3, height, width), channels last in memory."""
        pictures = torch.from_numpy(batch.pictures).to(self.device).float().div_(255)
        gains, shifts = (torch.from_numpy(a).to(self.device)[:, :, None, None] for a in (batch.gains, batch.shifts))
        pictures.mul_(gains).add_(shifts)
        if noise:
            grain = torch.empty(pictures.shape).uniform_(-1, 1, generator=generator).to(self.device)
            pictures.add_(grain, alpha=noise * math.sqrt(3))
        return pictures.permute(0, 1, 4, 2, 3)

    def _rate(self, step: int) -> float:
        settings = self.settings.optimizer
        if step < settings.warmup_steps:
            return settings.learning_rate * (step + 1) / settings.warmup_steps
        done = (step - settings.warmup_steps) / max(1, self.settings.max_steps - settings.warmup_steps)
        low = settings.final_ratio
        return settings.learning_rate * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))

    def _check(self) -> dict[str, float]:
        """The averaged weights on episodes that are not learned from, and how far their chunks are off."""
        self.average.eval()
        losses, errors = [], []
        with torch.inference_mode():
            for number in range(_CHECK_BATCHES):
                batch = self.held_out.draw(number, augment=False)
                losses.append(self._losses(self.average, batch, number, noise=0.0))
                noise = torch.randn(batch.chunk.shape, generator=torch.Generator().manual_seed(number))
                chunk = self.average.act(
                    self._pictures(batch, torch.Generator(), 0.0),
                    torch.from_numpy(batch.joints).to(self.device),
                    torch.from_numpy(batch.task).to(self.device),
                    self.settings.acting.steps,
                    (noise * self.settings.acting.noise).to(self.device),
                )
                error = np.abs(chunk.cpu().numpy() - batch.chunk) * self.normalisation.chunk[1]
                errors.append(error.mean((0, 1)))
        means = {f"held_out_{key}": float(np.mean([loss[key].item() for loss in losses])) for key in losses[0]}
        joints = np.mean(errors, axis=0)
        return means | {
            f"held_out_error_{n}": float(e) for n, e in zip(self.config.robot.joint_names, joints, strict=True)
        }

    # files

    def _log(self, figures: dict[str, float]) -> None:
        path = self.own / LOG
        with open(path, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            for key, value in figures.items():
                writer.writerow([self.step, key, f"{value:.8g}"])

    def _save_state(self, run_id: str | None) -> None:
        tensors: dict[str, Tensor] = {}
        for prefix, network in (("network", self.network), ("average", self.average)):
            tensors |= {f"{prefix}.{key}": value for key, value in network.state_dict().items()}
        names = {id(p): name for name, p in self.network.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            tensors |= {f"optimizer.{key}.{names[id(parameter)]}": value for key, value in state.items()}
        facts = {"step": self.step, "identity": self.identity, "run_id": run_id, "figures": self.figures}
        data = save({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, {"training": json.dumps(facts)})
        write_atomic(self.own / STATE, lambda file: file.write(data))

    def _resume(self) -> None:
        path = self.own / STATE
        facts = read_state(self.folder)
        self.run_id = facts.get("run_id")
        if not facts:
            (self.own / LOG).unlink(missing_ok=True)
            return
        if facts["identity"] != self.identity:
            changed = _changed(facts["identity"], self.identity)
            raise DataError(
                f"{self.folder}: holds a training of something else ({changed}); set it as it was, train under another "
                "--role, or begin anew with --fresh"
            )
        try:
            self._take_over(path)
        except Exception as error:  # of safetensors and PyTorch: tensors that are missing, cut off or of other shapes
            raise DataError(f"{path}: not the state of this training ({error}); begin anew with --fresh") from None
        self.step, self.figures = facts["step"], facts.get("figures", {})
        _cut_log(self.own / LOG, self.step)

    def _take_over(self, path: Path) -> None:
        with safe_open(path, "pt", device=str(self.device)) as file:
            read = {name: file.get_tensor(name) for name in file.keys()}
        for name, value in read.items():
            if not torch.isfinite(value).all():
                raise ValueError(f"{name} holds numbers that are not finite")
        for prefix, network in (("network", self.network), ("average", self.average)):
            part = {k.removeprefix(f"{prefix}."): v for k, v in read.items() if k.startswith(f"{prefix}.")}
            network.load_state_dict(part)
        for name, parameter in self.network.named_parameters():
            if f"optimizer.step.{name}" not in read:
                continue
            state = {key: read[f"optimizer.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")}
            for key in ("exp_avg", "exp_avg_sq"):  # in the memory layout of the parameter, which the optimiser expects
                state[key] = torch.empty_like(parameter).copy_(state[key])
            self.optimizer.state[parameter] = {**state, "step": state["step"].cpu()}


def split_episodes(episodes: int, share: float) -> tuple[list[int], list[int]]:
    """Those that are learned from and those that are held out, which lie evenly among them."""
    held = min(round(episodes * share), episodes - 1)
    checked = [int((k + 0.5) * episodes / held) for k in range(held)]
    return sorted(set(range(episodes)) - set(checked)), checked


def read_state(folder: Path) -> dict[str, Any]:
    """What the saved state of a training in ``folder/training`` says of itself; {} when there is none.

    Raises:
        DataError: it is damaged.
    """
    return state_facts(folder / "training" / STATE, "step", "identity")


def _cut_log(path: Path, step: int) -> None:
    """What was logged after the state was saved will be logged again."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if line.partition(",")[0].isdigit() and int(line.partition(",")[0]) <= step]
    write_text(path, "".join(f"{line}\n" for line in kept))


def _digest(network: ChunkNetwork) -> str:
    """Hex digest of the weights."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check_same_shape(trainer: Trainer, policy: TrainedPolicy) -> None:
    ours = {"cameras": trainer.dataset.cameras, "tasks": trainer.dataset.tasks, "pictures": trainer.settings.pictures}
    faults = [f"{k}: {getattr(policy, k)}, here {v}" for k, v in ours.items() if getattr(policy, k) != v]
    theirs = policy.architecture.to_json()
    faults += [
        f"{key}: {theirs[key]}, here {value}"
        for key, value in trainer.architecture.to_json().items()
        if theirs[key] != value and key != "points"
    ]
    if faults:
        raise DataError(f"the policy to begin with is of another shape ({'; '.join(faults)}); set these as they were")


def _fitting(weights: dict[str, Tensor], own: dict[str, Tensor]) -> dict[str, Tensor]:
    """`own`, as far as they fit replaced by `weights`: where other objects are is learned anew."""
    return {k: weights[k] if k in weights and weights[k].shape == v.shape else v for k, v in own.items()}


def _changed(before: dict[str, Any], now: dict[str, Any], at: str = "") -> str:
    """The first value that differs, as key: before -> now."""
    for key in now:
        old, new, place = before.get(key), now[key], f"{at}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            if text := _changed(old, new, f"{place}."):
                return text
        elif old != new:
            return f"{place}: {str(old)[:40]} -> {str(new)[:40]}"
    return ""


def _widened(begun: Normalisation, own: Normalisation) -> Normalisation:
    """The scales that the weights are used to, with room for what this dataset does, and its own objects where it has
    others."""
    points = begun.points if begun.points.shape == own.points.shape else own.points
    return replace(begun, low=np.minimum(begun.low, own.low), high=np.maximum(begun.high, own.high), points=points)


def _normalisation(config: Config, dataset: Dataset, episodes: Sequence[int], horizon: int) -> Normalisation:
    modality = config.dataset.modality
    relative = np.zeros(dataset.states[0].shape[1], bool)
    for group in modality.relative:
        relative[slice(*modality.groups[group])] = True
    parts = ([values[e] for e in episodes] for values in (dataset.states, dataset.actions, dataset.points))
    return fit_normalisation(*parts, relative, horizon)
