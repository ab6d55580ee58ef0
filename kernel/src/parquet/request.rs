//! The request for a file: what the caller knows of its columns, and how the file is to be read.

use crate::canonical::schema::{parse_fields, parse_value};
use crate::error::{Fault, Result};
use crate::parquet::resolve::TableColumns;
use crate::parquet::rewrite::elements::{Name, Names};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

/// The fields of `FileRequest` in `pvdm.digest.file_facts`, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The table's columns, with their field ids.
    #[serde(default)]
    schema: Value,
    /// Ids that the table once had; a file may still have them.
    #[serde(default)]
    dropped: Vec<i64>,
    /// Ids of optional columns that a file must have.
    #[serde(default)]
    needed: Vec<i64>,
    /// Every column by name, for a file without field ids. If it is absent, a file without field ids is refused.
    named: Option<Value>,
    /// Pairs of a column's id and a number of buckets.
    #[serde(default)]
    pub buckets: Vec<(i64, i64)>,
    /// A file that declares more rows is refused.
    rows_max: Option<i64>,
    /// Ids of columns that batches may have in the file's own encoding, for example as indices of a dictionary.
    #[serde(default)]
    stored: Vec<i64>,
    /// Pairs of a struct field's id and its name in published files, in the table's order.
    #[serde(default)]
    names: Vec<(i64, String)>,
    /// Whether consumers read the footer that the producer wrote.
    #[serde(default = "default_footer_published")]
    pub footer_published: bool,
    /// Whether a file is refused, before batches are given, if its statistics, indexes or filters are wrong.
    #[serde(default)]
    pub claims_checked: bool,
    /// The offset at which the first split begins, if consumers read the file in splits.
    #[serde(default)]
    parts_from: i64,
}

fn default_footer_published() -> bool {
    true
}

impl Request {
    /// Refuses text that is not JSON, unknown fields, and values of another type.
    pub fn parse(json: &str) -> Result<Request> {
        Request::deserialize(parse_value(json)?).map_err(|error| {
            Fault::new("request_invalid", "", "the fields of a file request with their types", error.to_string())
        })
    }

    /// The columns of `schema`, `dropped`, `needed` and `named`. Refuses a schema that cannot be parsed.
    pub fn table_columns(&self) -> Result<TableColumns> {
        Ok(TableColumns {
            wanted: parse_fields(&self.schema)?,
            dropped: to_ids(&self.dropped),
            needed: to_ids(&self.needed),
            named: self.named.as_ref().map(parse_fields).transpose()?,
        })
    }

    /// The most rows that the file may declare. A negative number sets no limit.
    pub fn rows_max(&self) -> Option<u64> {
        self.rows_max.and_then(|rows| u64::try_from(rows).ok())
    }

    /// The ids of `stored`.
    pub fn stored(&self) -> HashSet<i32> {
        to_ids(&self.stored)
    }

    /// `parts_from` as a position in the file; 0 for a negative number.
    pub fn first_split_start(&self) -> usize {
        usize::try_from(self.parts_from).unwrap_or(0)
    }

    /// The name of each struct field in published files, by id.
    pub fn published_names(&self) -> Names {
        let pairs = self.names.iter().enumerate().filter_map(|(position, (id, text))| {
            Some((i32::try_from(*id).ok()?, Name { position, text: text.clone() }))
        });
        pairs.collect()
    }
}

/// Drops numbers that cannot be field ids.
fn to_ids(listed: &[i64]) -> HashSet<i32> {
    listed.iter().filter_map(|id| i32::try_from(*id).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(json: &str) -> &'static str {
        Request::parse(json).and_then(|request| request.table_columns()).map_or_else(|fault| fault.code, |_| "")
    }

    #[test]
    fn an_empty_request_has_no_schema() {
        assert_eq!(code("{}"), "schema_invalid");
        assert_eq!(code(r#"{"schema":{"type":"struct","fields":[]}}"#), "");
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        assert_eq!(code("{"), "schema_invalid");
    }

    #[test]
    fn an_unknown_field_and_a_field_of_another_type_are_refused() {
        for json in [r#"{"stroed":[1]}"#, r#"{"stored":1}"#, r#"{"buckets":[[1]]}"#, r#"{"rows_max":"many"}"#] {
            assert_eq!(code(json), "request_invalid", "{json}");
        }
    }

    #[test]
    fn fields_that_are_absent_have_their_defaults() {
        let request = Request::parse("{}").unwrap();
        assert!(request.footer_published && !request.claims_checked && request.buckets.is_empty());
        assert_eq!((request.rows_max(), request.first_split_start()), (None, 0));
    }

    #[test]
    fn numbers_below_zero_set_no_limit_and_no_part() {
        let request = Request::parse(r#"{"rows_max":-1,"parts_from":-1}"#).unwrap();
        assert_eq!((request.rows_max(), request.first_split_start()), (None, 0));
    }
}
