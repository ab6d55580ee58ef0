//! Reads the claims of a file, such as statistics and indexes, and compares them with the measures of its pages.

use crate::error::{Fault, Result};
use crate::parquet::claims::bloom::{BloomFilter, is_looked_up_by_stored_bytes};
use crate::parquet::claims::compare::{
    ClaimPlace, STATISTICS, UNVERIFIED, compare_dictionary, compare_encodings, compare_page_statistics, compare_sizes,
    compare_statistics, count_distinct, join_pages,
};
use crate::parquet::claims::measure::{BoundLengths, ChunkMeasure, PageMeasure};
use crate::parquet::claims::metadata::{self, DeclaredRange, read_page_headers};
use crate::parquet::claims::pages::SharedMeasure;
use crate::parquet::claims::sort_order::SortOrder;
use crate::parquet::claims::{annotated_values, levels, page_index};
use crate::parquet::format::pages::{DATA_PAGE, DATA_PAGE_V2, chunk_end, chunk_start};
use crate::parquet::format::thrift_form::footer_start;
use crate::parquet::guard::unambiguous::require_no_overlap;
use crate::parquet::ordered_value::Order;
use bytes::Bytes;
use parquet::basic::LogicalType;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use std::ops::Range;

/// The codecs that are accepted: none, Snappy, gzip, Zstandard and raw LZ4. Spark does not read LZO and Brotli. Two
/// kinds of readers expect different frames of the deprecated codec LZ4.
const CODECS: [i64; 5] = [0, 1, 2, 6, 7];
/// If the footer has one of these keys, Spark rebases dates and timestamps.
const KEYS_REFUSED: [&[u8]; 2] = [b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"];
/// Spark also rebases values of files that its versions before 3.0.0 wrote. It compares versions as text.
const SPARK_VERSION: &[u8] = b"org.apache.spark.version";
const SPARK_VERSION_LEAST: &[u8] = b"3.0.0";

/// Whether Spark reads other values because of this key of the footer.
fn changes_values(key: &[u8], value: &[u8]) -> bool {
    KEYS_REFUSED.contains(&key) || key == SPARK_VERSION && value < SPARK_VERSION_LEAST
}

/// The claims of one file.
pub struct Claims<'a> {
    pub(super) data: &'a Bytes,
    pub(super) metadata: &'a ParquetMetaData,
    declared: metadata::FileMetadata<'a>,
}

/// The byte ranges of a chunk's indexes and bloom filter.
pub(super) struct AuxiliaryRanges {
    offset_index: Option<Range<usize>>,
    pub(super) column_index: Option<Range<usize>>,
    /// The range of the filter with its header, and the position where its blocks begin.
    bloom: Option<(Range<usize>, usize)>,
}

