"""Check a draft against a model of the spec: every problem at once, each with file, line, key and the nearest name."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from graphmill.base.names import did_you_mean, nearest
from graphmill.config.draft import Draft
from graphmill.config.keys import (
    Model,
    choices,
    default_tag,
    keys_of,
    mapped_model,
    section_members,
    tags_of,
    takes,
    takes_each,
)
from graphmill.config.problems import KeyPath, Problem, dotted, refuse
from graphmill.config.yaml_text import flow_text

T = TypeVar("T", bound=BaseModel)
Others = Callable[[], Mapping[str, Model]]
"""Function that is called only when there is something to report, since each model costs its import."""


@dataclass(frozen=True, slots=True)
class _Family:
    """The model that was chosen, and those that were not, by what would choose them: `task=traffic`."""

    model: Model
    others: Others
    chosen: str  # "task is node_classification"; "" if there was no choice

    def owners(self, path: KeyPath) -> list[str]:
        """What would make the key at `path` a known one."""
        key = dotted(tuple(part for part in path if not isinstance(part, int)))
        return [choice for choice, model in self.others().items() if key in _sections_and_keys(model)]


def checked(model: type[T], draft: Draft, source: str, *, others: Others | None = None, chosen: str = "") -> T:
    """The model that `draft` describes, or one `UserError` with all of its problems.

    `others` gives the models that were not chosen, by what would choose them; one of their keys is reported as such.
    """
    result, problems = examined(model, draft, source, others=others, chosen=chosen)
    refuse(problems, source)
    assert result is not None  # else there is a problem
    return result


def examined(
    model: type[T], draft: Draft, source: str, *, others: Others | None = None, chosen: str = ""
) -> tuple[T | None, list[Problem]]:
    """The model that `draft` describes, and all of its problems: for a file that holds several models."""
    family = _Family(model, others or dict, chosen)
    value = _with_default_tags(model, draft.value)
    problems = list(draft.problems)
    try:
        return model.model_validate_json(json.dumps(value), strict=True), problems
    except ValidationError as error:
        return None, problems + _problems(family, error, draft, source)


def _by_line(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _with_default_tags(model: Model, value: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the default `model.kind` and `train.sync.scheme` if a file leaves them out."""
    filled = dict(value)
    for name, field in model.model_fields.items():
        members, section = section_members(field), filled.get(name)
        if not members or not isinstance(section, Mapping):
            continue
        if field.discriminator is None:
            filled[name] = _with_default_tags(members[0], section)
        else:
            tag = str(field.discriminator)
            tagged = {tag: default_tag(field), **section}
            chosen = [member for member in members if tagged[tag] in tags_of(member, tag)]
            filled[name] = _with_default_tags(chosen[0], tagged) if chosen else tagged
    return filled


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an error is, as the user wrote it: pydantic's location without the tags of unions."""

    path: KeyPath  # as written in the file
    section: Model  # the model whose key it is about
    only_with: str  # "train.sync.scheme=diloco" inside a member of a union, else ""
    field: FieldInfo | None  # None for an unknown key
    union: tuple[str, tuple[Model, ...]] | None  # of the section: its dotted name and its members


def _place(model: Model, loc: tuple[int | str, ...]) -> _Place:
    path: KeyPath = ()
    section, only_with, field, union = model, "", None, None
    rest = list(loc)
    while rest:
        name = rest.pop(0)
        path, field = (*path, name), section.model_fields.get(str(name))
        mapped = mapped_model(field) if field else None
        if mapped is not None and rest:
            path, section, union = (*path, rest.pop(0)), mapped, None
            continue
        members = section_members(field) if field else ()
        if not members or not rest:
            break
        section, union = members[0], None
        if field and field.discriminator is not None:
            tag, union = str(rest.pop(0)), (dotted(path), members)
            only_with = f"{dotted(path)}.{field.discriminator}={tag}"
            section = next(member for member in members if tag in tags_of(member, str(field.discriminator)))
            field = None if rest else field
    if field is not None and get_origin(field.annotation) is dict and rest and isinstance(rest[0], str):
        path, field = (*path, rest.pop(0)), FieldInfo.from_annotation(get_args(field.annotation)[1])
    indices = tuple(
        part for part in rest if isinstance(part, int)
    )  # of a list; the rest names members of a plain union
    return _Place((*path, *indices), section, only_with, field, union)


