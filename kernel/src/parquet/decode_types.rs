//! Chooses the types in which a row group is decoded: dictionary strings and narrow decimals, if that is less work.

use crate::canonical::schema::{Field, Type};
use crate::parquet::arrow_fields::count_leaves;
use crate::parquet::resolve::Shape;
use arrow_schema::{DataType, Field as ArrowField, Fields};
use parquet::basic::{ConvertedType, Type as Physical};
use parquet::schema::types::SchemaDescriptor;

/// Every decimal with at most this many digits fits 64 bits.
const DIGITS_MAX_64: u8 = 18;
/// Every decimal with at most this many digits fits 32 bits.
const DIGITS_MAX_32: u8 = 9;

/// Returns the file's fields, with faster types to decode where the canonical bytes of the values stay the same.
/// `shape` says where the table's fields (`wanted`) are in the `file`. `has_dictionary` says whether all pages of a
/// leaf use a small dictionary, and `is_inspected` whether anything but a digest reads a column's values.
pub fn choose_decode_types(
    (wanted, shape, file): (&[Field], &Shape, &Fields),
    columns: &SchemaDescriptor,
    has_dictionary: impl Fn(usize) -> bool,
    is_inspected: impl Fn(&Field, &ArrowField) -> bool,
) -> Fields {
    let mut fields = file.to_vec();
    let Shape::Struct(children) = shape else { return file.clone() };
    for (field, child) in wanted.iter().zip(children) {
        let Some((at, Shape::AsIs)) = &child.source else { continue };
        let at = *at;
        let leaf: usize = file[..at].iter().map(|field| count_leaves(field)).sum();
        if leaf >= columns.num_columns() || is_inspected(field, &file[at]) {
            continue;
        }
        let column = columns.column(leaf);
        let kind = match (&field.slot.kind, file[at].data_type()) {
            (Type::String, DataType::Utf8)
                if column.converted_type() == ConvertedType::UTF8 && has_dictionary(leaf) =>
            {
                DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
            }
            _ => match narrow_decimal(field, &file[at], column.physical_type()) {
                Some(kind @ DataType::Decimal64(_, _)) => kind,
                _ => continue, // only `dictionary_columns` narrows decimals to 32 bits
            },
        };
        fields[at] = file[at].as_ref().clone().with_data_type(kind).into();
    }
    fields.into()
}

