//! Tests of `ParquetFile` on small files of the arrow-rs writer.

use crate::canonical::schema::Plan;
use crate::digest::Digester;
use crate::error::Result;
use crate::hash::sha256::HashPath;
use crate::parquet::file::ParquetFile;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_schema::{DataType, Field as ArrowField, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

const SCHEMA: &str = r#"{"type":"struct","fields":[{"id":1,"name":"id","required":true,"type":"long"},
    {"id":2,"name":"town","required":false,"type":"string"}]}"#;

fn file(columns: Vec<(&str, i32, ArrayRef)>) -> Bytes {
    let fields: Vec<ArrowField> = columns
        .iter()
        .map(|(name, id, array)| {
            let metadata = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
            ArrowField::new(*name, array.data_type().clone(), true).with_metadata(metadata)
        })
        .collect();
    let batch =
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, _, array)| array).collect())
            .unwrap();
    let mut data = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    data.into()
}

fn ids() -> ArrayRef {
    Arc::new(Int64Array::from(vec![3, 1, 2]))
}

/// The facts of a file; `more` are further fields of the request.
fn read(data: Bytes, more: &str) -> Result<Value> {
    let plan =
        format!(r#"{{"schema":{SCHEMA},"mode":"stored","construction":"hmac-sha256","projections":[["id","town"]]}}"#);
    let mut digester = Digester::new(Plan::parse(&plan)?, &[[7; 32]], HashPath::available()[0]);
    ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}{more}}}"#))?.read(&mut digester)
}

#[test]
fn facts_are_those_of_the_rows() {
    let towns: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
    let facts = read(file(vec![("id", 1, ids()), ("town", 2, towns)]), r#","buckets":[[1,1],[2,8]]"#).unwrap();
    assert_eq!(facts["rows"], 3);
    assert_eq!(facts["split_offsets"], json!([4]));
    assert_eq!(facts["leaves"][0]["lower"], "0100000000000000");
    assert_eq!(facts["leaves"][0]["upper"], "0300000000000000");
    assert_eq!((&facts["leaves"][1]["nulls"], &facts["leaves"][1]["upper"]), (&json!(1), &json!("62")));
    assert_eq!(facts["buckets"][0], json!([0]));
    assert_eq!(facts["buckets"][1].as_array().unwrap().len(), 2);
}

#[test]
fn a_missing_column_is_null_and_not_present() {
    let facts = read(file(vec![("id", 1, ids())]), r#","buckets":[[2,8]]"#).unwrap();
    let town = &facts["leaves"][1];
    assert_eq!((&town["present"], &town["nulls"], &town["lower"]), (&json!(false), &json!(3), &Value::Null));
    assert_eq!(facts["buckets"][0], json!([null]));
}

#[test]
fn a_needed_column_may_not_be_missing() {
    assert_eq!(read(file(vec![("id", 1, ids())]), r#","needed":[2]"#).unwrap_err().code, "field_default_missing");
}

#[test]
fn ids_beside_the_schema_must_be_those_of_dropped_columns() {
    let data = file(vec![("id", 1, ids()), ("old", 9, ids())]);
    assert_eq!(read(data.clone(), "").unwrap_err().code, "field_id_unknown");
    assert!(read(data, r#","dropped":[9]"#).is_ok());
}

#[test]
fn a_metadata_column_of_iceberg_is_ignored_if_it_is_listed_and_refused_if_not() {
    let data = file(vec![("id", 1, ids()), ("_row_id", 2_147_483_540, ids())]);
    assert_eq!(read(data.clone(), "").unwrap_err().code, "field_id_reserved");
    assert_eq!(read(data.clone(), r#","dropped":[2147483539]"#).unwrap_err().code, "field_id_reserved");
    assert!(read(data, r#","dropped":[2147483540]"#).is_ok());
    let twice = file(vec![("id", 1, ids()), ("a", 2_147_483_540, ids()), ("b", 2_147_483_540, ids())]);
    assert_eq!(read(twice, r#","dropped":[2147483540]"#).unwrap_err().code, "field_id_twice");
}

fn first_batch(data: Bytes, request: Value) -> Result<StructArray> {
    ParquetFile::open(data, &request.to_string())?.batches()?.next().unwrap()
}

fn columns(names: &[(&str, i32, &str)]) -> Value {
    let listed: Vec<Value> =
        names.iter().map(|(name, id, kind)| json!({"id": id, "name": name, "required": false, "type": kind})).collect();
    json!({"type": "struct", "fields": listed})
}

#[test]
fn a_column_that_is_not_asked_for_is_not_decoded_unless_the_file_is_digested() {
    let towns: ArrayRef = Arc::new(StringArray::from(vec!["secret town"; 3]));
    let plain = file(vec![("old", 9, towns), ("id", 1, ids())]);
    let mut data = plain.to_vec();
    let at = data.windows(6).position(|window| window == b"secret").unwrap();
    data[at - 4] = 0xff; // the length of the value, which then exceeds its page
    let request = json!({"schema": columns(&[("id", 1, "long")]), "dropped": [9]});
    assert_eq!(first_batch(data.clone().into(), request).unwrap().column(0).as_ref(), ids().as_ref());
    assert_eq!(read(data.into(), r#","dropped":[9]"#).unwrap_err().code, "parquet_unreadable");
}

#[test]
fn a_missing_column_is_left_out_and_a_column_of_nulls_is_not() {
    let nulls: ArrayRef = Arc::new(arrow_array::NullArray::new(3));
    let data = file(vec![("id", 1, ids()), ("none", 2, nulls)]);
    let request = json!({"schema": columns(&[("id", 1, "long"), ("gone", 3, "int"), ("none", 2, "int")])});
    let batch = first_batch(data, request).unwrap();
    assert_eq!(batch.column_names(), ["id", "none"]);
    assert_eq!(batch.column(1).data_type(), &DataType::Null);
}

#[test]
fn a_request_without_columns_gives_the_row_count_of_the_pages() {
    let batch = first_batch(file(vec![("id", 1, ids())]), json!({"schema": columns(&[]), "dropped": [1]})).unwrap();
    assert_eq!((arrow_array::Array::len(&batch), batch.num_columns()), (3, 0));
}

#[test]
fn a_column_of_another_type_is_refused() {
    let data = file(vec![("id", 1, ids()), ("town", 2, ids())]);
    assert_eq!(read(data, "").unwrap_err().code, "cast_refused");
}

#[test]
fn a_batch_of_long_values_has_few_rows() {
    let long = "x".repeat(10_000_000);
    let towns: ArrayRef = Arc::new(StringArray::from(vec![&long[..]; 3]));
    let data = file(vec![("id", 1, ids()), ("town", 2, towns)]);
    let opened = ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}}}"#)).unwrap();
    assert_eq!(opened.batch_rows, 6);
    assert_eq!(opened.footer.schema().field(0).data_type(), &DataType::Int64);
}