def _problems(family: _Family, error: ValidationError, draft: Draft, source: str) -> list[Problem]:
    told: dict[KeyPath, Problem] = {}  # a plain union reports once per member; show it once
    for detail in error.errors(include_url=False):
        place = _named(detail, _place(family.model, detail["loc"]))
        what, fix = _sentence(family, detail, place, draft)
        where = draft.where(place.path, otherwise=source)
        told.setdefault(place.path, Problem(where, what, fix))
    within = {path[:length] for path in told for length in range(len(path))}
    # Of a plain union the member that took the value apart says what is wrong; the others, that it is none of theirs.
    return sorted((problem for path, problem in told.items() if path not in within), key=_by_line)


def _reason(detail: ErrorDetails) -> str:
    return str(detail.get("ctx", {}).get("error", detail["msg"]))


def _named(detail: ErrorDetails, place: _Place) -> _Place:
    """The problem is at a key of the section: the discriminator, or the key that a validator's sentence begins with."""
    if detail["type"] == "union_tag_invalid" and place.field is not None:
        return replace(place, path=(*place.path, str(place.field.discriminator)))
    members = section_members(place.field) if place.field and detail["type"] == "value_error" else ()
    word = _reason(detail).partition(" ")[0]
    return replace(place, path=(*place.path, word)) if any(word in member.model_fields for member in members) else place


def _sentence(family: _Family, detail: ErrorDetails, place: _Place, draft: Draft) -> tuple[str, str]:
    """Describe an error: what clashes, then what to type."""
    key, field, kind = dotted(place.path), place.field, detail["type"]
    if kind == "extra_forbidden":
        return _unknown_key(family, key, place, draft)
    if kind == "value_error":  # of our own validators, which name the key
        reason, name = _reason(detail), str(place.path[-1]) if key else ""
        begins_with_name = name != "" and reason.startswith(f"{name} ")
        what = f"{key}{reason.removeprefix(name)}" if begins_with_name else f"{key}: {reason}" if key else reason
        return what, f"change {key}" if key else "change one of them"
    if field is None:
        return f"{key}: {detail['msg']}", f"change {key}"
    if kind == "missing":
        return f"{key} is missing; it takes {takes(field)}", f"add {key}: {field.description or '…'}"
    if kind == "union_tag_invalid":
        return _unknown_tag(detail, key, field, family, draft)
    return _wrong_value(detail, key, field)


def _unknown_key(family: _Family, key: str, place: _Place, draft: Draft) -> tuple[str, str]:
    name = str(place.path[-1])
    ours = getattr(place.section, "also_called", {}).get(name)
    if ours is not None:
        return f"{key} is called {ours}", f"write {ours}"
    if place.union is not None:
        owners = [member for member in place.union[1] if name in member.model_fields]
        section, tag = place.only_with.rpartition("=")[::2]
        if owners:
            of_section = section.rpartition(".")[2]
            tags = " or ".join(each for owner in owners for each in tags_of(owner, of_section))
            what = f"{key} belongs to {section}={tags}, but {section} is {tag}"
            return what, _whole_section(place, draft) or f"remove {key}, or set {section}={tags}"
    elsewhere = family.owners(place.path)
    if elsewhere:
        choices = " or ".join(elsewhere)
        return f"{key} belongs to {choices}, but {family.chosen}", f"remove {key}, or set {choices}"
    siblings = list(place.section.model_fields)
    near = nearest(name, siblings)
    nested = sorted(known for known in _sections_and_keys(family.model) if known.endswith(f".{name}"))
    scope = f" with {place.only_with}" if place.only_with else ""
    if near is None and nested:
        return f"{key} is not a known key{scope}; did you mean {' or '.join(nested)}?", f"write {nested[0]}"
    if near is None:
        return f"{key} is not a known key{scope}; {did_you_mean(name, siblings)}", f"remove {key}"
    return f"{key} is not a known key{scope}; did you mean {near!r}?", f"write {dotted((*place.path[:-1], near))}"


def _whole_section(place: _Place, draft: Draft) -> str:
    """What to type where an override chose another variant of a section that a file gives; "" elsewhere."""
    path, tag = place.path[:-1], place.only_with.rpartition("=")[0].rpartition(".")[2]
    if draft.is_overridden(place.path) or not draft.is_overridden((*path, tag)):
        return ""
    section = draft.at(path)
    kept = {key: value for key, value in section.items() if key in place.section.model_fields}
    given = dict.fromkeys(draft.where((*path, key), otherwise="") for key in kept if draft.is_overridden((*path, key)))
    whole = shlex.quote(f"{dotted(path)}={flow_text(kept)}")
    return f"in place of {' '.join(given)} give the section whole: {draft.flag} {whole}"


