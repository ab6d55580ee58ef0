//! Tests that batches of a source have the same digest whether they are read as dictionary indices or decoded.

use crate::canonical::schema::Plan;
use crate::digest::Digester;
use crate::error::Result;
use crate::hash::sha256::HashPath;
use crate::parquet::dictionary_columns_tests::*;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, StructArray};
use arrow_schema::DataType;
use bytes::Bytes;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn batches(data: &Bytes, kinds: &[&str], extra_fields: Value) -> Result<Vec<StructArray>> {
    try_open_file(data, kinds, extra_fields)?.batches()?.collect()
}

/// The request's field `stored` with the ids of all columns: each column may be given as dictionary indices.
fn stored(kinds: &[&str]) -> Value {
    json!({"stored": (1..=kinds.len()).collect::<Vec<_>>()})
}

fn sum(batches: &[StructArray], kinds: &[&str]) -> Result<(u64, [u8; 32])> {
    let mut digester = digester(kinds);
    batches.iter().try_for_each(|batch| digester.update(batch))?;
    Ok((digester.rows(), digester.sums()[0].bytes()))
}

fn types(batches: &[StructArray]) -> Vec<DataType> {
    batches[0].columns().iter().map(|column| column.data_type().clone()).collect()
}

/// The columns that the first batch gives as indices. The result has the numbers from their names.
fn by_indices(batches: &[StructArray]) -> Vec<usize> {
    let named = batches[0].column_names().into_iter().zip(types(batches));
    let indexed = named.filter(|(_, kind)| matches!(kind, DataType::Dictionary(_, _)));
    let mut numbers: Vec<usize> = indexed.map(|(name, _)| name[1..].parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn batches_by_indices_have_the_digest_of_plain_ones() {
    for (values, value_at) in ROWS {
        let rows: Vec<Option<i64>> = (0..5_000).map(value_at).collect();
        for (form, configure) in FORMS {
            let data = file(columns(&rows), true, configure(small_pages()));
            let found = batches(&data, &KINDS, stored(&KINDS)).unwrap();
            assert_eq!(sum(&found, &KINDS).unwrap(), decode_plainly(&data, &KINDS).unwrap(), "{values}, {form}");
            if form == "dictionaries" && values != "nulls alone" {
                // The last batch, since the first row group has only nulls in one of the cases.
                assert_eq!(by_indices(&found[2..]), INDEXED.collect::<Vec<_>>(), "{values}");
            } else if form == "plain pages" {
                assert_eq!(by_indices(&found), [0; 0], "{values}");
            }
        }
    }
}

#[test]
fn indices_take_the_position_of_their_column_in_every_projection() {
    let rows: Vec<Option<i64>> = (0..5_000).map(|at| (at % 7 > 0).then_some(at % 89)).collect();
    let data = file(columns(&rows), true, small_pages());
    for asked in [vec![10, 4, 9, 1], vec![8], vec![9, 2], vec![2, 1]] {
        let fields: Vec<Value> = asked
            .iter()
            .map(|at| json!({"id": at + 1, "name": format!("c{at}"), "required": false, "type": KINDS[*at]}))
            .collect();
        let names: Vec<&Value> = fields.iter().map(|field| &field["name"]).collect();
        let schema = json!({"type": "struct", "fields": fields});
        let plan = json!({"schema": schema, "mode": "stored", "construction": "hmac-sha256", "projections": [names]});
        let dropped: Vec<usize> = (1..=KINDS.len()).filter(|id| !asked.contains(&(id - 1))).collect();
        let read = |stored: &[usize]| {
            let request = json!({"schema": schema, "dropped": dropped, "stored": stored});
            let found = batches(&data, &KINDS, request).unwrap();
            let plan = Plan::parse(&plan.to_string()).unwrap();
            let mut digester = Digester::new(plan, &[[7; 32]], HashPath::available()[0]);
            found.iter().for_each(|batch| digester.update(batch).unwrap());
            (by_indices(&found), digester.rows(), digester.sums()[0].bytes())
        };
        let (_, rows, sum) = read(&[]);
        for stored in [&[2, 5][..], &[9, 10], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]] {
            let is_by_indices = |at: &usize| INDEXED.contains(at) && stored.contains(&(at + 1));
            let mut wanted: Vec<usize> = asked.iter().copied().filter(is_by_indices).collect();
            wanted.sort_unstable();
            assert_eq!(read(stored), (wanted, rows, sum), "{asked:?}, {stored:?}");
        }
    }
}

#[test]
fn columns_of_another_type_than_the_schema_says_are_decoded() {
    let rows: Vec<Option<i64>> = (0..5_000).map(|at| Some(at % 89)).collect();
    let data = file(columns(&rows), true, small_pages());
    let wider = [
        "long",
        "decimal(19,0)",
        "timestamp",
        "timestamptz",
        "time_ns",
        "double",
        "float",
        "decimal(9,2)",
        "decimal(16,2)",
        "decimal(26,2)",
        "int",
    ];
    let plain = batches(&data, &wider, json!({})).unwrap();
    assert_eq!(types(&batches(&data, &wider, stored(&wider)).unwrap()), types(&plain));
}

/// Two alternating numbers in four pages of one row group, beside a column without a dictionary.
fn file_with_four_pages() -> Vec<u8> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new((0..40_000).map(|at| Some(if at % 8 < 3 { 17 } else { -4 })).collect::<PrimitiveArray<Int64Type>>()),
        Arc::new((0..40_000).map(|at| Some(at % 5 == 0)).collect::<BooleanArray>()),
    ];
    let properties = WriterProperties::builder().set_data_page_row_count_limit(10_000).set_write_batch_size(10_000);
    file(columns, false, properties).to_vec()
}

