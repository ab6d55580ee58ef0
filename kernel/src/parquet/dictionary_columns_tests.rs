//! Tests that rows have the same digest whether they are read as dictionary indices or decoded.

use crate::canonical::schema::Plan;
use crate::digest::Digester;
use crate::error::Result;
use crate::hash::sha256::HashPath;
use crate::parquet::file::ParquetFile;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch};
use arrow_schema::{Field, Schema};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// The types of the test file's columns.
pub const KINDS: [&str; 11] = [
    "int",
    "long",
    "date",
    "timestamp",
    "time",
    "float",
    "double",
    "decimal(7,2)",
    "decimal(15,2)",
    "decimal(25,2)",
    "boolean",
];

/// The positions of the columns that are read as indices, if their pages use a small dictionary.
pub const INDEXED: std::ops::Range<usize> = 0..9;
/// Gives the value of a row by its number.
pub type ValueAt = fn(i64) -> Option<i64>;
/// Configures how a file is written.
pub type Configure = fn(WriterPropertiesBuilder) -> WriterPropertiesBuilder;

pub const ROWS: [(&str, ValueAt); 5] = [
    ("some nulls", |at| (at % 7 > 0).then_some(at * at % 97)),
    ("no nulls", |at| Some(at % 89)),
    ("nulls alone", |_| None),
    ("a row group and pages of nulls", |at| (at > 1_700 && at % 1_000 < 400).then_some(at % 60)),
    ("runs", |at| (at / 40 % 3 > 0).then_some(at / 100)),
];

pub const FORMS: [(&str, Configure); 4] = [
    ("dictionaries", |builder| builder),
    ("pages of the second version", |builder| builder.set_writer_version(WriterVersion::PARQUET_2_0)),
    ("plain pages behind a dictionary", |builder| builder.set_dictionary_page_size_limit(64)),
    ("plain pages", |builder| builder.set_dictionary_enabled(false)),
];

fn schema(kinds: &[&str]) -> Value {
    let fields: Vec<Value> = kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| json!({"id": at + 1, "name": format!("c{at}"), "required": false, "type": kind}))
        .collect();
    json!({"type": "struct", "fields": fields})
}

fn numbers<T: ArrowPrimitiveType>(values: &[Option<i64>], convert: impl Fn(i64) -> T::Native) -> PrimitiveArray<T> {
    values.iter().map(|value| value.map(&convert)).collect()
}

/// One column of each type. A float also has NaN with any payload, and signed zeros.
pub fn columns(values: &[Option<i64>]) -> Vec<ArrayRef> {
    let single = |value: i64| match value % 5 {
        0 => f32::from_bits(0x7fc0_0000 + value as u32 % 3),
        1 => -0.0,
        _ => value as f32 / 8.0,
    };
    let double = |value: i64| match value % 5 {
        0 => f64::from_bits(0x7ff8_0000_0000_0000 + value as u64 % 3),
        1 => -0.0,
        _ => value as f64 / 8.0,
    };
    let (short, middle) = (numbers::<Decimal128Type>(values, |v| v.into()), |v: i64| i128::from(v) * 99_999_999);
    vec![
        Arc::new(numbers::<Int32Type>(values, |value| value as i32 - 50)),
        Arc::new(numbers::<Int64Type>(values, |value| value * -7_777_777_777_777)),
        Arc::new(numbers::<Date32Type>(values, |value| value as i32 * 31 - 9_000)),
        Arc::new(numbers::<TimestampMicrosecondType>(values, |value| value * 1_000_000_007)),
        Arc::new(numbers::<Time64MicrosecondType>(values, |value| value % 86_400)),
        Arc::new(numbers::<Float32Type>(values, single)),
        Arc::new(numbers::<Float64Type>(values, double)),
        Arc::new(short.with_precision_and_scale(7, 2).unwrap()),
        Arc::new(numbers::<Decimal128Type>(values, middle).with_precision_and_scale(15, 2).unwrap()),
        Arc::new(numbers::<Decimal128Type>(values, middle).with_precision_and_scale(25, 2).unwrap()),
        Arc::new(values.iter().map(|value| value.map(|value| value % 2 == 0)).collect::<BooleanArray>()),
    ]
}