/// The type of a decimal at the width in which the file stores it. Returns `None` if that is more than 64 bits, or if
/// the decimal does not fit the schema; `canonical::bind` then casts or refuses it.
pub fn narrow_decimal(field: &Field, of_file: &ArrowField, physical: Physical) -> Option<DataType> {
    let Type::Decimal { precision, scale, declared: None } = &field.slot.kind else { return None };
    let DataType::Decimal128(given_precision, given_scale) = *of_file.data_type() else { return None };
    if given_precision > *precision || i32::from(given_scale) != i32::from(*scale) {
        return None;
    }
    match physical {
        Physical::INT32 if given_precision <= DIGITS_MAX_32 => Some(DataType::Decimal32(given_precision, given_scale)),
        Physical::INT64 if given_precision <= DIGITS_MAX_64 => Some(DataType::Decimal64(given_precision, given_scale)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::canonical::schema::Plan;
    use crate::digest::Digester;
    use crate::error::Result;
    use crate::hash::sha256::HashPath;
    use crate::parquet::file::ParquetFile;
    use arrow_array::types::Decimal128Type;
    use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, StringArray, StructArray};
    use arrow_schema::{DataType, Field, Schema};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::SortingColumn;
    use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
    use serde_json::{Value, json};
    use std::collections::HashMap;
    use std::sync::Arc;

    const SCHEMA: &str = r#"{"type":"struct","fields":[{"id":1,"name":"town","required":false,"type":"string"},
        {"id":2,"name":"note","required":false,"type":"string"},
        {"id":3,"name":"price","required":false,"type":"decimal(15,2)"}]}"#;

    /// Towns repeat, notes do not; prices are as long as their column allows.
    fn file(properties: WriterPropertiesBuilder, town: impl Fn(i64) -> Option<String>) -> Bytes {
        let rows = 0..5_000_i64;
        let prices = rows.clone().map(|at| (at % 11 > 0).then(|| i128::from(at - 2_500) * 399_999_999_999));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(rows.clone().map(town).collect::<StringArray>()),
            Arc::new(rows.map(|at| (at % 3 > 0).then(|| format!("note {at}"))).collect::<StringArray>()),
            Arc::new(prices.collect::<PrimitiveArray<Decimal128Type>>().with_precision_and_scale(15, 2).unwrap()),
        ];
        let named =
            ["town", "note", "price"].into_iter().zip(&columns).zip(["1", "2", "3"]).map(|((name, array), id)| {
                let metadata = HashMap::from([("PARQUET:field_id".to_owned(), id.to_owned())]);
                Field::new(name, array.data_type().clone(), true).with_metadata(metadata)
            });
        let batch = RecordBatch::try_new(Arc::new(Schema::new(named.collect::<Vec<_>>())), columns).unwrap();
        let mut data = Vec::new();
        let properties = properties.set_max_row_group_row_count(Some(1_700)).set_data_page_row_count_limit(300).build();
        let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        data.into()
    }

    fn digester() -> Digester {
        let plan = format!(
            r#"{{"schema":{SCHEMA},"mode":"stored","construction":"hmac-sha256","projections":[["town","note","price"]]}}"#
        );
        Digester::new(Plan::parse(&plan).unwrap(), &[[7; 32]], HashPath::available()[0])
    }

    /// Facts, row count and sum of a file; `more` are further fields of the request.
    fn read(data: &Bytes, more: &str) -> Result<(Value, u64, [u8; 32])> {
        let mut digester = digester();
        let facts = ParquetFile::open(data.clone(), &format!(r#"{{"schema":{SCHEMA}{more}}}"#))?.read(&mut digester)?;
        Ok((facts, digester.rows(), digester.sums()[0].bytes()))
    }

    fn kinds(batch: &StructArray) -> [DataType; 3] {
        ["town", "note", "price"].map(|name| batch.column_by_name(name).unwrap().data_type().clone())
    }

    fn town(at: i64) -> Option<String> {
        (at % 7 > 0).then(|| format!("tøwn {}", at * at % 13))
    }

    #[test]
    fn rows_read_as_stored_have_the_digest_of_decoded_rows() {
        let builder = WriterProperties::builder;
        let all = [
            builder(),
            builder().set_dictionary_enabled(false),
            // A column whose first pages use a dictionary and whose other pages are plain.
            builder().set_dictionary_page_size_limit(40).set_write_batch_size(16),
            builder().set_dictionary_page_size_limit(1 << 20),
        ];
        let towns: [fn(i64) -> Option<String>; 4] =
            [town, |_| None, |at| Some("x".repeat(at as usize % 200)), |at| Some(format!("{at:040}"))];
        for (at, properties) in all.into_iter().enumerate() {
            for (kind, town) in towns.into_iter().enumerate() {
                let data = file(properties.clone(), town);
                let (_, rows, sum) = read(&data, "").unwrap();
                let mut plain = digester();
                let batches =
                    ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}}}"#)).unwrap().all_batches().unwrap();
                batches.for_each(|batch| plain.update(&batch.unwrap()).unwrap());
                assert_eq!((rows, sum), (5_000, plain.sums()[0].bytes()), "properties {at}, towns {kind}");
            }
        }
    }

    #[test]
    fn batches_have_the_requested_columns_as_stored_and_keep_their_digest() {
        use arrow_schema::DataType::{Decimal64, Decimal128, Dictionary, Int32, Utf8};
        for limit in [40, 1 << 20] {
            let small = WriterProperties::builder().set_dictionary_page_size_limit(limit).set_write_batch_size(16);
            let data = file(small, town);
            let (_, _, sum) = read(&data, "").unwrap();
            for stored in ["[]", "[1]", "[3]", "[1,2,3,9]"] {
                let request = format!(r#"{{"schema":{SCHEMA},"stored":{stored}}}"#);
                let mut digester = digester();
                for batch in ParquetFile::open(data.clone(), &request).unwrap().batches().unwrap() {
                    let batch = batch.unwrap();
                    digester.update(&batch).unwrap();
                    let text = |id| match stored.contains(id) && limit > 40 {
                        true => Dictionary(Box::new(Int32), Box::new(Utf8)),
                        false => Utf8,
                    };
                    let price = match stored.contains('3') {
                        true if limit > 40 => Dictionary(Box::new(Int32), Box::new(Decimal64(15, 2))),
                        true => Decimal64(15, 2),
                        false => Decimal128(15, 2),
                    };
                    assert_eq!(kinds(&batch), [text('1'), text('2'), price], "{stored}, {limit}");
                }
                assert_eq!(digester.sums()[0].bytes(), sum, "{stored}, {limit}");
            }
        }
    }

    #[test]
    fn a_stored_column_keeps_the_type_of_decimals_with_fewer_digits_than_the_schema_has() {
        let data = file(WriterProperties::builder(), town);
        let request = format!(r#"{{"schema":{},"stored":[3]}}"#, SCHEMA.replace("(15,2)", "(16,2)"));
        let batch = ParquetFile::open(data, &request).unwrap().batches().unwrap().next().unwrap().unwrap();
        assert_eq!(kinds(&batch)[2], DataType::Decimal128(15, 2));
    }

    #[test]
    fn inspected_columns_are_read_plainly() {
        let data = file(WriterProperties::builder(), |_| Some("iceberg".into()));
        let (facts, _, _) = read(&data, r#","buckets":[[1,8],[3,8]]"#).unwrap();
        // Iceberg's specification gives 1,210,000,089 as the hash of this word.
        assert_eq!((&facts["buckets"][0], facts["buckets"][1].as_array().unwrap().len()), (&json!([1]), 2));
        let by = |column_idx| SortingColumn { column_idx, descending: false, nulls_first: true };
        let sorted = |column| WriterProperties::builder().set_sorting_columns(Some(vec![by(column)]));
        read(&file(sorted(0), |_| Some("x".into())), "").unwrap();
        for column in [0, 2] {
            assert_eq!(read(&file(sorted(column), town), "").unwrap_err().code, "parquet_sorting_lies");
        }
    }
}