#[test]
fn a_page_that_only_the_decoder_reads_is_decoded_from_its_first_row_on() {
    let kinds = ["long", "boolean"];
    let whole = file_with_four_pages();
    let expected = decode_plainly(&whole.clone().into(), &kinds).unwrap();
    // Each page ends with 53 groups of eight indices: a header byte (107), and a byte for each group. If the header
    // is 127, which means 63 groups, only the decoder accepts the page.
    let packed = [vec![107], vec![0xf8; 53]].concat();
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at..].starts_with(&packed)).collect();
    assert_eq!(ends.len(), 4);
    for (page, at) in ends.into_iter().enumerate() {
        let mut data = whole.clone();
        data[at] = 127;
        let found = batches(&data.into(), &kinds, stored(&kinds)).unwrap();
        assert_eq!(found.iter().map(Array::len).collect::<Vec<_>>(), [16_384, 16_384, 7_232]);
        let plain = found.iter().filter(|batch| by_indices(std::slice::from_ref(batch)).is_empty()).count();
        // The first batch that needs rows of the changed page is decoded, and so are all batches after it.
        assert_eq!(plain, [3, 3, 2, 2][page]);
        assert_eq!(sum(&found, &kinds).unwrap(), expected, "page {page}");
    }
}

/// The row count and the sum as text, or why the file is refused.
fn outcome(data: &Bytes, kinds: &[&str], extra_fields: Value) -> String {
    let read = || sum(&batches(data, kinds, extra_fields)?, kinds);
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(found)) => format!("{found:?}"),
        Ok(Err(fault)) => format!("{fault:?}"),
        Err(_) => "a panic".to_owned(),
    }
}

fn few_pages(version: WriterVersion) -> WriterPropertiesBuilder {
    let builder = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    builder.set_writer_version(version).set_data_page_row_count_limit(11).set_write_batch_size(11)
}

/// Flips bits one at a time, in every byte before the footer: `bits_of` gives those of the byte at this position.
fn compare_flipped_bits<const COUNT: usize>(bits_of: impl Fn(usize) -> [usize; COUNT]) {
    let kinds = ["long", "date", "boolean", "decimal(7,2)"];
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for nullable in [true, false] {
            let rows: Vec<Option<i64>> = (0..33).map(|at| (!nullable || at % 4 > 0).then_some(at * at % 5)).collect();
            let all = columns(&rows);
            let picked = [1, 2, 10, 7].map(|at| all[at].clone()).to_vec();
            let whole = file(picked, nullable, few_pages(version));
            assert_eq!(by_indices(&batches(&whole, &kinds, stored(&kinds)).unwrap()), [0, 1, 3]);
            let footer = u32::from_le_bytes(*whole[..whole.len() - 4].last_chunk::<4>().unwrap()) as usize;
            for at in 4..whole.len() - 8 - footer {
                for bit in bits_of(at) {
                    let mut data = whole.to_vec();
                    data[at] ^= 1 << bit;
                    let data = Bytes::from(data);
                    let by_decoder = outcome(&data, &kinds, json!({}));
                    assert_eq!(
                        outcome(&data, &kinds, stored(&kinds)),
                        by_decoder,
                        "byte {at}, bit {bit}, {version:?}, {nullable}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_file_with_a_flipped_bit_in_any_byte_is_read_or_refused_as_by_the_decoder() {
    compare_flipped_bits(|at| [at % 8]);
}

#[test]
#[ignore = "takes ten seconds; a part of `make test-long`"]
fn a_file_with_any_flipped_bit_is_read_or_refused_as_by_the_decoder() {
    compare_flipped_bits(|_| [0, 1, 2, 3, 4, 5, 6, 7]);
}