pub fn file(columns: Vec<ArrayRef>, nullable: bool, properties: WriterPropertiesBuilder) -> Bytes {
    let named = columns.iter().enumerate().map(|(at, array)| {
        let metadata = HashMap::from([("PARQUET:field_id".to_owned(), (at + 1).to_string())]);
        Field::new(format!("c{at}"), array.data_type().clone(), nullable).with_metadata(metadata)
    });
    let batch = RecordBatch::try_new(Arc::new(Schema::new(named.collect::<Vec<_>>())), columns).unwrap();
    let mut data = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), Some(properties.build())).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    data.into()
}

pub fn digester(kinds: &[&str]) -> Digester {
    let names: Vec<String> = (0..kinds.len()).map(|at| format!("c{at}")).collect();
    let plan =
        json!({"schema": schema(kinds), "mode": "stored", "construction": "hmac-sha256", "projections": [names]});
    Digester::new(Plan::parse(&plan.to_string()).unwrap(), &[[7; 32]], HashPath::available()[0])
}

fn open_file(data: &Bytes, kinds: &[&str], more: Value) -> ParquetFile {
    try_open_file(data, kinds, more).unwrap()
}

pub fn try_open_file(data: &Bytes, kinds: &[&str], more: Value) -> Result<ParquetFile> {
    let mut request = json!({"schema": schema(kinds)});
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ParquetFile::open(data.clone(), &request.to_string())
}

/// Row count and sum, read as indices where that is possible.
fn read(data: &Bytes, kinds: &[&str]) -> Result<(u64, [u8; 32])> {
    let mut digester = digester(kinds);
    open_file(data, kinds, json!({})).read(&mut digester)?;
    Ok((digester.rows(), digester.sums()[0].bytes()))
}

/// Row count and sum from the decoder's values alone.
pub fn decode_plainly(data: &Bytes, kinds: &[&str]) -> Result<(u64, [u8; 32])> {
    let mut digester = digester(kinds);
    open_file(data, kinds, json!({})).all_batches()?.try_for_each(|batch| digester.update(&batch?))?;
    Ok((digester.rows(), digester.sums()[0].bytes()))
}

/// For each row group, the columns that are read as indices.
fn find_indexed_columns(data: &Bytes, kinds: &[&str], inspected: Option<&str>) -> Vec<Vec<usize>> {
    let groups =
        open_file(data, kinds, json!({})).dictionary_columns_by_group(16_384, |field| inspected == Some(&field.name));
    groups.iter().map(|group| group.iter().map(|column| column.at).collect()).collect()
}

pub fn small_pages() -> WriterPropertiesBuilder {
    let builder = WriterProperties::builder().set_max_row_group_row_count(Some(1_700));
    builder.set_data_page_row_count_limit(300).set_write_batch_size(100)
}

#[test]
fn rows_by_indices_have_the_digest_of_decoded_rows() {
    for (values, value_at) in ROWS {
        let rows: Vec<Option<i64>> = (0..5_000).map(value_at).collect();
        for (form, configure) in FORMS {
            let data = file(columns(&rows), true, configure(small_pages()));
            let (by_indices, decoded) = (read(&data, &KINDS).unwrap(), decode_plainly(&data, &KINDS).unwrap());
            assert_eq!(by_indices, decoded, "{values}, {form}");
            assert!(matches!(by_indices, (5_000, _)), "{values}, {form}");
            if form == "dictionaries" && values != "nulls alone" {
                assert_eq!(find_indexed_columns(&data, &KINDS, None)[2], INDEXED.collect::<Vec<_>>(), "{values}");
            } else if form == "plain pages" {
                assert_eq!(find_indexed_columns(&data, &KINDS, None), [[0_usize; 0]; 3], "{values}");
            }
        }
    }
}

#[test]
fn inspected_columns_are_decoded() {
    let rows: Vec<Option<i64>> = (0..5_000).map(|at| Some(at % 89)).collect();
    let data = file(columns(&rows), true, small_pages());
    assert_eq!(find_indexed_columns(&data, &KINDS, Some("c1"))[0], [0, 2, 3, 4, 5, 6, 7, 8]);
    let mut digester = digester(&KINDS);
    let facts = open_file(&data, &KINDS, json!({"buckets": [[2, 4], [3, 4]]})).read(&mut digester).unwrap();
    assert_eq!(facts["buckets"][0].as_array().unwrap().len(), 2);
    for column_idx in INDEXED {
        let by = SortingColumn { column_idx: column_idx as i32, descending: false, nulls_first: true };
        let data = file(columns(&rows), true, small_pages().set_sorting_columns(Some(vec![by])));
        assert_eq!(read(&data, &KINDS).unwrap_err().code, "parquet_sorting_lies", "column {column_idx}");
    }
}

