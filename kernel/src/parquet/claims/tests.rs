//! Tests with files that the arrow-rs writer makes under many settings. Their claims (what a file says about its
//! values, see mod.rs) pass if they are correct, and are refused otherwise.

use crate::canonical::schema::Plan;
use crate::digest::Digester;
use crate::error::Result;
use crate::hash::sha256::HashPath;
use crate::parquet::claims::check::Claims;
use crate::parquet::file::ParquetFile;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{ParquetMetaDataReader, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

const SCHEMA: &str = r#"{"type":"struct","fields":[{"id":1,"name":"id","required":false,"type":"long"},
    {"id":2,"name":"town","required":false,"type":"string"},{"id":3,"name":"ratio","required":false,"type":"double"},
    {"id":4,"name":"tags","required":false,
     "type":{"type":"list","element":{"id":5,"required":false,"type":"long"}}}]}"#;

fn field(name: &str, kind: DataType, id: i32) -> Field {
    Field::new(name, kind, true).with_metadata(HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]))
}

fn file(properties: WriterPropertiesBuilder, ratio: impl Fn(i64) -> Option<f64>) -> Bytes {
    let rows = 0..500_i64;
    let element = Arc::new(field("element", DataType::Int64, 5));
    let lists = rows.clone().map(|at| (at % 3 > 0).then(|| vec![Some(at), None].into_iter().take((at % 4) as usize)));
    let tags = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let (_, offsets, values, nulls) = tags.into_parts(); // to build the list again, with the element's field id
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.clone().map(Some).collect::<Int64Array>()),
        Arc::new(
            rows.clone().map(|at| (at % 7 > 0).then(|| format!("{}é{at}", "x".repeat(80)))).collect::<StringArray>(),
        ),
        Arc::new(rows.map(ratio).collect::<Float64Array>()),
        Arc::new(ListArray::new(element.clone(), offsets, values, nulls)),
    ];
    let fields = vec![
        field("id", DataType::Int64, 1),
        field("town", DataType::Utf8, 2),
        field("ratio", DataType::Float64, 3),
        field("tags", DataType::List(element), 4),
    ];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let mut data = Vec::new();
    let properties = properties.set_max_row_group_row_count(Some(200)).set_data_page_row_count_limit(30);
    let properties = properties.set_write_batch_size(10).build();
    let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    data.into()
}

fn read(data: Bytes) -> Result<Value> {
    let plan = format!(r#"{{"schema":{SCHEMA},"mode":"stored","construction":"hmac-sha256","projections":[["id"]]}}"#);
    let mut digester = Digester::new(Plan::parse(&plan)?, &[[7; 32]], HashPath::available()[0]);
    ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}}}"#))?.read(&mut digester)
}

fn ratio(at: i64) -> Option<f64> {
    (at % 5 > 0).then_some(if at % 3 == 0 { f64::NAN } else { at as f64 - 250.0 })
}

#[test]
fn files_of_arrow_rs_pass_under_these_settings() {
    let by_id = SortingColumn { column_idx: 0, descending: false, nulls_first: true };
    let all = [
        WriterProperties::builder(),
        WriterProperties::builder().set_bloom_filter_enabled(true),
        WriterProperties::builder().set_bloom_filter_enabled(true).set_dictionary_enabled(false),
        WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0),
        WriterProperties::builder().set_statistics_enabled(EnabledStatistics::Page),
        WriterProperties::builder().set_write_page_header_statistics(true),
        WriterProperties::builder().set_statistics_truncate_length(Some(20)).set_column_index_truncate_length(Some(5)),
        WriterProperties::builder().set_dictionary_page_size_limit(100).set_compression(Compression::SNAPPY),
        WriterProperties::builder().set_dictionary_enabled(false).set_encoding(Encoding::PLAIN),
        WriterProperties::builder().set_sorting_columns(Some(vec![by_id])),
        WriterProperties::builder().set_compression(Compression::LZ4_RAW),
    ];
    for (at, properties) in all.into_iter().enumerate() {
        assert_eq!(read(file(properties, ratio)).unwrap()["rows"], 500, "properties {at}");
    }
}

#[test]
fn a_column_of_nothing_but_nan_passes_without_a_column_index() {
    let properties = || WriterProperties::builder().set_statistics_enabled(EnabledStatistics::Chunk);
    let facts = read(file(properties(), |_| Some(f64::NAN))).unwrap();
    let counted = facts["leaves"].as_array().unwrap().iter().find(|leaf| !leaf["nans"].is_null());
    assert_eq!(counted.unwrap()["nans"], 500);
}

#[test]
fn pages_that_the_decoder_did_not_read_are_refused() {
    let data = file(WriterProperties::builder(), ratio);
    let footer = ParquetMetaDataReader::new().parse_and_finish(&data).unwrap();
    let claims = Claims::read(&data, &footer).unwrap();
    let fault = claims.compare(1, &claims.start_measures(1).unwrap()).unwrap_err();
    assert_eq!((fault.code, fault.group, &fault.column[..]), ("parquet_ambiguous", Some(1), "id"));
}

#[test]
fn rows_that_are_not_in_the_declared_order_are_refused() {
    let by = SortingColumn { column_idx: 0, descending: true, nulls_first: true };
    let data = file(WriterProperties::builder().set_sorting_columns(Some(vec![by])), ratio);
    let fault = read(data).unwrap_err();
    assert_eq!((fault.code, fault.group, &fault.column[..]), ("parquet_sorting_lies", Some(0), "id"));
}

#[test]
fn a_codec_that_not_every_engine_reads_is_refused_by_its_name() {
    for (codec, name) in [(Compression::BROTLI(Default::default()), "BROTLI"), (Compression::LZ4, "LZ4")] {
        let fault = read(file(WriterProperties::builder().set_compression(codec), ratio)).unwrap_err();
        assert_eq!((fault.code, &fault.got[..]), ("parquet_codec_unsupported", name));
    }
}
