//! What a Parquet file claims about its own values, held to the values in the same pass that digests them.
//!
//! Readers skip what statistics, page indexes, bloom filters and dictionaries rule out. Where one of these lies, a filtered
//! read shows other rows than the full scan that was digested.

mod bloom;
mod dictionary;
#[cfg(test)]
mod edge_tests;
mod index;
mod judge;
mod kept;
mod levels;
mod measure;
mod pages;
mod partial;
mod plain;
pub mod runs;
mod sorted;
#[cfg(test)]
mod tests;
mod told;
mod typed;
mod widths;

pub use judge::whole;
pub use kept::Kept;
pub use measure::{Chunk, Measure};
pub use pages::{Pages, Watch, Watched};
pub use sorted::Sorted;
pub use told::Page as PageHeader;

use crate::bound::Order;
use crate::error::{Fault, Result};
use crate::headers::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, chunk_end, chunk_start, header};
use crate::one_reading::{PLAIN_DICTIONARY, footer_start, require_apart};
use bloom::{Filter, is_asked_as_it_is};
use bytes::Bytes;
use judge::{Place, STATISTICS, UNVERIFIED};
use measure::Told;
use parquet::basic::LogicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::ops::Range;

/// None, Snappy, gzip, Zstandard and raw LZ4: what Spark reads as it comes.
const CODECS: [i64; 5] = [0, 1, 2, 6, 7];
/// `Encoding` of the format.
const RLE_DICTIONARY: i64 = 8;
/// Its values are encoded once for every batch of some thousand rows.
const SMALL_DICTIONARY_BYTES: usize = 32_768;
/// Their readers turn dates and times into others.
const KEYS_REFUSED: [&[u8]; 2] = [b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"];

/// Spark takes files of its own older versions for such too, and compares the text.
const SPARK_VERSION: &[u8] = b"org.apache.spark.version";
const SPARK_VERSION_FIRST: &[u8] = b"3.0.0";

fn is_refused(key: &[u8], value: &[u8]) -> bool {
    KEYS_REFUSED.contains(&key) || key == SPARK_VERSION && value < SPARK_VERSION_FIRST
}

/// The claims of one file.
pub struct Claims<'a> {
    data: &'a Bytes,
    metadata: &'a ParquetMetaData,
    told: told::File<'a>,
}

/// What lies beside the pages of a chunk.
struct Beside {
    offset_index: Option<Range<usize>>,
    column_index: Option<Range<usize>>,
    bloom: Option<(Range<usize>, usize)>,
}

