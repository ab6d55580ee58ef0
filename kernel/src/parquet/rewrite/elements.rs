//! The schema of a published file. Names, ids and types are those of the table. The repetition of each element is that
//! of the staged file, because the levels in the pages depend on it.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::join_path;
use crate::parquet::format::thrift::physical_number;
use crate::parquet::resolve::Shape;
use crate::parquet::rewrite::thrift_writer::Fields;
use parquet::basic::{Repetition, Type as Physical};
use parquet::schema::types::Type as FileElement;
use std::collections::{HashMap, HashSet};

/// Iceberg's names of the repeated group inside a list or map, and of what that group holds.
const LIST_NAMES: [&str; 2] = ["list", "element"];
const MAP_NAMES: [&str; 3] = ["key_value", "key", "value"];
/// Readers take a repeated group with this name, or with this suffix, for the element of a list itself.
const TWO_LEVEL_NAME: &str = "array";
const TWO_LEVEL_SUFFIX: &str = "_tuple";
const VARIANT_PARTS: [&str; 2] = ["metadata", "value"];
/// The additional part of a shredded variant.
const SHREDDED_PART: &str = "typed_value";
const VARIANT_VERSION: u8 = 1;
/// The most digits of a decimal in 32 bits.
const DECIMAL_INT32_DIGITS: u8 = 9;
/// The most digits of a decimal in 64 bits.
const DECIMAL_INT64_DIGITS: u8 = 18;

/// One element of the schema. A group precedes its children, as in the format.
pub struct Element {
    name: String,
    /// For a leaf: its physical type, and the length of values of a fixed length.
    physical: Option<(Physical, i32)>,
    /// `None` for the root.
    repetition: Option<Repetition>,
    children: usize,
    annotation: Option<Annotation>,
    id: Option<i32>,
}

/// A leaf of the published file.
pub struct Column {
    /// The number of the staged file's leaf whose pages this column has.
    pub source: usize,
    pub path: Vec<String>,
    pub id: Option<i32>,
    pub physical: Physical,
    /// The length of values of a fixed length.
    pub length: i32,
    /// The table's type; `None` for the parts of a variant.
    pub kind: Option<Type>,
}

pub struct FileSchema {
    pub elements: Vec<Element>,
    pub columns: Vec<Column>,
}

/// What the stored bytes of an element mean.
#[derive(Clone, Copy, Debug)]
enum Annotation {
    Text,
    Map,
    List,
    Decimal { scale: u8, precision: u8 },
    Date,
    Time(TimeForm),
    Timestamp(TimeForm),
    Unknown,
    Uuid,
    Variant,
}

/// Whether a time is in UTC, and whether it counts nanoseconds instead of microseconds.
#[derive(Clone, Copy, Debug)]
struct TimeForm {
    utc: bool,
    nanos: bool,
}

impl FileSchema {
    /// The schema of a file whose columns were resolved to `wanted`. Refuses types that cannot be published, and names
    /// that collide.
    pub fn new(wanted: &[Field], shape: &Shape, root: &FileElement, names: &Names) -> Result<FileSchema> {
        let mut schema = FileSchema { elements: Vec::new(), columns: Vec::new() };
        schema.elements.push(Element {
            name: "table".to_owned(),
            physical: None,
            repetition: None,
            children: 0,
            annotation: None,
            id: None,
        });
        let children = schema.add_children("", &[], wanted, shape, root, 0, names)?;
        schema.elements[0].children = children;
        Ok(schema)
    }

    /// Adds the fields of a struct, in the table's order, and returns their number. `place` is the struct's path in the
    /// table, for messages; `path` is its path in the published file. `first_leaf` is the number of its first leaf in
    /// the staged file.
    #[allow(clippy::too_many_arguments)]
    fn add_children(
        &mut self,
        place: &str,
        path: &[String],
        wanted: &[Field],
        shape: &Shape,
        file: &FileElement,
        first_leaf: usize,
        names: &Names,
    ) -> Result<usize> {
        let Shape::Struct(children) = shape else { return Err(unsupported(place, "a struct", "another type")) };
        let (mut count, mut seen) = (0, HashSet::new());
        let published_name = |field: &Field| field.slot.id.and_then(|id| names.get(&id));
        let mut paired: Vec<_> = wanted.iter().zip(children).collect();
        paired.sort_by_key(|(field, _)| published_name(field).map(|name| name.position));
        for (field, child) in paired {
            let Some((at, inner)) = &child.source else { continue };
            let place = join_path(place, &field.name);
            let name = published_name(field).map_or(&field.name, |name| &name.text);
            // DuckDB and Spark compare names without case.
            if !seen.insert(name.to_lowercase()) {
                return Err(Fault::new("parquet_names_collide", &place, "a distinct name in files", name.as_str()));
            }
            let before: usize = file.get_fields()[..*at].iter().map(|element| count_leaves(element)).sum();
            let of_file = &file.get_fields()[*at];
            self.add_slot(&place, path, name, &field.slot, inner, of_file, first_leaf + before, names)?;
            count += 1;
        }
        if count == 0 { Err(unsupported(place, "a column of the table", "none")) } else { Ok(count) }
    }

