//! What a column asks of memory and only its opened pages tell: long values of a dictionary, values that grow when they
//! are decoded, long rows.

use crate::claims::runs::{bits, each_block};
use crate::deltas::lengths;
use crate::error::{Fault, Result};
use crate::headers::PageHeader;
use crate::one_reading::packed;
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::{Compression, Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use std::io::Read;
use std::sync::Arc;

/// What a page may have beyond what it tells without being looked at.
const GROWN_MAX_BYTES: u64 = 268_435_456;
/// The most that a byte of a gzip stream stands for.
const GZIP_RATIO_MAX: u64 = 1_032;
const BROTLI_BUFFER_BYTES: usize = 4_096;

/// Whether a page is no larger than it tells. The decoder opens others than these codecs only as far as that.
pub fn is_as_told(page: &PageHeader, codec: Compression, data: &[u8]) -> bool {
    let told = page.size.saturating_sub(page.levels_size);
    if !page.is_compressed || told == 0 {
        return true;
    }
    let Some(packed) = packed(page, data) else { return false };
    match codec {
        Compression::GZIP(_) if packed.len() as u64 * GZIP_RATIO_MAX <= GROWN_MAX_BYTES => true,
        Compression::GZIP(_) => has_at_most(told, MultiGzDecoder::new(packed)),
        Compression::BROTLI(_) => has_at_most(told, brotli::Decompressor::new(packed, BROTLI_BUFFER_BYTES)),
        // What is no frame is opened as another kind.
        Compression::LZ4 => has_at_most(told, FrameDecoder::new(packed)),
        _ => true,
    }
}

/// What cannot be read is left for the decoder to say so.
fn has_at_most(told: u64, stream: impl Read) -> bool {
    std::io::copy(&mut stream.take(told.saturating_add(1)), &mut std::io::sink()).map_or(true, |size| size <= told)
}

/// Repetition levels, definition levels and values of a data page; `None` where they are not inside it.
pub fn parts(page: &Page, repetition: i16, definition: i16) -> Option<(&[u8], &[u8], Bytes)> {
    match page {
        Page::DictionaryPage { .. } => None,
        Page::DataPage { buf, .. } => {
            let (repetition, rest) = prefixed(buf, repetition)?;
            let (definition, values) = prefixed(rest, definition)?;
            Some((repetition, definition, buf.slice(buf.len() - values.len()..)))
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let first = *rep_levels_byte_len as usize;
            let second = first.saturating_add(*def_levels_byte_len as usize);
            Some((buf.get(..first)?, buf.get(first..second)?, buf.slice(second..)))
        }
    }
}

/// The levels of a page of the first version have their length before them.
fn prefixed(data: &[u8], most: i16) -> Option<(&[u8], &[u8])> {
    if most == 0 {
        return Some((&[], data));
    }
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The longest value of a dictionary: every row may name it.
pub fn longest(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<u64> {
    if column.column_type() != Physical::BYTE_ARRAY {
        return Ok(0);
    }
    let Some(Page::DictionaryPage { buf, .. }) = pages(data, group, column)?.next().transpose()? else { return Ok(0) };
    let (mut at, mut found) = (0, 0);
    while let Some(length) = buf.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let length = u32::from_le_bytes(*length);
        found = found.max(length);
        at = at.saturating_add(4).saturating_add(length as usize);
    }
    Ok(u64::from(found))
}

/// The most elements that any row has.
pub fn longest_row(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<u64> {
    let levels = (column.column_descr().max_rep_level(), column.column_descr().max_def_level());
    let (width, mut row, mut most) = (bits(levels.0.unsigned_abs().into()), 0_u64, 0);
    for page in pages(data, group, column)? {
        let page = page?;
        if matches!(page, Page::DictionaryPage { .. }) {
            continue;
        }
        let repetition = parts(&page, levels.0, levels.1).map(|(repetition, _, _)| repetition);
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

/// For each data page its number of values and what they have when they are decoded: each may begin as the one before.
pub fn grown(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    for page in pages(data, group, column)? {
        let page = page?;
        if !matches!(page, Page::DictionaryPage { .. }) {
            let size = decoded(&page, column).ok_or_else(|| unreadable(column, "lengths that cannot be read"))?;
            found.push((page.num_values().into(), size));
        }
    }
    Ok(found)
}

fn decoded(page: &Page, column: &ColumnChunkMetaData) -> Option<u64> {
    let (_, _, values) = parts(page, column.column_descr().max_rep_level(), column.column_descr().max_def_level())?;
    let (size, most) = (values.len() as u64, page.num_values().into());
    // A page of nulls need not have any.
    if values.is_empty() {
        return Some(size);
    }
    match page.encoding() {
        Encoding::DELTA_LENGTH_BYTE_ARRAY => lengths(&values, most).map(|_| size),
        Encoding::DELTA_BYTE_ARRAY => {
            let (begun, end) = lengths(&values, most)?;
            lengths(&values[end..], most)?;
            size.checked_add(begun)
        }
        _ => Some(size),
    }
}

fn pages<'a>(
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