impl<'a> Claims<'a> {
    /// Reads the claims of a file that `require_unambiguous` accepted. Refuses claims that cannot be checked.
    pub fn read(data: &'a Bytes, metadata: &'a ParquetMetaData) -> Result<Claims<'a>> {
        let ambiguous = |got: &str| Fault::new("parquet_ambiguous", "", "a footer", got);
        let start = footer_start(data).ok_or_else(|| ambiguous("none"))?;
        let declared =
            metadata::read_file(&data[start..]).ok_or_else(|| ambiguous("one with lists beyond the limits"))?;
        if let Some((key, _)) = declared.keys.iter().find(|(key, value)| changes_values(key, value)) {
            let expected = "no key that changes what values mean";
            return Err(Fault::new("parquet_ambiguous", "", expected, String::from_utf8_lossy(key)));
        }
        let found = Claims { data, metadata, declared };
        let mut ranges = Vec::new();
        for at in 0..metadata.num_row_groups() {
            for (column, declared) in found.chunks(at) {
                let path = column.column_path().string();
                found.require_supported(&path, declared).map_err(|fault| fault.in_group(at))?;
                let auxiliary = found.auxiliary_ranges(&path, declared).map_err(|fault| fault.in_group(at))?;
                ranges.push((chunk_start(column), chunk_end(data, column).unwrap_or(usize::MAX)));
                ranges.extend(
                    [auxiliary.offset_index, auxiliary.column_index].into_iter().flatten().map(|r| (r.start, r.end)),
                );
                ranges.extend(auxiliary.bloom.map(|(range, _)| (range.start, range.end)));
            }
        }
        require_no_overlap(ranges, start)?;
        Ok(found)
    }

    /// For each column chunk of a row group: its metadata as the `parquet` crate reads it, and as this module reads it.
    pub(super) fn chunks(
        &self,
        group: usize,
    ) -> impl Iterator<Item = (&'a ColumnChunkMetaData, &metadata::ChunkMetadata<'a>)> {
        let declared = self.declared.groups.get(group).map_or(&[][..], |group| &group.chunks);
        self.metadata.row_group(group).columns().iter().zip(declared)
    }

    /// Refuses codecs that not every engine reads, and statistics that this module does not compare.
    fn require_supported(&self, path: &str, declared: &metadata::ChunkMetadata<'_>) -> Result<()> {
        if !CODECS.contains(&declared.codec) {
            // By the codec's number in the format. The first three are accepted, so they are never shown.
            let names = ["", "", "", "LZO", "BROTLI", "LZ4"];
            let got =
                usize::try_from(declared.codec).ok().and_then(|at| names.get(at)).copied().unwrap_or("a different one");
            let expected = "no compression, SNAPPY, GZIP, ZSTD or LZ4_RAW, which every engine reads";
            return Err(Fault::new("parquet_codec_unsupported", path, expected, got));
        }
        if declared.geospatial {
            return Err(Fault::new(UNVERIFIED, path, "no geospatial statistics", "some"));
        }
        Ok(())
    }

    /// Finds a chunk's indexes and bloom filter. Refuses ranges outside the file.
    pub(super) fn auxiliary_ranges(
        &self,
        path: &str,
        declared: &metadata::ChunkMetadata<'_>,
    ) -> Result<AuxiliaryRanges> {
        let index = |declared: DeclaredRange| {
            let range = match (declared.offset, declared.length) {
                (None, None) => return Ok(None),
                (Some(offset), Some(length)) => self.byte_range(offset, length),
                _ => None,
            };
            range.map(Some).ok_or_else(|| {
                let expected = "an offset and a length inside the file";
                page_index::index_place(path).fault("a page index", expected, "different ones")
            })
        };
        let bloom = match declared.bloom {
            DeclaredRange { offset: None, length: None } => None,
            bloom => Some(self.bloom_range(bloom).ok_or_else(|| {
                let expected = "a header of uncompressed split blocks by XXH64, followed by the declared bytes";
                Fault::new("parquet_bloom_filter_lies", path, expected, "a different one")
            })?),
        };
        Ok(AuxiliaryRanges {
            offset_index: index(declared.offset_index)?,
            column_index: index(declared.column_index)?,
            bloom,
        })
    }

    fn byte_range(&self, offset: i64, length: i64) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.data.len()).then_some(start..end)
    }

    /// The range of a bloom filter with its header, and the position where its blocks begin.
    fn bloom_range(&self, declared: DeclaredRange) -> Option<(Range<usize>, usize)> {
        let offset = declared.offset?;
        let start = usize::try_from(offset).ok().filter(|start| *start < self.data.len())?;
        let (blocks_size, header_size) = metadata::read_bloom_header(self.data, start)?;
        let whole_size = i64::try_from(header_size).ok()?.checked_add(blocks_size).filter(|_| blocks_size > 0)?;
        if declared.length.is_some_and(|length| length != whole_size) {
            return None;
        }
        let range = self.byte_range(offset, whole_size)?;
        Some((range.clone(), range.start + header_size))
    }

    /// Creates an empty measure for every column of a row group. Refuses bloom filters that cannot be checked.
    pub fn start_measures(&self, group: usize) -> Result<Vec<SharedMeasure>> {
        let nested = levels::plan_nested_levels(self.metadata.file_metadata().schema_descr());
        let measures = self.chunks(group).zip(nested).map(|((column, declared), nested)| {
            let path = column.column_path().string();
            let auxiliary = self.auxiliary_ranges(&path, declared)?;
            let bound_lengths = self.declared_bound_lengths(column, declared, auxiliary.column_index);
            let filter = match auxiliary.bloom {
                Some(_) if !is_looked_up_by_stored_bytes(column.column_descr()) => {
                    let expected = "no bloom filter of decimals that have another width than their digits need";
                    return Err(Fault::new(UNVERIFIED, &path, expected, "one"));
                }
                Some((range, blocks)) => {
                    Some(BloomFilter::new(self.data.slice(blocks..range.end)).ok_or_else(|| {
                        Fault::new(
                            "parquet_bloom_filter_lies",
                            &path,
                            "blocks of 32 bytes, at most 128 MiB",
                            "different ones",
                        )
                    })?)
                }
                None => None,
            };
            let marks_used_values = declared.statistics.distinct.is_some();
            let column = column.column_descr_ptr();
            Ok(SharedMeasure::new(ChunkMeasure::new(column, nested, filter, marks_used_values, bound_lengths)))
        });
        measures.collect::<Result<Vec<SharedMeasure>>>().map_err(|fault| fault.in_group(group))
    }

    /// The lengths of the bounds that a chunk's footer, page headers and index declare.
    fn declared_bound_lengths(
        &self,
        column: &ColumnChunkMetaData,
        declared: &metadata::ChunkMetadata<'_>,
        index: Option<Range<usize>>,
    ) -> BoundLengths {
        if Order::of_column(column.column_descr()) != Order::Bytes {
            return BoundLengths::default();
        }
        let headers = read_page_headers(self.data, column).unwrap_or_default();
        let data_pages = headers.iter().filter(|page| matches!(page.kind, DATA_PAGE | DATA_PAGE_V2));
        let mut pages: Vec<usize> = data_pages.map(|page| page.statistics.longest_bound()).collect();
        if let Some(found) = index.and_then(|range| metadata::read_column_index(&self.data[range], pages.len())) {
            for bounds in [&found.least, &found.greatest] {
                pages.iter_mut().zip(bounds).for_each(|(longest, bound)| *longest = bound.len().max(*longest));
            }
        }
        BoundLengths { whole: declared.statistics.longest_bound(), pages }
    }

    /// Reads the sort order that a row group declares.
    pub fn read_sort_order(&self, group: usize) -> Result<SortOrder> {
        let declared = self.declared.groups.get(group).map_or(&[][..], |group| &group.sorting);
        SortOrder::new(declared, self.metadata.file_metadata().schema_descr()).map_err(|fault| fault.in_group(group))
    }

    /// The total length of the byte arrays in those pages of a row group that were measured so far.
    pub fn byte_array_bytes(&self, measures: &[SharedMeasure]) -> u64 {
        measures.iter().map(|measure| measure.with(|chunk| chunk.bytes)).fold(0, u64::saturating_add)
    }

    /// Compares every claim of a row group with its pages, all of which must have been measured. Refuses a claim that
    /// does not hold. The sort order is compared by `SortOrder` while rows are decoded.
    pub fn compare(&self, group: usize, measures: &[SharedMeasure]) -> Result<()> {
        for ((column, declared), measure) in self.chunks(group).zip(measures) {
            measure.with(|chunk| self.compare_chunk(column, declared, chunk)).map_err(|fault| fault.in_group(group))?;
        }
        measures
            .windows(2)
            .try_for_each(|pair| require_same_nesting(&pair[0], &pair[1]))
            .map_err(|fault| fault.in_group(group))
    }

    fn compare_chunk(
        &self,
        column: &ColumnChunkMetaData,
        declared: &metadata::ChunkMetadata<'_>,
        chunk: &mut ChunkMeasure,
    ) -> Result<()> {
        chunk.finish()?;
        let path = column.column_path().string();
        let ambiguous = || Fault::new("parquet_ambiguous", &path, "the pages of all rows", "different ones");
        let headers = read_page_headers(self.data, column).ok_or_else(ambiguous)?;
        let data_pages: Vec<&metadata::PageMetadata<'_>> =
            headers.iter().filter(|page| matches!(page.kind, DATA_PAGE | DATA_PAGE_V2)).collect();
        if data_pages.len() != chunk.pages.len() {
            return Err(ambiguous());
        }
        let place = ClaimPlace { code: STATISTICS, column: &path, page: None };
        let whole = join_pages(chunk);
        if column.column_descr().logical_type_ref() == Some(&LogicalType::Unknown) && whole.present > 0 {
            return Err(Fault::new("parquet_ambiguous", &path, "only nulls, as the type declares", "values"));
        }
        annotated_values::require_range(column.column_descr(), &path, whole.bounds.as_ref())?;
        let is_text = annotated_values::is_text(column.column_descr());
        let is_uuid = annotated_values::is_uuid(column.column_descr());
        compare_statistics(place, &declared.statistics, chunk.order, &whole)?;
        if is_text {
            annotated_values::require_utf8_statistics(place, &declared.statistics)?;
        }
        if is_uuid {
            annotated_values::require_exact_bounds(place, &declared.statistics, whole.bounds.as_ref())?;
        }
        for (at, (header, page)) in data_pages.iter().zip(&chunk.pages).enumerate() {
            let place = ClaimPlace { page: Some(at), ..place };
            if let Some(declared) = header.statistics.distinct {
                let unverified = || ClaimPlace { code: UNVERIFIED, ..place }.fault("distinct_count", "none", declared);
                place.require_count(
                    "distinct_count",
                    declared,
                    count_distinct(chunk.order, page).ok_or_else(unverified)?,
                )?;
            }
            compare_page_statistics(place, &header.statistics, chunk.order, page, &whole)?;
            if is_text {
                annotated_values::require_utf8_statistics(place, &header.statistics)?;
            }
            if is_uuid {
                annotated_values::require_exact_bounds(place, &header.statistics, page.bounds.as_ref())?;
            }
            compare_counts(ClaimPlace { code: "parquet_rows_lie", ..place }, header, page)?;
        }
        compare_encodings(&path, declared, &headers)?;
        compare_dictionary(place, declared, &headers, chunk)?;
        compare_sizes(place, &declared.sizes, chunk, &whole, &headers)?;
        self.compare_indexes(&path, declared, &data_pages, chunk)
    }

    fn compare_indexes(
        &self,
        path: &str,
        declared: &metadata::ChunkMetadata<'_>,
        headers: &[&metadata::PageMetadata<'_>],
        chunk: &ChunkMeasure,
    ) -> Result<()> {
        let auxiliary = self.auxiliary_ranges(path, declared)?;
        let malformed = |name: &str| {
            page_index::index_place(path).fault(
                name,
                "fields in ascending order that fill its bytes",
                "a different one",
            )
        };
        if let Some(range) = auxiliary.offset_index {
            let found = metadata::read_offset_index(&self.data[range], chunk.pages.len())
                .ok_or_else(|| malformed("the offset index"))?;
            page_index::compare_offset_index(path, &found, headers, chunk)?;
        }
        if let Some(range) = auxiliary.column_index {
            let found = metadata::read_column_index(&self.data[range], chunk.pages.len())
                .ok_or_else(|| malformed("the column index"))?;
            page_index::compare_column_index(path, &found, chunk)?;
            if annotated_values::is_text(&chunk.column) {
                annotated_values::require_utf8_index(page_index::index_place(path), &found)?;
            }
            if annotated_values::is_uuid(&chunk.column) {
                annotated_values::require_exact_index_bounds(page_index::index_place(path), &found, &chunk.pages)?;
            }
        }
        Ok(())
    }
}

/// Requires that two neighbouring leaves agree on the struct, list or map that they share.
fn require_same_nesting(leaf: &SharedMeasure, next: &SharedMeasure) -> Result<()> {
    leaf.with(|leaf| {
        next.with(|next| match (&mut leaf.nested, &mut next.nested) {
            (Some(ours), Some(theirs)) => ours.require_same(theirs, &next.column.path().string()),
            _ => Ok(()),
        })
    })
}

/// Compares the counts in the header of a version 2 page.
fn compare_counts(place: ClaimPlace<'_>, header: &metadata::PageMetadata<'_>, page: &PageMeasure) -> Result<()> {
    if let Some(nulls) = header.nulls {
        place.require_count("num_nulls", nulls, page.entries - page.present)?;
    }
    if let Some(rows) = header.rows {
        place.require_count("num_rows", rows, page.rows)?;
        if !page.begins_row {
            return Err(place.fault("num_rows", "a page that begins with a row", "one that begins inside a row"));
        }
    }
    Ok(())
}