    /// Adds a field with all fields inside it. `above` is the path of its group in the published file, and `leaf` the
    /// number of its first leaf in the staged file. Refuses lists and maps that have no group of their own for
    /// elements.
    #[allow(clippy::too_many_arguments)]
    fn add_slot(
        &mut self,
        place: &str,
        above: &[String],
        name: &str,
        slot: &Slot,
        shape: &Shape,
        file: &FileElement,
        leaf: usize,
        names: &Names,
    ) -> Result<()> {
        let path = [above, &[name.to_owned()]].concat();
        let repetition = file.get_basic_info().repetition();
        if repetition == Repetition::REPEATED {
            return Err(two_levels(place));
        }
        let group = |children, annotation| Element {
            name: name.to_owned(),
            physical: None,
            repetition: Some(repetition),
            children,
            annotation,
            id: slot.id,
        };
        match (&slot.kind, shape) {
            (Type::Struct(fields), Shape::Struct(_)) => {
                let at = self.elements.len();
                self.elements.push(group(0, None));
                let children = self.add_children(place, &path, fields, shape, file, leaf, names)?;
                self.elements[at].children = children;
                Ok(())
            }
            (Type::List(element), Shape::List(inner)) => {
                let [of_file] = repeated_children(place, file)? else { return Err(two_levels(place)) };
                let [list, inside] = LIST_NAMES;
                self.elements.push(group(1, Some(Annotation::List)));
                self.elements.push(repeated_group(list, 1));
                let path = [&path[..], &[list.to_owned()]].concat();
                self.add_slot(&join_path(place, inside), &path, inside, element, inner, of_file, leaf, names)
            }
            (Type::Map(key, value), Shape::Map(key_shape, value_shape)) => {
                let [file_key, file_value] = repeated_children(place, file)? else { return Err(two_levels(place)) };
                let [entries, key_name, value_name] = MAP_NAMES;
                self.elements.push(group(1, Some(Annotation::Map)));
                self.elements.push(repeated_group(entries, 2));
                let path = [&path[..], &[entries.to_owned()]].concat();
                let next = leaf + count_leaves(file_key);
                let (key_place, value_place) = (join_path(place, key_name), join_path(place, value_name));
                self.add_slot(&key_place, &path, key_name, key, key_shape, file_key, leaf, names)?;
                self.add_slot(&value_place, &path, value_name, value, value_shape, file_value, next, names)
            }
            (Type::Variant, _) => {
                self.elements.push(group(VARIANT_PARTS.len(), Some(Annotation::Variant)));
                self.add_variant_parts(place, &path, file, leaf)
            }
            _ => self.add_leaf(place, path, slot, file, leaf),
        }
    }

    /// Adds the parts of a variant, metadata first, as every writer does. Refuses a shredded variant.
    fn add_variant_parts(&mut self, place: &str, path: &[String], file: &FileElement, leaf: usize) -> Result<()> {
        let parts = if file.is_group() { file.get_fields() } else { &[] };
        if parts.iter().any(|part| part.name() == SHREDDED_PART) {
            let expected = "a variant of metadata and value";
            return Err(Fault::new("variant_shredded", place, expected, format!("{SHREDDED_PART} beside them")));
        }
        if parts.len() != VARIANT_PARTS.len() {
            return Err(unsupported(place, "a variant of metadata and value", "other parts"));
        }
        for name in VARIANT_PARTS {
            let found = parts.iter().position(|part| {
                part.name() == name && part.is_primitive() && part.get_physical_type() == Physical::BYTE_ARRAY
            });
            let at = found.ok_or_else(|| unsupported(place, "a variant of metadata and value", "other parts"))?;
            self.elements.push(Element {
                name: name.to_owned(),
                physical: Some((Physical::BYTE_ARRAY, 0)),
                repetition: Some(parts[at].get_basic_info().repetition()),
                children: 0,
                annotation: None,
                id: None,
            });
            let path = [path, &[name.to_owned()]].concat();
            let (physical, length) = (Physical::BYTE_ARRAY, 0);
            self.columns.push(Column { source: leaf + at, path, id: None, physical, length, kind: None });
        }
        Ok(())
    }