def _sections_and_keys(model: Model) -> set[str]:
    words = [known.dotted.split(".") for known in keys_of(model)]
    return {".".join(parts[:length]) for parts in words for length in range(1, len(parts) + 1)}


def _unknown_tag(detail: ErrorDetails, key: str, field: FieldInfo, family: _Family, draft: Draft) -> tuple[str, str]:
    tag = str(field.discriminator)
    known = [each for member in section_members(field) for each in tags_of(member, tag)]
    given = detail["input"].get(tag) if isinstance(detail["input"], Mapping) else None
    section = key.rpartition(".")[0]
    elsewhere = _called_elsewhere(str(given), section, field, draft)
    owners = [choice for choice, model in family.others().items() if given in _tags(model, section)]
    if owners:
        choices = " or ".join(owners)
        what = f"{key}={given} belongs to {choices}, but {family.chosen}"
        of_these = elsewhere or f"set {key} to one of {', '.join(known)}"
        return what, f"{of_these}, or {choices}"
    what, fix = not_one_of(key, given, known)
    return what, elsewhere or fix


def _called_elsewhere(given: str, section: str, field: FieldInfo, draft: Draft) -> str:
    """The whole section to type where other programs call `given` what one of the members can be; "" elsewhere."""
    word = given.lower().replace("-", "").replace("_", "")
    named = [each for member in section_members(field) for each in [getattr(member, "called_elsewhere", {}).get(word)]]
    ours = next((each for each in named if each is not None), None)
    if ours is None:
        return ""
    path, tag = tuple(section.split(".")), str(field.discriminator)
    beside = {name: value for name, value in draft.at(path).items() if name != tag}
    whole = flow_text(_laid_over(ours, beside))
    if not draft.is_overridden((*path, tag)):
        return f"write {section}: {whole}"
    return f"give {draft.flag} {shlex.quote(f'{section}={whole}')}"


def _laid_over(section: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`section` with the values that were given for its keys, at whatever depth it has them."""
    return {
        key: _laid_over(value, given) if isinstance(value, Mapping) else given.get(key, value)
        for key, value in section.items()
    }


def _tags(model: Model, section: str) -> list[str]:
    """The words that choose a member of the union at the top-level key `section`."""
    field = model.model_fields.get(section)
    if field is None or field.discriminator is None:
        return []
    tag = str(field.discriminator)
    return [each for member in section_members(field) for each in tags_of(member, tag)]


def _wrong_value(detail: ErrorDetails, key: str, field: FieldInfo) -> tuple[str, str]:
    if section_members(field):
        shown, example = _shown(detail["input"]), _example(key, field)
        if field.discriminator is not None:
            words = [each for member in section_members(field) for each in tags_of(member, str(field.discriminator))]
            near = nearest(str(detail["input"]), words)
            example = f"{key}.{field.discriminator}={near}" if near else example
        elif isinstance(detail["input"], str) and "name" in section_members(field)[0].model_fields:
            example = f"{key}.name={shown[1:-1]}"
        return f"{key} is {shown}, but it is a section of keys", f"set its keys, for example {example}"
    if isinstance(detail["loc"][-1], int):
        return (
            f"{key} is {_shown(detail['input'])}, but it takes {takes_each(field)}",
            f"set {key} to {takes_each(field)}",
        )
    words = choices(field)
    if isinstance(detail["input"], str) and detail["type"] == "literal_error" and takes(field).startswith("one of"):
        return not_one_of(key, detail["input"], words)
    what = f"{key} is {_shown(detail['input'])}, but it takes {takes(field)}"
    near = nearest(detail["input"], words) if isinstance(detail["input"], str) else None
    return what, f"set {key}={near}" if near else f"set {key} to {takes(field)}"


def not_one_of(key: str, given: object, known: list[str]) -> tuple[str, str]:
    """Describe a word that is not one of those known: what clashes, then what to type."""
    near = nearest(str(given), known)
    return (
        f"{key} is {_shown(given)}, but it is one of {', '.join(known)}",
        f"set {key}={near}" if near else "set it to one of them",
    )


def _example(key: str, field: FieldInfo) -> str:
    member = section_members(field)[0]
    name, first = next(iter(member.model_fields.items()))
    if first.is_required():
        return f"{key}.{name}, which takes {takes(first)}"
    return f"{key}.{name}={first.get_default(call_default_factory=True)}"


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}…"
