//! Checks the columns of a file as other readers find them: types with one meaning, and ids on columns only.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::{FIELD_ID, child_fields, join_path};
use crate::parquet::resolve::Shape;
use arrow_schema::{DataType, Field as ArrowField, Fields, TimeUnit};
use parquet::basic::LogicalType;
use parquet::schema::types::Type as Element;

/// Refuses types that some engine reads as other values or does not read. Iceberg prescribes one Parquet type for each
/// of its types. Engines may read other types as other values. For example, Spark reads milliseconds as microseconds.
pub fn require_types(path: &str, wanted: &[Field], shape: &Shape, file: &Fields) -> Result<()> {
    let Shape::Struct(children) = shape else { return Ok(()) };
    for (field, child) in wanted.iter().zip(children) {
        if let Some((at, shape)) = &child.source {
            require_type(&join_path(path, &field.name), &field.slot, shape, &file[*at])?;
        }
    }
    Ok(())
}

fn require_type(path: &str, slot: &Slot, shape: &Shape, file: &ArrowField) -> Result<()> {
    match (&slot.kind, shape, &child_fields(file)[..]) {
        (Type::Struct(fields), Shape::Struct(_), _) => {
            let DataType::Struct(given) = file.data_type() else { return Ok(()) };
            require_types(path, fields, shape, given)
        }
        (Type::List(element), Shape::List(inner), [given]) => {
            require_type(&join_path(path, "element"), element, inner, given)
        }
        (Type::Map(key, value), Shape::Map(key_shape, value_shape), [file_key, file_value]) => {
            require_type(&join_path(path, "key"), key, key_shape, file_key)?;
            require_type(&join_path(path, "value"), value, value_shape, file_value)
        }
        (kind, _, _) if has_other_meaning(kind, file.data_type()) => {
            Err(Fault::new("cast_refused", path, kind.to_string(), file.data_type().to_string()))
        }
        _ => Ok(()),
    }
}

/// Whether some engine reads the file's type as other values than the table's type has.
fn has_other_meaning(kind: &Type, given: &DataType) -> bool {
    match given {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 | DataType::Float16 => true,
        DataType::Timestamp(unit, _) => matches!(unit, TimeUnit::Second | TimeUnit::Millisecond),
        DataType::Time32(_) => true,
        DataType::Date32 => *kind != Type::Date,
        // DuckDB casts a filter's value to the file's type: 0.1 to the nearest float.
        DataType::Float32 => *kind != Type::Float,
        _ => false,
    }
}

/// Refuses a variant without the annotation, because DuckDB would show its two parts as columns.
pub fn require_variants(path: &str, wanted: &[Field], shape: &Shape, file: &Element) -> Result<()> {
    let Shape::Struct(children) = shape else { return Ok(()) };
    for (field, child) in wanted.iter().zip(children) {
        if let Some((at, shape)) = &child.source
            && let Some(element) = child_at(file, *at)
        {
            require_variant(&join_path(path, &field.name), &field.slot, shape, element)?;
        }
    }
    Ok(())
}

fn require_variant(path: &str, slot: &Slot, shape: &Shape, element: &Element) -> Result<()> {
    let entries = child_at(element, 0);
    match (&slot.kind, shape) {
        (Type::Variant, _) => match element.get_basic_info().logical_type_ref() {
            Some(LogicalType::Variant { .. }) => Ok(()),
            _ => Err(Fault::new(
                "parquet_ambiguous",
                path,
                "a variant with its annotation",
                "a group without the annotation",
            )),
        },
        (Type::Struct(fields), Shape::Struct(_)) => require_variants(path, fields, shape, element),
        (Type::List(inner), Shape::List(shape)) => {
            let found = entries.and_then(|entries| child_at(entries, 0));
            found.map_or(Ok(()), |found| require_variant(&join_path(path, "element"), inner, shape, found))
        }
        (Type::Map(_, value), Shape::Map(_, shape)) => {
            let found = entries.and_then(|entries| child_at(entries, 1));
            found.map_or(Ok(()), |found| require_variant(&join_path(path, "value"), value, shape, found))
        }
        _ => Ok(()),
    }
}

fn child_at(element: &Element, at: usize) -> Option<&Element> {
    if element.is_group() { element.get_fields().get(at).map(AsRef::as_ref) } else { None }
}

/// Refuses ids on elements that are not columns, such as the groups inside a list, because DuckDB finds columns by id.
pub fn require_ids(root: &Element, file: &Fields) -> Result<()> {
    let all: usize = root.get_fields().iter().map(|element| count_ids(element)).sum();
    let known: usize = file.iter().map(|field| count_known_ids(field)).sum();
    if all == known {
        Ok(())
    } else {
        Err(Fault::new("parquet_ambiguous", "", "ids on columns only", "an id on a group inside a list or map"))
    }
}

/// The ids in the file's schema.
fn count_ids(element: &Element) -> usize {
    let below: usize =
        if element.is_group() { element.get_fields().iter().map(|child| count_ids(child)).sum() } else { 0 };
    below + usize::from(element.get_basic_info().has_id())
}

/// The ids that the `parquet` crate assigns to columns.
fn count_known_ids(field: &ArrowField) -> usize {
    let below: usize = child_fields(field).into_iter().map(|child| count_known_ids(child)).sum();
    below + usize::from(field.metadata().contains_key(FIELD_ID))
}
