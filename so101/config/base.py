"""What every configuration section shares: strict models and errors that say file, key, bad value, what is allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from so101.errors import ConfigError, did_you_mean

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster where PyYAML has it


class Section(BaseModel):
    """Base of all configuration models: unknown keys are errors, values are frozen, nan and inf are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


def _allowed(model: type[BaseModel], location: tuple[Any, ...]) -> str:
    """The keys allowed at the parent of `location`, for 'unknown key' messages."""
    annotation: Any = model
    for part in location[:-1]:
        fields = getattr(annotation, "model_fields", None)
        if fields and part in fields:
            annotation = fields[part].annotation
        else:  # a list index or a dict key: descend into the item type
            arguments = getattr(annotation, "__args__", ())
            annotation = arguments[-1] if arguments else annotation
    fields = getattr(annotation, "model_fields", None)
    if not fields:
        return "see the docs of this section"
    return ", ".join(sorted(fields)) + (did_you_mean(str(location[-1]), fields) if location[-1] not in fields else "")


def _one_fault(file_name: str, model: type[BaseModel], error: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in error["loc"]) or "(top level)"
    if error["type"] == "extra_forbidden":
        allowed = _allowed(model, error["loc"])
        return f"{file_name}: unknown key {key!r} (value {_short(error['input'])}); allowed here: {allowed}"
    if error["type"] == "missing":
        return f"{file_name}: key {key!r} is missing; add it (allowed here: {_allowed(model, error['loc'])})"
    message = error["msg"].removeprefix("Value error, ")
    if isinstance(error["input"], dict):  # a rule over several keys: its text names them, the mapping would bury it
        return f"{file_name}: {message}" if not error["loc"] else f"{file_name}: {key}: {message}"
    return f"{file_name}: {key} is {error['input']!r}; {message[0].lower()}{message[1:]}"


def _short(value: Any) -> str:
    """What was written; of a whole section its beginning."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def validate(model: type[Section], values: Any, file_name: str) -> Section:
    """Check `values` against `model`.

    Raises:
        ConfigError: naming file, key, bad value and what is allowed, all faults of the file at once.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_one_fault(file_name, model, fault) for fault in error.errors())) from None


def _parsed(text: str) -> Any:
    """The one document of a YAML text. Of a key that stands twice YAML would take the last without a word."""
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_double_keys(node, set())
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _refuse_double_keys(node: yaml.Node, seen: set[int]) -> None:
    if id(node) in seen:  # an alias
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} stands twice", key.start_mark)
            keys.add(key.value)
            _refuse_double_keys(value, seen)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_double_keys(item, seen)


def read_yaml(path: Path) -> dict[str, Any]:
    """One YAML file as a dict.

    Raises:
        ConfigError: the file is missing, unreadable, not YAML, not a mapping, or has a key twice.
    """
    try:
        values = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of keys to values, is {type(values).__name__}")
    return values


def _paths_to(node: dict[str, Any], name: str) -> list[list[str]]:
    """Paths through mappings below `node` that end in the key `name`."""
    paths = [[name]] if name in node else []
    for key, child in node.items():
        if isinstance(child, dict):
            paths += [[key, *path] for path in _paths_to(child, name)]
    return paths


def apply_override(values: dict[str, dict[str, Any]], assignment: str) -> None:
    """Apply one ``section.key.sub=value`` override in place. The value is parsed as YAML; list items by index.

    ``section.sub=value`` is enough where only one key of the section is called `sub`.

    Raises:
        ConfigError: malformed assignment, unknown section, or a path through something that is not a mapping.
    """
    path, separator, text = assignment.partition("=")
    parts = path.strip().split(".")
    if not separator or len(parts) < 2 or not all(parts):
        raise ConfigError(f"--set {assignment}: write it as SECTION.KEY=VALUE, for example skillgen.nn_k=5")
    if parts[0] not in values:
        known = f"sections: {', '.join(sorted(values))}{did_you_mean(parts[0], values)}"
        raise ConfigError(f"--set {assignment}: unknown section {parts[0]!r}; {known}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ConfigError(f"--set {assignment}: {text!r} is not a YAML value") from None
    if len(parts) == 2 and parts[1] not in values[parts[0]]:
        paths = _paths_to(values[parts[0]], parts[1])
        if len(paths) > 1:
            choices = ", ".join(".".join([parts[0], *path]) for path in paths)
            raise ConfigError(f"--set {assignment}: more than one key has that name; write one of {choices}")
        parts = [parts[0], *(paths[0] if paths else parts[1:])]
    node: Any = values[parts[0]]
    for depth, part in enumerate(parts[1:], start=1):
        last = depth == len(parts) - 1
        if isinstance(node, list) and part.isdigit() and int(part) < len(node):
            part = int(part)
        elif not isinstance(node, dict):
            where = ".".join(parts[:depth])
            raise ConfigError(f"--set {assignment}: {where} is {node!r}, it has no key {part!r}")
        if last:
            node[part] = value
        else:
            node = node[part] if isinstance(node, list) else node.setdefault(part, {})
