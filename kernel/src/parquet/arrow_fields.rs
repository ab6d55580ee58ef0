//! Fields of an Arrow schema that was read from a Parquet file: ids, children, leaves and paths.

use arrow_schema::{DataType, Field as ArrowField, FieldRef};

/// Ids from here on belong to Iceberg's metadata columns (row ids, file names, positions).
pub const RESERVED_ID_FIRST: i32 = i32::MAX - 200;
/// The key of a field's id in the metadata of the field.
pub const FIELD_ID: &str = "PARQUET:field_id";

/// The fields of a struct, the element of a list, key and value of a map.
pub fn child_fields(field: &ArrowField) -> Vec<&FieldRef> {
    match field.data_type() {
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => vec![element],
        DataType::Map(entries, _) => child_fields(entries),
        _ => vec![],
    }
}

pub fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether the column or any field inside it has an id.
pub fn has_id(field: &ArrowField) -> bool {
    field.metadata().contains_key(FIELD_ID) || child_fields(field).into_iter().any(|child| has_id(child))
}

/// How many leaves a column of the file has.
pub fn count_leaves(field: &ArrowField) -> usize {
    match field.data_type() {
        kind if kind.is_nested() => child_fields(field).into_iter().map(|child| count_leaves(child)).sum(),
        _ => 1,
    }
}
