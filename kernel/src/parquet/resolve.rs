//! Resolves the columns of a file to a schema by field id. The resolved columns have the names of the schema, and
//! columns that the file lacks are null.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::{FIELD_ID, RESERVED_ID_FIRST, child_fields, has_id, join_path};
use crate::parquet::names::assign_ids;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, ListArray, MapArray, NullArray, StructArray};
use arrow_schema::{DataType, Field as ArrowField, Fields};
use std::collections::HashSet;
use std::sync::Arc;

/// How an array of the file becomes an array of the schema. It is the same for every batch of the file.
#[derive(Debug)]
pub enum Shape {
    AsIs,
    Struct(Vec<Child>),
    List(Box<Shape>),
    Map(Box<Shape>, Box<Shape>),
}

/// A field of the schema. `source` is its position in the file and its shape; `None` if the file lacks it.
#[derive(Debug)]
pub struct Child {
    pub name: String,
    pub source: Option<(usize, Shape)>,
}

/// Whether the file has the column at the end of a path of struct fields.
pub fn has_column(shape: &Shape, names: &[String]) -> bool {
    let Some((name, rest)) = names.split_first() else { return true };
    let Shape::Struct(children) = shape else { return false };
    let source = children.iter().find(|child| child.name == *name).and_then(|child| child.source.as_ref());
    source.is_some_and(|(_, inner)| has_column(inner, rest))
}

/// What the caller knows of a table's columns.
pub struct TableColumns {
    /// The columns to read.
    pub wanted: Vec<Field>,
    /// Ids that a file may have although no column of the schema has them: of dropped columns, and, if the caller adds
    /// them, of Iceberg's metadata columns.
    pub dropped: HashSet<i32>,
    /// Ids of optional columns that a file must have, because readers would fill in a default and not null.
    pub needed: HashSet<i32>,
    /// Every column of the table, if a file without ids may be read by names.
    pub named: Option<Vec<Field>>,
}

/// Resolves all columns of a file. Refuses unknown, duplicate, missing and reserved ids, at any depth.
pub fn resolve_columns(table: &TableColumns, file: &Fields) -> Result<Shape> {
    let file = match &table.named {
        Some(named) => assign_ids(named, file)?,
        None => file.clone(),
    };
    let children = resolve_fields("", &table.wanted, &file, table, &mut HashSet::new())?;
    Ok(Shape::Struct(children))
}

/// Resolves the fields of a struct. `seen` collects the ids of the whole file.
fn resolve_fields(
    path: &str,
    wanted: &[Field],
    file: &Fields,
    table: &TableColumns,
    seen: &mut HashSet<i32>,
) -> Result<Vec<Child>> {
    let mut positions = vec![None; wanted.len()];
    for (position, field) in file.iter().enumerate() {
        let field_path = join_path(path, field.name());
        let id = read_id(&field_path, field, &table.dropped, seen)?;
        match wanted.iter().position(|wanted| wanted.slot.id == Some(id)) {
            Some(found) => positions[found] = Some(position),
            None if table.dropped.contains(&id) => skip_dropped(&field_path, field, &table.dropped, seen)?,
            None => {
                return Err(Fault::new("field_id_unknown", &field_path, "ids of the table's schema", id.to_string()));
            }
        }
    }
    wanted
        .iter()
        .zip(positions)
        .map(|(field, position)| {
            let field_path = join_path(path, &field.name);
            let source = match position {
                Some(position) => {
                    Some((position, resolve_type(&field_path, &field.slot, &file[position], table, seen)?))
                }
                None if field.slot.required => {
                    return Err(Fault::new(
                        "field_required_missing",
                        &field_path,
                        "a required column",
                        "a file without it",
                    ));
                }
                None if field.slot.id.is_some_and(|id| table.needed.contains(&id)) => {
                    let expected = "the column itself, because it has a default";
                    return Err(Fault::new("field_default_missing", &field_path, expected, "a file without it"));
                }
                None => None,
            };
            Ok(Child { name: field.name.clone(), source })
        })
        .collect()
}

fn resolve_type(
    path: &str,
    slot: &Slot,
    file: &ArrowField,
    table: &TableColumns,
    seen: &mut HashSet<i32>,
) -> Result<Shape> {
    match (&slot.kind, file.data_type()) {
        (Type::Struct(fields), DataType::Struct(given)) => {
            Ok(Shape::Struct(resolve_fields(path, fields, given, table, seen)?))
        }
        (
            Type::List(element),
            DataType::List(given) | DataType::LargeList(given) | DataType::FixedSizeList(given, _),
        ) => {
            let field_path = join_path(path, "element");
            require_id(&field_path, element, given, table, seen)?;
            Ok(Shape::List(Box::new(resolve_type(&field_path, element, given, table, seen)?)))
        }
        (Type::Map(key, value), DataType::Map(entries, _)) => {
            let DataType::Struct(pair) = entries.data_type() else {
                return Err(Fault::new(
                    "parquet_invalid",
                    path,
                    "a map of keys and values",
                    entries.data_type().to_string(),
                ));
            };
            let [keys, values] = &pair[..] else {
                return Err(Fault::new(
                    "parquet_invalid",
                    path,
                    "a map of keys and values",
                    format!("{} fields", pair.len()),
                ));
            };
            let (key_path, value_path) = (join_path(path, "key"), join_path(path, "value"));
            require_id(&key_path, key, keys, table, seen)?;
            require_id(&value_path, value, values, table, seen)?;
            Ok(Shape::Map(
                Box::new(resolve_type(&key_path, key, keys, table, seen)?),
                Box::new(resolve_type(&value_path, value, values, table, seen)?),
            ))
        }
        (Type::Variant, DataType::Struct(parts)) => {
            // The parts of a variant are not columns, so the id of a part could later become the id of a
            // column.
            match parts.iter().find(|part| has_id(part)) {
                Some(part) => Err(Fault::new(
                    "field_id_unknown",
                    &join_path(path, part.name()),
                    "no id inside a variant",
                    "an id",
                )),
                None => Ok(Shape::AsIs),
            }
        }
        // A type that may not be cast is refused when it is bound (`canonical::bind`), with an error that names both.
        _ => Ok(Shape::AsIs),
    }
}