    fn add_leaf(
        &mut self,
        place: &str,
        path: Vec<String>,
        slot: &Slot,
        file: &FileElement,
        source: usize,
    ) -> Result<()> {
        if !file.is_primitive() {
            return Err(unsupported(place, &slot.kind.to_string(), "a group"));
        }
        let (physical, length) = match file {
            FileElement::PrimitiveType { physical_type, type_length, .. } => (*physical_type, *type_length),
            FileElement::GroupType { .. } => return Err(unsupported(place, "a leaf", "a group")),
        };
        let annotation = choose_annotation(&slot.kind, physical, length)
            .ok_or_else(|| unsupported(place, &slot.kind.to_string(), &format!("{physical}({length})")))?;
        if let (Type::Decimal { precision, .. }, FileElement::PrimitiveType { precision: given, .. }) =
            (&slot.kind, file)
            && i32::from(*precision) != *given
        {
            let got = format!("a decimal of {given} digits");
            return Err(Fault::new("cast_refused", place, slot.kind.to_string(), got));
        }
        self.elements.push(Element {
            name: path.last().cloned().unwrap_or_default(),
            physical: Some((physical, length)),
            repetition: Some(file.get_basic_info().repetition()),
            children: 0,
            annotation,
            id: slot.id,
        });
        let (id, kind) = (slot.id, Some(slot.kind.clone()));
        self.columns.push(Column { source, path, id, physical, length, kind });
        Ok(())
    }
}

impl Element {
    pub fn write(&self, fields: &mut Fields<'_>) {
        if let Some((physical, length)) = self.physical {
            fields.int(1, physical_number(physical));
            if physical == Physical::FIXED_LEN_BYTE_ARRAY {
                fields.int(2, length);
            }
        }
        if let Some(repetition) = self.repetition {
            fields.int(3, repetition_number(repetition));
        }
        fields.binary(4, self.name.as_bytes());
        if self.physical.is_none() {
            fields.int(5, self.children as i32);
        }
        let converted = self.annotation.and_then(Annotation::converted);
        if let Some(converted) = converted {
            fields.int(6, converted);
        }
        if let Some(Annotation::Decimal { scale, precision }) = self.annotation {
            fields.int(7, scale.into());
            fields.int(8, precision.into());
        }
        if let Some(id) = self.id {
            fields.int(9, id);
        }
        if let Some(annotation) = self.annotation {
            fields.nested(10, |union| union.nested(annotation.member(), |inner| annotation.write(inner)));
        }
    }
}

impl Annotation {
    /// The deprecated annotation (`ConvertedType` of the format), if one means the same. The deprecated times are
    /// instants in UTC.
    fn converted(self) -> Option<i32> {
        match self {
            Annotation::Text => Some(0),
            Annotation::Map => Some(1),
            Annotation::List => Some(3),
            Annotation::Decimal { .. } => Some(5),
            Annotation::Date => Some(6),
            Annotation::Time(TimeForm { utc: true, nanos: false }) => Some(8),
            Annotation::Timestamp(TimeForm { utc: true, nanos: false }) => Some(10),
            _ => None,
        }
    }

    /// The number of the annotation in the union `LogicalType`.
    fn member(self) -> i16 {
        match self {
            Annotation::Text => 1,
            Annotation::Map => 2,
            Annotation::List => 3,
            Annotation::Decimal { .. } => 5,
            Annotation::Date => 6,
            Annotation::Time(_) => 7,
            Annotation::Timestamp(_) => 8,
            Annotation::Unknown => 11,
            Annotation::Uuid => 14,
            Annotation::Variant => 16,
        }
    }

    /// Writes the fields of the annotation's own struct.
    fn write(self, fields: &mut Fields<'_>) {
        match self {
            Annotation::Decimal { scale, precision } => {
                fields.int(1, scale.into());
                fields.int(2, precision.into());
            }
            Annotation::Time(form) | Annotation::Timestamp(form) => {
                fields.flag(1, form.utc);
                fields.nested(2, |unit| unit.nested(if form.nanos { 3 } else { 2 }, |_| ()));
            }
            Annotation::Variant => fields.byte(1, VARIANT_VERSION),
            _ => {}
        }
    }
}

