"""The options of the policy server, the same for `./policy` and `./twin serve policy`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from so101.config import Config
from so101.config.base import validate
from so101.config.deploy import ServerConfig
from so101.errors import ConfigError, did_you_mean
from so101.policies import POLICIES, PolicyOptions

ALL_POLICIES = {**POLICIES, "groot": "services.policy.groot:GrootPolicy"}
_SETTINGS = ("policy", "host", "port", "wire", "strict", "api_token_file", "allow_kill", "role", "models_dir")


class Parser(argparse.ArgumentParser):
    """Options in full only; a misspelt one is an error that names the closest."""

    def __init__(self, **more: Any) -> None:
        super().__init__(allow_abbrev=False, **more)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
            self.error(f"no such option: {word}{did_you_mean(word, self._option_string_actions)}")
        return known

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; {self.prog} --help lists the options")


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """What both programs take. Those not given leave deploy.yaml as it is."""
    off = argparse.SUPPRESS
    add = parser.add_argument
    add("--policy", default=off, metavar="NAME", help=f"{', '.join(ALL_POLICIES)}")
    add("--host", default=off, help="address to bind; off loopback a token is needed")
    add("--port", type=int, default=off, help="TCP port")
    add("--wire", default=off, help="how replies are written: w2 (GR00T N1.6) or w3 (later)")
    add("--api-token", metavar="TOKEN", help="what clients must send; seen by others in the list of processes")
    add("--api-token-file", default=off, metavar="FILE", help="file that holds the token")
    add("--allow-kill", action="store_true", default=off, help="let clients end the server")
    add("--no-strict", dest="strict", action="store_false", default=off, help="pass observations on unchecked")
    add("--demo", type=Path, metavar="FILE", help="replay: a demo (.npz), or the folder of a run: its newest verified")
    add("--dataset", type=Path, metavar="FOLDER", help="replay: a LeRobot dataset")
    add("--episode", type=int, default=0, metavar="N", help="replay: of the dataset")
    add("--seed", type=int, default=0, metavar="N", help="expert: of the placement it plans first")
    add("--role", default=off, help="embedded: folder of the model in --models-dir")
    add("--model", metavar="FOLDER", help="groot: fine-tuned checkpoint, outputs/groot/checkpoint-20000 for example")
    add("--models-dir", default=off, metavar="FOLDER", help="embedded: where the models are")


def apply(config: Config, chosen: argparse.Namespace) -> tuple[Config, PolicyOptions, str | None]:
    """The configuration with the options in it, those of the policy, and the token.

    Raises:
        ConfigError: an option has a wrong value.
    """
    if chosen.demo is not None and chosen.dataset is not None:
        raise ConfigError("--demo and --dataset both say what to replay; give one")
    given = {name: getattr(chosen, name) for name in _SETTINGS if hasattr(chosen, name)}
    if "policy" in given:
        check_policy(given["policy"])
    if chosen.model is not None:
        given["groot"] = config.deploy.server.groot.model_dump() | {"model_path": _groot_model(config, chosen, given)}
    server = validate(ServerConfig, config.deploy.server.model_dump() | given, "options, deploy.yaml server")
    deploy = config.deploy.model_copy(update={"server": server})
    options = PolicyOptions(chosen.demo, chosen.dataset, chosen.episode, chosen.seed)
    token = chosen.api_token if chosen.api_token is not None else read_token(server.api_token_file)
    if token == "":
        raise ConfigError("--api-token is empty; give a token, or leave the option out to ask for none")
    return config.model_copy(update={"deploy": deploy}), options, token


def check_policy(name: str) -> None:
    """
    Raises:
        ConfigError: there is no policy of this name.
    """
    if name not in ALL_POLICIES:
        raise ConfigError(
            f"--policy {name}: no such policy; policies: {', '.join(ALL_POLICIES)}{did_you_mean(name, ALL_POLICIES)}"
        )


def _groot_model(config: Config, chosen: argparse.Namespace, given: dict[str, Any]) -> str:
    policy, host = given.get("policy", config.deploy.server.policy), config.deploy.server.groot.host
    if policy != "groot":
        raise ConfigError(
            f"--model is the checkpoint of --policy groot, and {policy} was chosen; embedded takes --role"
        )
    if host is not None:
        raise ConfigError(
            f"--model {chosen.model}: deploy.server.groot.host is {host}, a server that runs with a model of its own; "
            "leave the option out, or set the host to null to start GR00T here"
        )
    return chosen.model


def read_token(path: str | None) -> str | None:
    """The token in a file; None without one.

    Raises:
        ConfigError: it cannot be read or is empty.
    """
    if path is None:
        return None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the API token cannot be read ({error})") from None
    if not token:
        raise ConfigError(f"{path}: holds no API token; write one into it, or set api_token_file: null")
    return token