/// Requires the id of a list's element, a map's key or a map's value.
fn require_id(
    path: &str,
    slot: &Slot,
    field: &ArrowField,
    table: &TableColumns,
    seen: &mut HashSet<i32>,
) -> Result<()> {
    let id = read_id(path, field, &table.dropped, seen)?;
    if slot.id == Some(id) {
        return Ok(());
    }
    Err(Fault::new("field_id_unknown", path, slot.id.map_or("none".to_owned(), |id| id.to_string()), id.to_string()))
}

/// Checks the ids inside a dropped column, which is not read. Each must be an id that the table had, and be in the file
/// only once.
fn skip_dropped(path: &str, field: &ArrowField, dropped: &HashSet<i32>, seen: &mut HashSet<i32>) -> Result<()> {
    let children = child_fields(field);
    if !children.iter().any(|child| has_id(child)) {
        return Ok(()); // a variant's parts, for instance
    }
    for child in children {
        let child_path = join_path(path, child.name());
        let id = read_id(&child_path, child, dropped, seen)?;
        if !dropped.contains(&id) {
            return Err(Fault::new("field_id_unknown", &child_path, "ids that the table had", id.to_string()));
        }
        skip_dropped(&child_path, child, dropped, seen)?;
    }
    Ok(())
}

/// Reads a field's id. Refuses a missing, reserved or repeated one.
fn read_id(path: &str, field: &ArrowField, dropped: &HashSet<i32>, seen: &mut HashSet<i32>) -> Result<i32> {
    let Some(text) = field.metadata().get(FIELD_ID) else {
        return Err(Fault::new("field_id_missing", path, "a field id on every column", "none"));
    };
    let id: i32 = text.parse().map_err(|_| Fault::new("field_id_missing", path, "a field id", text.as_str()))?;
    if id >= RESERVED_ID_FIRST && !dropped.contains(&id) {
        return Err(Fault::new("field_id_reserved", path, format!("ids below {RESERVED_ID_FIRST}"), id.to_string()));
    }
    if !seen.insert(id) {
        return Err(Fault::new("field_id_twice", path, "each id once", id.to_string()));
    }
    Ok(id)
}

/// Converts a batch of the file to one of the schema, without copying values.
pub fn apply_shape(shape: &Shape, batch: &StructArray) -> Result<StructArray> {
    match shape {
        Shape::Struct(children) => shape_struct(children, batch),
        _ => Err(Fault::new("parquet_invalid", "", "a file of columns", "something else")),
    }
}

fn shape_struct(children: &[Child], array: &StructArray) -> Result<StructArray> {
    let mut fields = Vec::with_capacity(children.len());
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(children.len());
    for child in children {
        let shaped: ArrayRef = match &child.source {
            None => Arc::new(NullArray::new(array.len())),
            Some((at, shape)) => shape_array(shape, array.column(*at))?,
        };
        fields.push(ArrowField::new(&child.name, shaped.data_type().clone(), true));
        arrays.push(shaped);
    }
    // The length is given, because a struct without children has no array to take it from.
    StructArray::try_new_with_length(fields.into(), arrays, array.nulls().cloned(), array.len()).map_err(invalid)
}

fn shape_array(shape: &Shape, array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match shape {
        Shape::AsIs => array.clone(),
        Shape::Struct(children) => Arc::new(shape_struct(children, array.as_struct())?),
        Shape::List(element) => shape_list(element, array)?,
        Shape::Map(key, value) => {
            let map = array.as_map();
            let (keys, values) = (shape_array(key, map.keys())?, shape_array(value, map.values())?);
            let fields: Fields = vec![
                ArrowField::new("key", keys.data_type().clone(), false),
                ArrowField::new("value", values.data_type().clone(), true),
            ]
            .into();
            let entries = StructArray::try_new(fields.clone(), vec![keys, values], None).map_err(invalid)?;
            let field = Arc::new(ArrowField::new("entries", DataType::Struct(fields), false));
            Arc::new(
                MapArray::try_new(field, map.offsets().clone(), entries, map.nulls().cloned(), false)
                    .map_err(invalid)?,
            )
        }
    })
}

fn shape_list(element: &Shape, array: &ArrayRef) -> Result<ArrayRef> {
    let field = |values: &ArrayRef| Arc::new(ArrowField::new("element", values.data_type().clone(), true));
    Ok(match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let values = shape_array(element, list.values())?;
            Arc::new(
                ListArray::try_new(field(&values), list.offsets().clone(), values, list.nulls().cloned())
                    .map_err(invalid)?,
            )
        }
        DataType::FixedSizeList(_, width) => {
            let list = array.as_fixed_size_list();
            let values = shape_array(element, list.values())?;
            Arc::new(
                FixedSizeListArray::try_new(field(&values), *width, values, list.nulls().cloned()).map_err(invalid)?,
            )
        }
        other => return Err(Fault::new("parquet_invalid", "", "a list", other.to_string())),
    })
}

fn invalid(error: arrow_schema::ArrowError) -> Fault {
    Fault::new("parquet_invalid", "", "columns that fit together", error.to_string())
}