impl<'a> Claims<'a> {
    /// The claims of a file whose footer is spelled plainly; refuses what no value can bear out.
    pub fn of(data: &'a Bytes, metadata: &'a ParquetMetaData) -> Result<Claims<'a>> {
        let odd = |got: &str| Fault::new("parquet_ambiguous", "", "a footer", got);
        let start = footer_start(data).ok_or_else(|| odd("none"))?;
        let told = told::file(&data[start..]).ok_or_else(|| odd("one with lists that are too long"))?;
        if let Some((key, _)) = told.keys.iter().find(|(key, value)| is_refused(key, value)) {
            let expected = "no key that changes what values mean";
            return Err(Fault::new("parquet_ambiguous", "", expected, String::from_utf8_lossy(key)));
        }
        let found = Claims { data, metadata, told };
        let mut ranges = Vec::new();
        for at in 0..metadata.num_row_groups() {
            for (column, told) in found.chunks(at) {
                let path = column.column_path().string();
                found.require_known(&path, told).map_err(|fault| fault.in_group(at))?;
                let beside = found.beside(&path, told).map_err(|fault| fault.in_group(at))?;
                ranges.push((chunk_start(column), chunk_end(data, column).unwrap_or(usize::MAX)));
                ranges
                    .extend([beside.offset_index, beside.column_index].into_iter().flatten().map(|r| (r.start, r.end)));
                ranges.extend(beside.bloom.map(|(range, _)| (range.start, range.end)));
            }
        }
        require_apart(ranges, start)?;
        Ok(found)
    }

    fn chunks(&self, group: usize) -> impl Iterator<Item = (&'a ColumnChunkMetaData, &told::Chunk<'a>)> {
        let told = self.told.groups.get(group).map_or(&[][..], |group| &group.chunks);
        self.metadata.row_group(group).columns().iter().zip(told)
    }

    fn require_known(&self, path: &str, told: &told::Chunk<'_>) -> Result<()> {
        if !CODECS.contains(&told.codec) {
            let names = ["", "", "", "LZO", "BROTLI", "LZ4"];
            let got = usize::try_from(told.codec).ok().and_then(|at| names.get(at)).copied().unwrap_or("another");
            let expected = "no compression, SNAPPY, GZIP, ZSTD or LZ4_RAW, which every engine reads";
            return Err(Fault::new("parquet_codec_unsupported", path, expected, got));
        }
        if told.geospatial {
            return Err(Fault::new(UNVERIFIED, path, "no geospatial statistics", "some"));
        }
        Ok(())
    }

    /// Where a chunk's indexes and its filter lie.
    fn beside(&self, path: &str, told: &told::Chunk<'_>) -> Result<Beside> {
        let index = |(offset, length): (Option<i64>, Option<i64>)| {
            match (offset, length) {
                (None, None) => Some(None),
                (Some(offset), Some(length)) => self.range(offset, length).map(Some),
                _ => None,
            }
            .ok_or_else(|| index::place(path).fault("a page index", "bytes of the file", "others"))
        };
        let bloom = match told.bloom {
            (None, None) => None,
            (offset, length) => Some(self.bloom(offset, length).ok_or_else(|| {
                let expected = "a header of split blocks by XXH64, without compression, and as many bytes as it says";
                Fault::new("parquet_bloom_filter_lies", path, expected, "another")
            })?),
        };
        Ok(Beside { offset_index: index(told.offset_index)?, column_index: index(told.column_index)?, bloom })
    }

    fn range(&self, offset: i64, length: i64) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.data.len()).then_some(start..end)
    }

    /// The range of header and blocks, and where the blocks begin.
    fn bloom(&self, offset: Option<i64>, length: Option<i64>) -> Option<(Range<usize>, usize)> {
        let start = usize::try_from(offset?).ok().filter(|start| *start < self.data.len())?;
        let (size, header) = told::bloom(self.data, start)?;
        let whole = i64::try_from(header).ok()?.checked_add(size).filter(|_| size > 0)?;
        if length.is_some_and(|length| length != whole) {
            return None;
        }
        let range = self.range(offset?, whole)?;
        Some((range.clone(), range.start + header))
    }

    /// Watches for every column of a row group.
    pub fn watch(&self, group: usize) -> Result<Vec<Watch>> {
        let nested = levels::nested(self.metadata.file_metadata().schema_descr());
        let made = self.chunks(group).zip(nested).map(|((column, told), nested)| {
            let path = column.column_path().string();
            let beside = self.beside(&path, told)?;
            let ends = self.ends_told(column, told, beside.column_index);
            let filter = match beside.bloom {
                Some(_) if !is_asked_as_it_is(column.column_descr()) => {
                    let expected = "no bloom filter of decimals in another width than their digits need";
                    return Err(Fault::new(UNVERIFIED, &path, expected, "one"));
                }
                Some((range, blocks)) => Some(Filter::of(self.data.slice(blocks..range.end)).ok_or_else(|| {
                    Fault::new("parquet_bloom_filter_lies", &path, "blocks of 32 bytes, at most 128 MiB", "others")
                })?),
                None => None,
            };
            let marks = told.statistics.distinct.is_some();
            Ok(Watch::new(Chunk::new(column.column_descr_ptr(), nested, filter, marks, ends)))
        });
        made.collect::<Result<Vec<Watch>>>().map_err(|fault| fault.in_group(group))
    }

    /// How long the ends are that are told of a chunk, in its footer, its page headers and its index.
    fn ends_told(&self, column: &ColumnChunkMetaData, told: &told::Chunk<'_>, index: Option<Range<usize>>) -> Told {
        if Order::of(column.column_descr()) != Order::Bytes {
            return Told::default();
        }
        let headers = page_headers(self.data, column).unwrap_or_default();
        let data = headers.iter().filter(|page| matches!(page.kind, DATA_PAGE | DATA_PAGE_V2));
        let mut pages: Vec<usize> = data.map(|page| page.statistics.longest()).collect();
        if let Some(found) = index.and_then(|range| told::column_index(&self.data[range], pages.len())) {
            for ends in [&found.least, &found.greatest] {
                pages.iter_mut().zip(ends).for_each(|(longest, end)| *longest = end.len().max(*longest));
            }
        }
        Told { whole: told.statistics.longest(), pages }
    }

    /// The order that a row group claims.
    pub fn sorting(&self, group: usize) -> Result<Sorted> {
        let told = self.told.groups.get(group).map_or(&[][..], |group| &group.sorting);
        Sorted::of(told, self.metadata.file_metadata().schema_descr()).map_err(|fault| fault.in_group(group))
    }

    /// The bytes of all texts that a row group's pages had so far.
    pub fn texts(&self, watched: &[Watch]) -> u64 {
        watched.iter().map(|watch| watch.with(|chunk| chunk.bytes)).fold(0, u64::saturating_add)
    }

    /// Every claim of a row group, once all its pages were seen.
    pub fn judge(&self, group: usize, watched: &[Watch]) -> Result<()> {
        for ((column, told), watch) in self.chunks(group).zip(watched) {
            watch.with(|chunk| self.judge_chunk(column, told, chunk)).map_err(|fault| fault.in_group(group))?;
        }
        watched.windows(2).try_for_each(|pair| side_by_side(&pair[0], &pair[1])).map_err(|fault| fault.in_group(group))
    }

    fn judge_chunk(&self, column: &ColumnChunkMetaData, told: &told::Chunk<'_>, chunk: &mut Chunk) -> Result<()> {
        chunk.finish()?;
        let path = column.column_path().string();
        let (code, odd) = (STATISTICS, |got| Fault::new("parquet_ambiguous", &path, "pages that rows need", got));
        let headers = page_headers(self.data, column).ok_or_else(|| odd("others"))?;
        let data: Vec<&told::Page<'_>> =
            headers.iter().filter(|page| matches!(page.kind, DATA_PAGE | DATA_PAGE_V2)).collect();
        if data.len() != chunk.pages.len() {
            return Err(odd("others"));
        }
        let place = Place { code, column: &path, page: None };
        let whole = judge::whole(chunk);
        if column.column_descr().logical_type_ref() == Some(&LogicalType::Unknown) && whole.present > 0 {
            return Err(Fault::new("parquet_ambiguous", &path, "nothing but nulls, as the type says", "values"));
        }
        typed::require_range(column.column_descr(), &path, whole.bounds.as_ref())?;
        let (text, uuid) = (typed::is_text(column.column_descr()), typed::is_uuid(column.column_descr()));
        judge::statistics(place, &told.statistics, chunk.order, &whole)?;
        if text {
            typed::statistics(place, &told.statistics)?;
        }
        if uuid {
            typed::whole(place, &told.statistics, whole.bounds.as_ref())?;
        }
        for (at, (header, page)) in data.iter().zip(&chunk.pages).enumerate() {
            let place = Place { page: Some(at), ..place };
            if let Some(told) = header.statistics.distinct {
                let unverified = || Place { code: UNVERIFIED, ..place }.fault("distinct_count", "none", told);
                place.count("distinct_count", told, judge::distinct(chunk.order, page).ok_or_else(unverified)?)?;
            }
            judge::page_statistics(place, &header.statistics, chunk.order, page, &whole)?;
            if text {
                typed::statistics(place, &header.statistics)?;
            }
            if uuid {
                typed::whole(place, &header.statistics, page.bounds.as_ref())?;
            }
            judge_counts(Place { code: "parquet_rows_lie", ..place }, header, page)?;
        }
        judge::encodings(&path, told, &headers)?;
        judge::dictionary(place, told, &headers, chunk)?;
        judge::sizes(place, &told.sizes, chunk, &whole, &headers)?;
        self.judge_indexes(&path, told, &data, chunk)
    }

    fn judge_indexes(
        &self,
        path: &str,
        told: &told::Chunk<'_>,
        headers: &[&told::Page<'_>],
        chunk: &Chunk,
    ) -> Result<()> {
        let beside = self.beside(path, told)?;
        let spelled =
            |name: &str| index::place(path).fault(name, "one whose fields stand in order and fill it", "another");
        if let Some(range) = beside.offset_index {
            let found =
                told::offset_index(&self.data[range], chunk.pages.len()).ok_or_else(|| spelled("the offset index"))?;
            index::offsets(path, &found, headers, chunk)?;
        }
        if let Some(range) = beside.column_index {
            let found =
                told::column_index(&self.data[range], chunk.pages.len()).ok_or_else(|| spelled("the column index"))?;
            index::columns(path, &found, chunk)?;
            if typed::is_text(&chunk.column) {
                typed::index(index::place(path), &found)?;
            }
            if typed::is_uuid(&chunk.column) {
                typed::whole_index(index::place(path), &found, &chunk.pages)?;
            }
        }
        Ok(())
    }
}

