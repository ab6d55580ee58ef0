//! Tests that need no whole pass over a file: a bloom filter larger than any test file, and pages that were not read.

use crate::parquet::claims::bloom::BloomFilter;
use crate::parquet::claims::check::Claims;
use crate::parquet::claims::pages::MeasuredRowGroup;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, RowGroups};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::sync::Arc;

const MEBIBYTE: usize = 1_048_576;

#[test]
fn a_filter_of_128_mebibytes_is_the_largest() {
    let accepts = |size: usize| BloomFilter::new(Bytes::from(vec![0; size])).is_some();
    assert!(accepts(32) && accepts(128 * MEBIBYTE));
    assert!(!accepts(0) && !accepts(33) && !accepts(128 * MEBIBYTE + 32));
}

/// Three rows in one page, in a file without statistics.
fn file_without_statistics() -> Bytes {
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_from_iter([("id", rows)]).unwrap();
    let properties = WriterProperties::builder().set_statistics_enabled(EnabledStatistics::None);
    let properties = properties.set_dictionary_enabled(false).build();
    let mut data = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    data.into()
}

#[test]
fn a_page_that_was_not_measured_is_refused() {
    let data = file_without_statistics();
    let footer = ArrowReaderMetadata::load(&data, ArrowReaderOptions::new()).unwrap();
    let claims = Claims::read(&data, footer.metadata()).unwrap();
    let measures = claims.start_measures(0).unwrap();
    let fault = claims.compare(0, &measures).unwrap_err();
    assert_eq!((fault.code, &fault.column[..], fault.group), ("parquet_ambiguous", "id", Some(0)));
    let pages = MeasuredRowGroup { data: &data, metadata: footer.metadata(), group: 0, chunks: &measures };
    pages.column_chunks(0).unwrap().flatten().for_each(|page| assert_eq!(page.count(), 1));
    assert_eq!(claims.compare(0, &measures), Ok(()));
}
