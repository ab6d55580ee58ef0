//! Assigns field ids to a file without any, by the names of the columns.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::{FIELD_ID, has_id, join_path};
use arrow_schema::{DataType, Field as ArrowField, FieldRef, Fields};
use std::collections::HashSet;
use std::sync::Arc;

/// Gives the file's columns the ids of the table's columns with the same names, at any depth. A file with any id is
/// left unchanged, because mixing ids and names would be a guess.
pub fn assign_ids(table_fields: &[Field], file: &Fields) -> Result<Fields> {
    if file.iter().any(|field| has_id(field)) {
        return Ok(file.clone());
    }
    assign_field_ids("", table_fields, file)
}

/// Assigns ids to the fields of a struct. Refuses unknown and repeated names.
fn assign_field_ids(path: &str, table_fields: &[Field], file: &Fields) -> Result<Fields> {
    let mut seen = HashSet::new();
    file.iter()
        .map(|field| {
            let field_path = join_path(path, field.name());
            let Some(found) = table_fields.iter().find(|column| column.name == *field.name()) else {
                return Err(Fault::new(
                    "field_name_unknown",
                    &field_path,
                    "names of the schema",
                    field.name().as_str(),
                ));
            };
            if !seen.insert(field.name()) {
                return Err(Fault::new("field_name_twice", &field_path, "each name once", field.name().as_str()));
            }
            with_id(&field_path, &found.slot, field)
        })
        .collect()
}

/// The field with the slot's id, and with ids on all fields inside it.
fn with_id(path: &str, slot: &Slot, field: &ArrowField) -> Result<FieldRef> {
    let kind = match (&slot.kind, field.data_type()) {
        (Type::Struct(fields), DataType::Struct(given)) => DataType::Struct(assign_field_ids(path, fields, given)?),
        (Type::List(element), DataType::List(given)) => {
            DataType::List(with_id(&join_path(path, "element"), element, given)?)
        }
        (Type::Map(key, value), DataType::Map(entries, sorted)) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let keys = with_id(&join_path(path, "key"), key, &pair[0])?;
                let values = with_id(&join_path(path, "value"), value, &pair[1])?;
                let entries_type = DataType::Struct(vec![keys, values].into());
                DataType::Map(Arc::new(entries.as_ref().clone().with_data_type(entries_type)), *sorted)
            }
            _ => field.data_type().clone(),
        },
        // A type that does not fit is refused when the column is read.
        (_, other) => other.clone(),
    };
    let mut metadata = field.metadata().clone();
    metadata.extend(slot.id.map(|id| (FIELD_ID.to_owned(), id.to_string())));
    Ok(Arc::new(field.clone().with_data_type(kind).with_metadata(metadata)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::schema::parse_fields;
    use crate::parquet::arrow_fields::child_fields;
    use serde_json::json;
    use std::collections::HashMap;

    fn named() -> Vec<Field> {
        let place =
            json!({"type": "struct", "fields": [{"id": 3, "name": "town", "required": false, "type": "string"}]});
        let tags = json!({"type": "list", "element": {"id": 5, "required": false, "type": place}});
        let marks = json!({"type": "map", "key": {"id": 7, "required": true, "type": "string"},
            "value": {"id": 8, "required": false, "type": "int"}});
        parse_fields(&json!({"type": "struct", "fields": [
            {"id": 1, "name": "id", "required": true, "type": "long"},
            {"id": 4, "name": "tags", "required": false, "type": tags},
            {"id": 6, "name": "marks", "required": false, "type": marks},
        ]}))
        .unwrap()
    }

    fn plain(name: &str, kind: DataType) -> ArrowField {
        ArrowField::new(name, kind, true)
    }

    fn tags(inside: &str) -> ArrowField {
        let element = plain("array", DataType::Struct(vec![plain(inside, DataType::Utf8)].into()));
        plain("tags", DataType::List(Arc::new(element)))
    }

    /// The ids of the fields and of all fields inside them; an empty text for a field without id.
    fn ids(fields: &Fields) -> Vec<String> {
        let with_inner_ids = |field: &FieldRef| {
            let id = field.metadata().get(FIELD_ID).cloned().unwrap_or_default();
            let children: Fields = child_fields(field).into_iter().cloned().collect();
            [vec![id], ids(&children)].concat()
        };
        fields.iter().flat_map(with_inner_ids).collect()
    }

    fn refusal_code(file: Vec<ArrowField>) -> &'static str {
        assign_ids(&named(), &file.into()).unwrap_err().code
    }

    #[test]
    fn columns_have_the_ids_of_their_names_at_any_depth() {
        let pair = vec![plain("k", DataType::Utf8), plain("v", DataType::Int32)];
        let entries = Arc::new(ArrowField::new("key_value", DataType::Struct(pair.into()), false));
        let marks = plain("marks", DataType::Map(entries, false));
        let file: Fields = vec![marks, tags("town"), plain("id", DataType::Int64)].into();
        assert_eq!(ids(&assign_ids(&named(), &file).unwrap()), ["6", "7", "8", "4", "5", "3", "1"]);
    }

    #[test]
    fn a_name_that_the_schema_does_not_have_or_that_is_there_twice_is_refused() {
        assert_eq!(refusal_code(vec![plain("Id", DataType::Int64)]), "field_name_unknown");
        assert_eq!(refusal_code(vec![tags("zip")]), "field_name_unknown");
        assert_eq!(refusal_code(vec![plain("id", DataType::Int64), plain("id", DataType::Int64)]), "field_name_twice");
    }

    #[test]
    fn a_file_with_any_id_is_not_read_by_names() {
        let metadata = HashMap::from([(FIELD_ID.to_owned(), "3".to_owned())]);
        let town = plain("town", DataType::Utf8).with_metadata(metadata);
        let element = plain("element", DataType::Struct(vec![town].into()));
        let listed = plain("tags", DataType::List(Arc::new(element)));
        let file: Fields = vec![plain("id", DataType::Int64), listed].into();
        assert_eq!(assign_ids(&named(), &file).unwrap(), file);
    }
}