/// The headers of all pages of a column chunk; `None` where one cannot be read.
pub fn page_headers<'a>(data: &'a Bytes, column: &ColumnChunkMetaData) -> Option<Vec<told::Page<'a>>> {
    let (mut at, end, mut found) = (chunk_start(column), chunk_end(data, column)?, Vec::new());
    while at < end {
        let page = told::page(&data[..end], at)?;
        at = page.end;
        found.push(page);
    }
    Some(found)
}

/// Whether every page of a column chunk goes by a dictionary, and that is small.
pub fn by_small_dictionary(data: &Bytes, column: &ColumnChunkMetaData) -> bool {
    pages_by_dictionary(data, column, SMALL_DICTIONARY_BYTES).is_some()
}

/// The most values that any page of a column chunk has; `None` unless every page goes by a dictionary of at most so many
/// bytes.
pub fn pages_by_dictionary(data: &Bytes, column: &ColumnChunkMetaData, most_bytes: usize) -> Option<u64> {
    let (mut at, end) = (chunk_start(column), chunk_end(data, column)?);
    let (mut dictionary, mut values) = (false, 0);
    while at < end {
        let page = header(&data[..end], at)?;
        match page.kind {
            DICTIONARY_PAGE => dictionary = page.size <= most_bytes as u64,
            _ if ![PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&page.encoding) => return None,
            _ => values = values.max(page.values),
        }
        at = page.end;
    }
    dictionary.then_some(values)
}

/// Leaves of one struct, list or map must tell the same of it.
fn side_by_side(leaf: &Watch, next: &Watch) -> Result<()> {
    leaf.with(|leaf| {
        next.with(|next| match (&mut leaf.nested, &mut next.nested) {
            (Some(ours), Some(theirs)) => ours.require_same(theirs, &next.column.path().string()),
            _ => Ok(()),
        })
    })
}

/// What the header of a page of the second version counts.
fn judge_counts(place: Place<'_>, header: &told::Page<'_>, page: &Measure) -> Result<()> {
    if let Some(nulls) = header.nulls {
        place.count("num_nulls", nulls, page.entries - page.present)?;
    }
    if let Some(rows) = header.rows {
        place.count("num_rows", rows, page.rows)?;
        if !page.begins_row {
            return Err(place.fault("num_rows", "a page that begins with a row", "one that begins inside a row"));
        }
    }
    Ok(())
}
