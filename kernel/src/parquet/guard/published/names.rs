//! Checks names in a published footer: some engines find columns by name, so every name must be the table's.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::join_path;
use parquet::schema::types::Type as Element;
use std::collections::HashSet;

const CODE: &str = "field_renamed";
/// The names of a list's element that all engines read; Arrow writes `item`.
const ELEMENTS: [&str; 2] = ["element", "item"];
/// The names of the group of a map's entries, whose children are key and value.
const ENTRIES: [&str; 3] = ["key_value", "entries", "map"];

/// Refuses names that are not the table's, and names that an engine may take for those of another column.
pub fn require_table_names(table_fields: &[Field], root: &Element) -> Result<()> {
    require_distinct_paths("", root, &mut HashSet::new())?;
    require_field_names("", table_fields, root)
}

/// Refuses paths that are equal in lower case. Trino lower-cases names, and some engines join a path with dots.
fn require_distinct_paths(path: &str, group: &Element, seen: &mut HashSet<String>) -> Result<()> {
    for child in children_of(group) {
        let child_path = join_path(path, child.name());
        if child.name().is_empty() {
            return Err(Fault::new(CODE, &child_path, "a name", "an empty one"));
        }
        if !seen.insert(child_path.to_lowercase()) {
            return Err(Fault::new(CODE, &child_path, "a path that no other column has, in lower case", "one twice"));
        }
        require_distinct_paths(&child_path, child, seen)?;
    }
    Ok(())
}

fn require_field_names(path: &str, table_fields: &[Field], group: &Element) -> Result<()> {
    for (field, child) in fields_of_table(table_fields, group) {
        let field_path = join_path(path, &field.name);
        // An escaped name may be the name of another field of the table.
        let is_name_of_another =
            table_fields.iter().any(|other| other.slot.id != field.slot.id && other.name == child.name());
        if is_name_of_another || !is_name_of(child.name(), &field.name) {
            return Err(Fault::new(CODE, &field_path, field.name.as_str(), child.name()));
        }
        require_names_inside(&field_path, &field.slot, child)?;
    }
    Ok(())
}

/// Checks the names inside a struct, list or map.
fn require_names_inside(path: &str, slot: &Slot, element: &Element) -> Result<()> {
    match &slot.kind {
        Type::Struct(fields) => require_field_names(path, fields, element),
        Type::List(inner) => {
            let element_path = join_path(path, "element");
            let found = match only_child(element) {
                Some(list) if list.name() == "list" => {
                    only_child(list).filter(|found| ELEMENTS.contains(&found.name()))
                }
                _ => None,
            };
            let found = found.ok_or_else(|| Fault::new(CODE, &element_path, "list.element", list_names(element)))?;
            require_names_inside(&element_path, inner, found)
        }
        Type::Map(key, value) => {
            let entries = only_child(element).filter(|entries| ENTRIES.contains(&entries.name()));
            // DuckDB finds keys and values by their names.
            match entries.map_or(&[][..], children_of) {
                [keys, values] if keys.name() == "key" && values.name() == "value" => {
                    require_names_inside(&join_path(path, "key"), key, keys)?;
                    require_names_inside(&join_path(path, "value"), value, values)
                }
                _ => Err(Fault::new(CODE, path, "key_value.key and key_value.value", list_names(element))),
            }
        }
        _ => Ok(()),
    }
}

/// For each child of a group whose id the table has: the table's field with this id, and the child.
pub fn fields_of_table<'a>(
    table_fields: &'a [Field],
    group: &'a Element,
) -> impl Iterator<Item = (&'a Field, &'a Element)> {
    children_of(group).iter().filter_map(|child| {
        let info = child.get_basic_info();
        let id = info.has_id().then(|| info.id())?;
        table_fields.iter().find(|field| field.slot.id == Some(id)).map(|field| (field, child.as_ref()))
    })
}

pub fn children_of(element: &Element) -> &[std::sync::Arc<Element>] {
    if element.is_group() { element.get_fields() } else { &[] }
}

/// The child of a group that has only one child.
pub fn only_child(element: &Element) -> Option<&Element> {
    match children_of(element) {
        [child] => Some(child),
        _ => None,
    }
}

/// The names of children and grandchildren, for a message.
fn list_names(element: &Element) -> String {
    let show = |child: &Element| {
        let names: Vec<_> = children_of(child).iter().map(|grandchild| grandchild.name()).collect();
        format!("{}({})", child.name(), names.join(", "))
    };
    children_of(element).iter().map(|child| show(child)).collect::<Vec<_>>().join(", ")
}

/// Whether a name in the file is that of the table: equal, or escaped as an Avro name, as Iceberg's Java and Python
/// writers do.
fn is_name_of(file: &str, table: &str) -> bool {
    if file == table {
        return true;
    }
    let mut rest = file;
    for (at, character) in table.chars().enumerate() {
        match escapes(character, at == 0).iter().find_map(|escape| rest.strip_prefix(escape.as_str())) {
            Some(left) => rest = left,
            None => return false,
        }
    }
    rest.is_empty()
}

/// The forms of a character in Avro names. `first` says whether the character begins the name. For characters beyond
/// U+FFFF, Iceberg's Java writers escape each UTF-16 unit, and its Python writer escapes the whole character.
fn escapes(character: char, first: bool) -> Vec<String> {
    let itself = character.to_string();
    if character == '_' || character.is_ascii_alphabetic() || character.is_ascii_digit() && !first {
        return vec![itself];
    }
    if character.is_ascii_digit() {
        return vec![format!("_{character}")];
    }
    let whole_character = format!("_x{:X}", u32::from(character));
    if character.is_ascii() {
        return vec![whole_character];
    }
    let utf16_units = character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("_x{unit:X}")).collect();
    let mut forms = vec![itself, utf16_units, whole_character];
    if first && character.is_numeric() {
        forms.push(format!("_{character}"));
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_tables_as_it_is_or_escaped_as_iceberg_escapes_it() {
        for (file, table) in [
            ("a b", "a b"),
            ("a_x20b", "a b"),
            ("_1st", "1st"),
            ("a_x2Eb", "a.b"),
            ("größe", "größe"),
            ("_xD83D_xDE00", "😀"),
            ("_x1F600", "😀"),
        ] {
            assert!(is_name_of(file, table), "{file} for {table}");
        }
        for (file, table) in
            [("A", "a"), ("a_x20", "a b"), ("a_x20bc", "a b"), ("_x61", "a"), ("1st_", "1st"), ("", "a")]
        {
            assert!(!is_name_of(file, table), "{file} for {table}");
        }
    }

    #[test]
    fn lower_case_is_that_of_java() {
        assert_eq!("İ".to_lowercase(), "i\u{307}");
        assert_eq!("ΑΣ".to_lowercase(), "ας");
    }
}