/// The annotation for values of a table's type in this physical type; the inner `None` is no annotation. The outer
/// `None` means that the physical type cannot hold the values.
fn choose_annotation(kind: &Type, physical: Physical, length: i32) -> Option<Option<Annotation>> {
    let timestamp = |utc, nanos| Some(Some(Annotation::Timestamp(TimeForm { utc, nanos })));
    match (kind, physical) {
        (Type::Boolean, Physical::BOOLEAN)
        | (Type::Int, Physical::INT32)
        | (Type::Long, Physical::INT32 | Physical::INT64)
        | (Type::Float, Physical::FLOAT)
        | (Type::Double, Physical::DOUBLE)
        | (Type::Binary, Physical::BYTE_ARRAY) => Some(None),
        (Type::Fixed(size), Physical::FIXED_LEN_BYTE_ARRAY) if *size == length => Some(None),
        (Type::Decimal { precision, scale, .. }, physical) => {
            let fits = match physical {
                Physical::INT32 => *precision <= DECIMAL_INT32_DIGITS,
                Physical::INT64 => *precision <= DECIMAL_INT64_DIGITS,
                Physical::FIXED_LEN_BYTE_ARRAY | Physical::BYTE_ARRAY => true,
                _ => false,
            };
            fits.then_some(Some(Annotation::Decimal { scale: *scale, precision: *precision }))
        }
        (Type::Date, Physical::INT32) => Some(Some(Annotation::Date)),
        (Type::Time, Physical::INT64) => Some(Some(Annotation::Time(TimeForm { utc: false, nanos: false }))),
        (Type::TimeNs, Physical::INT64) => Some(Some(Annotation::Time(TimeForm { utc: false, nanos: true }))),
        (Type::Timestamp, Physical::INT64) => timestamp(false, false),
        (Type::TimestampTz, Physical::INT64) => timestamp(true, false),
        (Type::TimestampNs, Physical::INT64) => timestamp(false, true),
        (Type::TimestampTzNs, Physical::INT64) => timestamp(true, true),
        (Type::String, Physical::BYTE_ARRAY) => Some(Some(Annotation::Text)),
        (Type::Uuid, Physical::FIXED_LEN_BYTE_ARRAY) if length == 16 => Some(Some(Annotation::Uuid)),
        (Type::Unknown, _) => Some(Some(Annotation::Unknown)),
        _ => None,
    }
}

fn repeated_group(name: &str, children: usize) -> Element {
    let repetition = Some(Repetition::REPEATED);
    Element { name: name.to_owned(), physical: None, repetition, children, annotation: None, id: None }
}

/// The children of the repeated group inside a list or map. Refuses lists and maps of another form.
fn repeated_children<'a>(place: &str, file: &'a FileElement) -> Result<&'a [std::sync::Arc<FileElement>]> {
    let inner = if file.is_group() { file.get_fields() } else { &[] };
    match inner {
        [middle]
            if middle.is_group()
                && middle.get_basic_info().repetition() == Repetition::REPEATED
                && middle.name() != TWO_LEVEL_NAME
                && !middle.name().ends_with(TWO_LEVEL_SUFFIX) =>
        {
            Ok(middle.get_fields())
        }
        _ => Err(two_levels(place)),
    }
}

fn repetition_number(kind: Repetition) -> i32 {
    match kind {
        Repetition::REQUIRED => 0,
        Repetition::OPTIONAL => 1,
        Repetition::REPEATED => 2,
    }
}

fn count_leaves(element: &FileElement) -> usize {
    if element.is_group() { element.get_fields().iter().map(|child| count_leaves(child)).sum() } else { 1 }
}

fn two_levels(place: &str) -> Fault {
    Fault::new("parquet_ambiguous", place, "lists and maps of three levels", "another form")
}

fn unsupported(place: &str, expected: &str, got: &str) -> Fault {
    Fault::new("parquet_type_unsupported", place, expected, got)
}

/// The name of a struct field in published files, and its position among the table's fields.
pub struct Name {
    pub position: usize,
    pub text: String,
}

/// The names in published files. Key: a field id.
pub type Names = HashMap<i32, Name>;
