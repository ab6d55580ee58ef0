//! Refuses some annotations in a published footer. The kernel ignores these annotations, but because of them some
//! engine reads the file differently or not at all.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::join_path;
use crate::parquet::guard::published::names::{children_of, fields_of_table, only_child};
use parquet::basic::{ConvertedType, LogicalType};
use parquet::schema::types::Type as Element;

/// Refuses an annotation of the root or of the group inside a list, because PyArrow, Polars and Trino do not read such
/// a file. Refuses text annotated as JSON, because DuckDB and Polars read it as another type.
pub fn require_plain_annotations(table_fields: &[Field], root: &Element) -> Result<()> {
    require_no_annotation("", root)?;
    require_in_fields("", table_fields, root)
}

fn require_in_fields(path: &str, table_fields: &[Field], group: &Element) -> Result<()> {
    for (field, child) in fields_of_table(table_fields, group) {
        require_inside(&join_path(path, &field.name), &field.slot, child)?;
    }
    Ok(())
}

fn require_inside(path: &str, slot: &Slot, element: &Element) -> Result<()> {
    match &slot.kind {
        // The kernel does not read an annotated struct, so the struct itself needs no check.
        Type::Struct(fields) => require_in_fields(path, fields, element),
        Type::List(inner) => {
            let Some(list) = only_child(element) else { return Ok(()) };
            require_no_annotation(path, list)?;
            only_child(list).map_or(Ok(()), |found| require_inside(&join_path(path, "element"), inner, found))
        }
        Type::Map(key, value) => {
            let Some(entries) = only_child(element) else { return Ok(()) };
            // Java writers annotate the entries too.
            let info = entries.get_basic_info();
            if !matches!(info.converted_type(), ConvertedType::NONE | ConvertedType::MAP_KEY_VALUE) {
                return Err(other_annotation(path, "entries of a map"));
            }
            let [keys, values] = children_of(entries) else { return Ok(()) };
            require_inside(&join_path(path, "key"), key, keys)?;
            require_inside(&join_path(path, "value"), value, values)
        }
        Type::String => {
            let info = element.get_basic_info();
            let is_json = info.converted_type() == ConvertedType::JSON
                || matches!(info.logical_type_ref(), Some(LogicalType::Json));
            if is_json { Err(other_annotation(path, "text, and not JSON")) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn require_no_annotation(path: &str, element: &Element) -> Result<()> {
    let info = element.get_basic_info();
    let is_plain = info.converted_type() == ConvertedType::NONE && info.logical_type_ref().is_none();
    if is_plain { Ok(()) } else { Err(other_annotation(path, "a group without an annotation")) }
}

fn other_annotation(path: &str, expected: &str) -> Fault {
    Fault::new("parquet_ambiguous", path, expected, "another annotation")
}
