//! Measures decompressed pages for the limits that headers cannot show: sizes that differ from the declared ones, long
//! dictionary values, values that grow when they are decoded, and long rows.

use crate::error::{Fault, Result};
use crate::parquet::format::deltas::sum_lengths;
use crate::parquet::format::pages::{PageHeader, compressed_bytes, split_page};
use crate::parquet::format::runs::{bit_width, each_block};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use std::io::Read;
use std::sync::Arc;

/// Gzip pages that cannot decompress to more than this are not decompressed for the check.
const GROWN_MAX_BYTES: u64 = 268_435_456;
/// The maximum compression ratio of gzip.
const GZIP_RATIO_MAX: u64 = 1_032;
/// The buffer of the Brotli decompressor.
const BROTLI_BUFFER_BYTES: usize = 4_096;

/// Whether a page decompresses to at most its declared size. Only gzip, Brotli and LZ4 are checked: with other codecs
/// the decoder itself stops at the declared size.
pub fn fits_declared_size(page: &PageHeader, codec: Compression, data: &[u8]) -> bool {
    let declared = page.size.saturating_sub(page.levels_size);
    if !page.is_compressed || declared == 0 {
        return true;
    }
    let Some(packed) = compressed_bytes(page, data) else { return false };
    match codec {
        Compression::GZIP(_) if packed.len() as u64 * GZIP_RATIO_MAX <= GROWN_MAX_BYTES => true,
        Compression::GZIP(_) => has_at_most(declared, MultiGzDecoder::new(packed)),
        Compression::BROTLI(_) => has_at_most(declared, brotli::Decompressor::new(packed, BROTLI_BUFFER_BYTES)),
        // Data that is not an LZ4 frame is invalid here, and left to the decoder.
        Compression::LZ4 => has_at_most(declared, FrameDecoder::new(packed)),
        _ => true,
    }
}

/// Whether the stream has at most `most` bytes. Also true for invalid data, which the decoder refuses.
fn has_at_most(most: u64, stream: impl Read) -> bool {
    std::io::copy(&mut stream.take(most.saturating_add(1)), &mut std::io::sink()).map_or(true, |size| size <= most)
}

/// The length of the longest dictionary value, which any row may use.
pub fn longest_dictionary_value(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<u64> {
    if column.column_type() != Physical::BYTE_ARRAY {
        return Ok(0);
    }
    let Some(Page::DictionaryPage { buf, .. }) = open_pages(data, group, column)?.next().transpose()? else {
        return Ok(0);
    };
    let (mut at, mut found) = (0, 0);
    while let Some(length) = buf.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let length = u32::from_le_bytes(*length);
        found = found.max(length);
        at = at.saturating_add(4).saturating_add(length as usize);
    }
    Ok(u64::from(found))
}

/// The most elements of any row.
pub fn longest_row(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<u64> {
    let (max_repetition, max_definition) =
        (column.column_descr().max_rep_level(), column.column_descr().max_def_level());
    let (width, mut row, mut most) = (bit_width(max_repetition.unsigned_abs().into()), 0_u64, 0);
    for page in open_pages(data, group, column)? {
        let page = page?;
        if matches!(page, Page::DictionaryPage { .. }) {
            continue;
        }
        let repetition = split_page(&page, max_repetition, max_definition).map(|(repetition, _, _)| repetition);
        let counted = each_block(repetition.unwrap_or_default(), width, page.num_values().into(), |levels, times| {
            for level in levels {
                most = most.max(row);
                row = if *level == 0 { 1 } else { row.saturating_add(times) };
            }
            Some(())
        });
        counted.ok_or_else(|| unreadable(column, "levels that cannot be read"))?;
    }
    Ok(most.max(row))
}

/// For each data page, its number of values and their decoded size. With DELTA_BYTE_ARRAY a value may repeat the start
/// of the previous one, so decoded values can be larger than the page.
pub fn measure_decoded_pages(
    data: &Bytes,
    group: &RowGroupMetaData,
    column: &ColumnChunkMetaData,
) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for page in open_pages(data, group, column)? {
        let page = page?;
        if !matches!(page, Page::DictionaryPage { .. }) {
            let size = decoded_size(&page, column).ok_or_else(|| unreadable(column, "lengths that cannot be read"))?;
            found.push((page.num_values().into(), size));
        }
    }
    Ok(found)
}

/// The decoded size of a page's values. Returns `None` if their lengths cannot be read.
fn decoded_size(page: &Page, column: &ColumnChunkMetaData) -> Option<u64> {
    let (_, _, values) =
        split_page(page, column.column_descr().max_rep_level(), column.column_descr().max_def_level())?;
    let (size, most) = (values.len() as u64, page.num_values().into());
    // A page of nulls may have no values at all.
    if values.is_empty() {
        return Some(size);
    }
    match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => sum_lengths(&values, most).map(|_| size),
        Encoding::DELTA_BYTE_ARRAY => {
            let (prefix_bytes, end) = sum_lengths(&values, most)?;
            sum_lengths(&values[end..], most)?;
            size.checked_add(prefix_bytes)
        }
        _ => Some(size),
    }
}

fn open_pages<'a>(
    data: &Bytes,
    group: &RowGroupMetaData,
    column: &'a ColumnChunkMetaData,
) -> Result<impl Iterator<Item = Result<Page>> + 'a> {
    let rows = usize::try_from(group.num_rows()).map_err(|_| unreadable(column, "a negative number of rows"))?;
    let reader = SerializedPageReader::new(Arc::new(data.clone()), column, rows, None)
        .map_err(|error| unreadable(column, &error.to_string()))?;
    Ok(reader.map(move |page| page.map_err(|error| unreadable(column, &error.to_string()))))
}

fn unreadable(column: &ColumnChunkMetaData, got: &str) -> Fault {
    Fault::new("parquet_unreadable", &column.column_path().string(), "readable pages", got)
}
