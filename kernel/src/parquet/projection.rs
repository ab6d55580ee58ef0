//! Selects the leaves of a file that must be decoded for the requested columns.

use crate::parquet::arrow_fields::count_leaves;
use crate::parquet::resolve::{Child, Shape};
use arrow_schema::{DataType, Field as ArrowField, Fields};

/// Whether each leaf of the file is read, in the file's order. At least one is read, because rows are counted by pages,
/// not by the footer.
pub fn select_leaves(shape: &Shape, file: &Fields) -> Vec<bool> {
    let mut found = Vec::new();
    mark_struct(shape, file, &mut found);
    found
}

/// Removes the columns that the file lacks from the shape, so that batches do not have these columns. A column of nulls
/// that the file has stays in the batches.
pub fn drop_absent_columns(shape: Shape) -> Shape {
    match shape {
        Shape::AsIs => Shape::AsIs,
        Shape::Struct(children) => {
            let present = children.into_iter().filter_map(|child| {
                let (at, inner) = child.source?;
                Some(Child { name: child.name, source: Some((at, drop_absent_columns(inner))) })
            });
            Shape::Struct(present.collect())
        }
        Shape::List(element) => Shape::List(Box::new(drop_absent_columns(*element))),
        Shape::Map(key, value) => {
            Shape::Map(Box::new(drop_absent_columns(*key)), Box::new(drop_absent_columns(*value)))
        }
    }
}

/// Appends for each leaf of the struct whether it is read.
fn mark_struct(shape: &Shape, fields: &Fields, found: &mut Vec<bool>) {
    let first = found.len();
    let Shape::Struct(children) = shape else { return };
    for (position, field) in fields.iter().enumerate() {
        let source = children.iter().filter_map(|child| child.source.as_ref()).find(|(at, _)| *at == position);
        match source {
            Some((_, inner)) => mark_column(inner, field, found),
            None => found.extend(std::iter::repeat_n(false, count_leaves(field))),
        }
    }
    // A struct has no page of its own: its leaves say where it is null. So at least one leaf is read.
    if !found[first..].contains(&true)
        && let Some(first_leaf) = found.get_mut(first)
    {
        *first_leaf = true;
    }
}

fn mark_column(shape: &Shape, field: &ArrowField, found: &mut Vec<bool>) {
    match (shape, field.data_type()) {
        (Shape::Struct(_), DataType::Struct(fields)) => mark_struct(shape, fields, found),
        (
            Shape::List(inner),
            DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _),
        ) => mark_column(inner, element, found),
        (Shape::Map(_, inner), DataType::Map(entries, _)) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                // All leaves of a map's keys are read, but only the requested leaves of its values.
                found.extend(std::iter::repeat_n(true, count_leaves(&pair[0])));
                mark_column(inner, &pair[1], found);
            }
            _ => found.extend(std::iter::repeat_n(true, count_leaves(field))),
        },
        _ => found.extend(std::iter::repeat_n(true, count_leaves(field))),
    }
}

/// The position of a column of the file among the columns that are read.
pub fn position_among_read(file: &Fields, is_read: &[bool], at: usize) -> usize {
    let mut leaf = 0;
    let read_before = file[..at].iter().filter(|field| {
        let first = leaf;
        leaf += count_leaves(field);
        is_read[first..leaf].contains(&true)
    });
    read_before.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::schema::parse_fields;
    use crate::parquet::resolve::{TableColumns, resolve_columns};
    use serde_json::{Value, json};
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    fn field(name: &str, id: i32, kind: DataType) -> ArrowField {
        let metadata = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
        ArrowField::new(name, kind, true).with_metadata(metadata)
    }

    fn place() -> ArrowField {
        let inner = vec![field("town", 3, DataType::Utf8), field("zip", 4, DataType::Int32)];
        field("place", 2, DataType::Struct(inner.into()))
    }

    fn file() -> Fields {
        let tags = field("tags", 5, DataType::List(Arc::new(tag_element(6))));
        vec![field("id", 1, DataType::Int64), place(), tags, field("last", 9, DataType::Int64)].into()
    }

    fn tag_element(id: i32) -> ArrowField {
        let inner = vec![field("a", 7, DataType::Utf8), field("b", 8, DataType::Int32)];
        field("element", id, DataType::Struct(inner.into()))
    }

    fn column(id: i32, name: &str, kind: Value) -> Value {
        json!({"id": id, "name": name, "required": false, "type": kind})
    }

    fn structure(fields: Vec<Value>) -> Value {
        json!({"type": "struct", "fields": fields})
    }

    /// The leaves that are read if these columns are asked for.
    fn read(wanted: Vec<Value>) -> Vec<usize> {
        let wanted = parse_fields(&structure(wanted)).unwrap();
        let table = TableColumns { wanted, dropped: (1..20).collect(), needed: HashSet::new(), named: None };
        let is_read = select_leaves(&resolve_columns(&table, &file()).unwrap(), &file());
        assert_eq!(is_read.len(), 6);
        (0..is_read.len()).filter(|at| is_read[*at]).collect()
    }

    #[test]
    fn only_what_is_asked_for_is_read() {
        assert_eq!(read(vec![column(9, "last", json!("long"))]), [5]);
        assert_eq!(read(vec![column(2, "place", structure(vec![column(4, "zip", json!("int"))]))]), [2]);
        let element = json!({"id": 6, "required": false, "type": structure(vec![column(8, "b", json!("int"))])});
        assert_eq!(read(vec![column(5, "tags", json!({"type": "list", "element": element}))]), [4]);
    }

    #[test]
    fn a_struct_of_which_the_file_has_no_field_is_read_for_its_nulls() {
        assert_eq!(read(vec![column(2, "place", structure(vec![column(11, "new", json!("int"))]))]), [1]);
    }

    #[test]
    fn rows_are_counted_where_no_column_is_asked_for() {
        assert_eq!(read(vec![]), [0]);
        assert_eq!(read(vec![column(12, "new", json!("int"))]), [0]);
    }
}
