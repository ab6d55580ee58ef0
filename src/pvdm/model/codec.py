"""The codec of documents: dataclasses are written to JSON, read back and checked by the types of their fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, Union, get_args, get_origin, get_type_hints

from pvdm.model.canonical_json import Value, dump
from pvdm.model.fields import (
    Fields,
    invalid,
    require_form,
    require_long,
    require_number,
    require_pairs,
    require_random,
    require_sequence,
    require_sha256,
    require_text,
)

Check: TypeAlias = Callable[[Any, str], None]
"""Raises if a value has the wrong form. The second argument names the value in the error."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """How the values of one type are read (by object and key), written and checked.

    `write` and `check` are not called for None. If a field is not `required`, its key is left out for None. A value
    that takes several keys of the object names them in `keys`; then `write` returns an object with these keys.
    """

    read: Callable[[Fields, str], Any]
    write: Callable[[Any], Value] | None = None
    check: Check | None = None
    required: bool = True
    keys: tuple[str, ...] = ()


NOT_STORED: Final = FieldType(Fields.value)
"""The type of a field that is not written to JSON. In a document that is read, the field has its default."""


def number_between(least: int, most: int) -> FieldType:
    """Integers of this range, written as JSON numbers."""
    return FieldType(Fields.number, check=partial(require_number, least=least, most=most))


def sorted_texts(least: int, most: int, *, each: Check) -> FieldType:
    """Sorted distinct texts, `least` to `most` of them. `each` checks one text."""

    def check(items: Sequence[str], what: str) -> None:
        require_sequence(items, what, least=least, most=most)
        for item in items:
            each(item, what)

    return FieldType(Fields.texts, list, check)


def documents(kind: type[Document], least: int = 0, most: int | None = None) -> FieldType:
    """Documents of one kind, `least` to `most` of them. The number is checked before the documents are read."""
    return FieldType(
        lambda fields, key: tuple(kind.from_json(item) for item in fields.items(key, least=least, most=most)),
        lambda items: [item.to_json() for item in items],
    )


def one_of(*names: str) -> FieldType:
    """One of these texts."""

    def check(text: str, what: str) -> None:
        if text not in names:
            raise invalid(what, " or ".join(names), repr(text[:64]))

    return FieldType(Fields.text, check=check)


def form(name: str) -> Check:
    """The check that a text has the form of this name in `require_form`."""
    return lambda text, what: require_form(text, name, what)


def write_decimals(numbers: Sequence[int]) -> Value:
    """The numbers as decimal strings."""
    return [str(number) for number in numbers]


Text: TypeAlias = Annotated[str, FieldType(Fields.text, check=require_text)]
Id: TypeAlias = Annotated[str, FieldType(Fields.text, check=form("id"))]
Identity: TypeAlias = Annotated[str, FieldType(Fields.text, check=form("identity"))]
Uuid: TypeAlias = Annotated[str, FieldType(Fields.text, check=form("uuid"))]
Name: TypeAlias = Annotated[str, FieldType(Fields.text, check=form("name"))]
Sha256: TypeAlias = Annotated[str, FieldType(Fields.text, check=require_sha256)]
Random: TypeAlias = Annotated[str, FieldType(Fields.text, check=require_random)]
DecimalText: TypeAlias = Annotated[int, FieldType(Fields.decimal, str, require_long)]
JsonNumber: TypeAlias = Annotated[int, FieldType(Fields.number, check=require_number)]
# Unlike DecimalText and JsonNumber, the next three check no range. A signed document checks such a field itself.
Count: TypeAlias = Annotated[int, FieldType(Fields.number)]
UncheckedDecimalText: TypeAlias = Annotated[int, FieldType(Fields.decimal, str)]
UncheckedDecimalTexts: TypeAlias = Annotated[tuple[int, ...], FieldType(Fields.decimals, write_decimals)]
Pairs: TypeAlias = Annotated[tuple[tuple[str, str | None], ...], FieldType(Fields.pairs, dict, require_pairs)]


class Document:
    """A frozen dataclass that is written as one JSON object, with a key for each field.

    `title` names it in errors. `format`, if given, is written under the key `format`, to identify files and versions.
    """

    __slots__ = ()
    _title: ClassVar[str] = "the document"
    _format: ClassVar[str] = ""

    def __init_subclass__(cls, *, title: str = "", format: str = "") -> None:  # noqa: A002 - the key's name
        super().__init_subclass__()
        # A dataclass with slots is created a second time without these arguments, and keeps the first values.
        cls._title = title or cls._title
        cls._format = format or cls._format

    def __post_init__(self) -> None:
        require_fields(self)
        self.require_consistent()

    def require_consistent(self) -> None:
        """Raise if fields contradict each other. Document classes with such rules override this."""

    def to_json(self) -> dict[str, Value]:
        """The JSON object."""
        document: dict[str, Value] = {"format": self._format} if self._format else {}
        for name, kind in field_types(type(self)):
            value = getattr(self, name)
            written: Any = value if value is None or kind.write is None else kind.write(value)
            if kind.keys:
                document.update(written)
            elif kind.required or value is not None:
                document[name] = written
        return document

    def to_bytes(self) -> bytes:
        """The canonical bytes of the JSON object."""
        return dump(self.to_json())

    @classmethod
    def from_json(cls, value: Value) -> Self:
        """The document that `to_json` wrote. Raises for any other key, type or form."""
        present: Collection[str] = value if isinstance(value, Mapping) else ()
        kinds = [(name, kind) for name, kind in field_types(cls) if kind.required or name in present]
        keys = [key for name, kind in kinds for key in kind.keys or (name,)]
        fields = Fields(value, cls._title, ["format", *keys] if cls._format else keys)
        if cls._format and fields.text("format") != cls._format:
            raise invalid(f"the format of {cls._title}", cls._format, repr(fields.text("format")[:64]))
        return cls(**{name: kind.read(fields, name) for name, kind in kinds})


def require_fields(document: Document) -> None:
    """Raise unless every field has the form of its type."""
    for name, kind in field_types(type(document)):
        value = getattr(document, name)
        if kind.check is not None and value is not None:
            kind.check(value, f"{name} of {document._title}")


_FIELD_TYPES: Final[dict[type[Document], tuple[tuple[str, FieldType], ...]]] = {}


def field_types(document: type[Document]) -> tuple[tuple[str, FieldType], ...]:
    """The stored fields of a document class in order, each with its type."""
    found = _FIELD_TYPES.get(document)
    if found is None:
        hints = get_type_hints(document, include_extras=True)
        names = [field.name for field in fields(document)]  # type: ignore[arg-type]
        kinds = [(name, _field_type(hints[name])) for name in names]
        found = _FIELD_TYPES[document] = tuple((name, kind) for name, kind in kinds if kind is not NOT_STORED)
    return found


def _field_type(hint: Any) -> FieldType:
    """The field type in the annotation, or the field type that follows from a plain class, an optional or a tuple."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found: FieldType = arguments[1]
        return found
    if origin in (Union, UnionType) and arguments[1:] == (NoneType,):
        return _optional_type(_field_type(arguments[0]))
    if origin is tuple:
        return _tuple_type(arguments[0])
    if hint is str:
        return FieldType(Fields.text)
    if hint is bool:
        return FieldType(Fields.boolean)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return FieldType(partial(Fields.choice, choices=hint), lambda choice: choice.value)
    if not (isinstance(hint, type) and issubclass(hint, Document)):
        raise TypeError(f"a field of type {hint} needs a FieldType in its annotation")
    return FieldType(lambda fields, key: hint.from_json(fields.value(key)), lambda document: document.to_json())


def _optional_type(inner: FieldType) -> FieldType:
    return FieldType(
        lambda fields, key: None if fields.value(key) is None else inner.read(fields, key), inner.write, inner.check
    )


def _tuple_type(item: Any) -> FieldType:
    """The type of a tuple whose elements are of the class `item`: strings, an enumeration's members, or documents."""
    if item is str:
        return FieldType(Fields.texts, list)
    if issubclass(item, Enum):
        return FieldType(partial(Fields.choices, choices=item), lambda choices: [choice.value for choice in choices])
    return documents(item)
