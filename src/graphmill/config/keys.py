"""What a model of the spec knows: its keys, in dotted form, and what each takes. Messages and the reference use it."""

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

Model = type[BaseModel]


@dataclass(frozen=True, slots=True)
class Key:
    """One key that a user may set."""

    dotted: str
    takes: str
    default: Any  # None if it must be given; see `required`
    required: bool
    description: str
    only_with: str  # "train.sync.scheme=diloco" if one member of a union has it, else ""


def keys_of(model: Model, prefix: str = "", only_with: str = "") -> Iterator[Key]:
    """All keys of `model`, sections before what they hold, in the order they are declared."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        members = section_members(field)
        if not members:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield Key(key, takes(field), default, field.is_required(), field.description or "", only_with)
        elif field.discriminator is None:
            yield from keys_of(members[0], f"{key}.", only_with)
        else:
            yield from _union_keys(field, members, key)


def _union_keys(field: FieldInfo, members: Sequence[Model], key: str) -> Iterator[Key]:
    tag = str(field.discriminator)
    choices = ", ".join(each for member in members for each in tags_of(member, tag))
    yield Key(
        f"{key}.{tag}", f"one of {choices}", default_tag(field), False, "chooses which of the keys below apply", ""
    )
    found = [list(keys_of(member, f"{key}.")) for member in members]
    for member, inner_keys in zip(members, found, strict=True):
        for inner in inner_keys:
            if inner.dotted == f"{key}.{tag}":
                continue
            if all(inner in others for others in found):  # a key of the section, whichever member it is
                if member is members[0]:
                    yield inner
            else:
                yield replace(inner, only_with=inner.only_with or f"{key}.{tag}={'|'.join(tags_of(member, tag))}")


def section_members(field: FieldInfo) -> tuple[Model, ...]:
    """The models that a section of keys may be: several for a discriminated union, none for a plain value.

    A section that may be absent is one whose model may also be null.
    """
    annotation = field.annotation
    members = get_args(annotation) if _is_union(annotation) else (annotation,)
    candidates = [member for member in members if member is not types.NoneType]
    if all(isinstance(member, type) and issubclass(member, BaseModel) for member in candidates):
        return tuple(candidates)
    return ()


def mapped_model(field: FieldInfo) -> Model | None:
    """The model of every value, if a field maps user-chosen names to sections; else None."""
    arguments = get_args(field.annotation) if get_origin(field.annotation) is dict else ()
    values = arguments[1] if arguments else None
    return values if isinstance(values, type) and issubclass(values, BaseModel) else None


def tags_of(member: Model, discriminator: str) -> tuple[str, ...]:
    """The values of the discriminator that choose `member`."""
    return tuple(str(each) for each in get_args(member.model_fields[discriminator].annotation))


def default_tag(field: FieldInfo) -> str | None:
    """The discriminator's value if a file leaves it out."""
    default = field.get_default(call_default_factory=True)
    return str(getattr(default, str(field.discriminator))) if isinstance(default, BaseModel) else None


def choices(field: FieldInfo) -> list[str]:
    """The words that a field takes, if it takes some: for suggestions."""
    return list(_words(field.annotation))


def takes(field: FieldInfo) -> str:
    """What a field takes, in words.

    >>> from graphmill.spec.experiment import TrainSpec
    >>> takes(TrainSpec.model_fields["ranks"])
    'a whole number > 0, or auto'
    """
    return _takes(field.annotation, field.metadata)


def takes_each(field: FieldInfo) -> str:
    """What each item of a list takes, in words."""
    members = get_args(field.annotation) if _is_union(field.annotation) else (field.annotation,)
    listed = next(each for each in members if get_origin(each) in (tuple, list))
    return _takes(get_args(listed)[0], ())


def _takes(annotation: Any, metadata: Sequence[Any]) -> str:  # noqa: ANN401  # annotations have no common type
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _takes(arguments[0], [*metadata, *arguments[1:]])
    if _is_union(annotation):
        return ", or ".join(_takes(argument, () if argument is type(None) else metadata) for argument in arguments)
    if origin is Literal:
        return str(arguments[0]) if len(arguments) == 1 else "one of " + ", ".join(str(word) for word in arguments)
    if origin in (tuple, list):
        return f"a list of {_plural(_takes(arguments[0], ()))}"
    if origin is dict or annotation is dict:
        return "a mapping of keys to values"
    plain = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        type(None): "null",
        Any: "a value",
    }
    return plain[annotation] + _bounds(metadata)


def _plural(taken: str) -> str:
    return {"a mapping of keys to values": "mappings", "a value": "values"}.get(taken, f"{taken.removeprefix('a ')}s")


def _bounds(metadata: Sequence[Any]) -> str:
    parts = []
    for item in metadata:
        for attribute, sign in (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤")):
            bound = getattr(item, attribute, None)
            if bound is not None:
                parts.append(f"{sign} {_power(bound)}")
        if getattr(item, "pattern", None):
            parts.append(f"that matches {item.pattern}")
    return "".join(f" {part}" if index == 0 else f" and {part}" for index, part in enumerate(parts))


def _power(bound: Any) -> str:  # noqa: ANN401  # whatever a bound may be
    return "2^63" if bound == 2**63 else str(bound)


def _words(annotation: Any) -> Iterator[str]:  # noqa: ANN401  # annotations have no common type
    if get_origin(annotation) is Literal:
        yield from (str(word) for word in get_args(annotation))
    elif _is_union(annotation):
        for argument in get_args(annotation):
            yield from _words(argument)


def _is_union(annotation: Any) -> bool:  # noqa: ANN401  # annotations have no common type
    return get_origin(annotation) in (Union, types.UnionType)