#[test]
fn rows_are_kept_for_as_many_columns_as_memory_allows() {
    let rows: Vec<Option<i64>> = (0..100).map(Some).collect();
    let opened = open_file(&file(columns(&rows), true, small_pages()), &KINDS, json!({}));
    let count_columns = |batch_rows| opened.dictionary_columns_by_group(batch_rows, |_| false)[0].len();
    // With batches of 99 rows, only the dictionaries of the floats have as few values as a batch has rows. With larger
    // batches memory is enough for all columns, then for three, then for none.
    assert_eq!([99, 100, 5_000_000, 17_000_000].map(count_columns), [2, 9, 3, 0]);
}

/// Eight rows of one number and eight of another, in a file without statistics. The page has the index bytes 1, 16, 0,
/// 16, 1: indices of one bit, eight times (16 / 2) the index 0, and eight times the index 1.
fn two_runs(nullable: bool) -> Vec<u8> {
    let values: Vec<i64> = [[0x1122_3344_5566_7788; 8], [0x0102_0304_0506_0708; 8]].concat();
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    file(vec![Arc::new(PrimitiveArray::<Int64Type>::from(values))], nullable, properties).to_vec()
}

/// Replaces the first occurrence of `from` by `to`.
fn patch(mut data: Vec<u8>, from: &[u8], to: &[u8]) -> Bytes {
    let at = data.windows(from.len()).position(|window| window == from).unwrap();
    data[at..at + to.len()].copy_from_slice(to);
    data.into()
}

#[test]
fn dictionaries_may_name_a_value_twice_and_values_that_no_row_has() {
    let (first, second) = (0x1122_3344_5566_7788_i64.to_le_bytes(), 0x0102_0304_0506_0708_i64.to_le_bytes());
    let alike = file(
        vec![Arc::new(PrimitiveArray::<Int64Type>::from(vec![0x1122_3344_5566_7788; 16]))],
        false,
        WriterProperties::builder(),
    );
    let expected = decode_plainly(&alike, &["long"]).unwrap();
    let twice = patch(two_runs(false), &[first, second].concat(), &[first, first].concat());
    let unused = patch(two_runs(false), &[1, 16, 0, 16, 1], &[1, 16, 0, 16, 0]);
    for data in [alike, twice, unused] {
        assert_eq!(find_indexed_columns(&data, &["long"], None), [[0]]);
        assert_eq!(read(&data, &["long"]).unwrap(), expected);
    }
}

#[test]
fn indices_that_no_decoder_accepts_are_refused() {
    let all: [(bool, &[u8], &[u8]); 4] = [
        // An index outside the dictionary, indices of too many bits, and too few indices, without and with levels.
        (false, &[1, 16, 0, 16, 1], &[2, 16, 0, 16, 3]),
        (false, &[1, 16, 0, 16, 1], &[33, 16, 0, 16, 1]),
        (false, &[1, 16, 0, 16, 1], &[1, 16, 0, 14, 1]),
        (true, &[1, 16, 0, 16, 1], &[1, 16, 0, 14, 1]),
    ];
    for (nullable, from, to) in all {
        let data = patch(two_runs(nullable), from, to);
        assert_eq!(find_indexed_columns(&data, &["long"], None), [[0]]);
        assert!(read(&data, &["long"]).is_err() && decode_plainly(&data, &["long"]).is_err(), "{to:?}");
    }
}

#[test]
fn values_that_do_not_fit_their_type_are_refused_only_where_a_row_has_one() {
    let values = [[1_234_567; 8], [7_654_321; 8]].concat();
    let array = numbers::<Decimal128Type>(&values.into_iter().map(Some).collect::<Vec<_>>(), |value| value.into());
    let array = array.with_precision_and_scale(7, 2).unwrap();
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    let data = file(vec![Arc::new(array)], false, properties).to_vec();
    // Nine digits, two more than the decimal may have.
    let wide = patch(data, &7_654_321_i32.to_le_bytes(), &999_999_999_i32.to_le_bytes());
    let fault = read(&wide, &["decimal(7,2)"]).unwrap_err();
    assert_eq!(fault.code, decode_plainly(&wide, &["decimal(7,2)"]).unwrap_err().code);
    let unused = patch(wide.to_vec(), &[1, 16, 0, 16, 1], &[1, 16, 0, 16, 0]);
    assert_eq!(read(&unused, &["decimal(7,2)"]).unwrap(), decode_plainly(&unused, &["decimal(7,2)"]).unwrap());
}
