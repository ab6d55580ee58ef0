//! Measures the pages of a column chunk: counts, bounds and sizes, from the same bytes that are decoded into rows.

use crate::error::{Fault, Result};
use crate::parquet::claims::bloom::BloomFilter;
use crate::parquet::claims::dictionary::{Dictionary, split_byte_arrays};
use crate::parquet::claims::levels::NestedLevels;
use crate::parquet::claims::plain_values::decode_to_plain;
use crate::parquet::claims::row_indices::RowIndices;
use crate::parquet::claims::value_summary::{
    Indices, ValueSummary, summarize_floats, summarize_indices, summarize_integers,
};
use crate::parquet::format::deltas;
use crate::parquet::format::pages::split_page;
use crate::parquet::format::runs::{bit_width, each_block, is_padded_below};
use crate::parquet::ordered_value::{BOUND_MAX_BYTES, Order, OrderedValue, join_bounds, parse_decimal};
use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

/// Of a page's bounds at least this many bytes are kept, for error messages.
const PAGE_BOUNDS_MIN_BYTES: usize = 64;

/// The measure of one data page.
#[derive(Debug, Default)]
pub struct PageMeasure {
    /// Entries, with or without a value.
    pub entries: u64,
    /// Entries with a value.
    pub present: u64,
    /// Values that are NaN.
    pub nans: u64,
    /// The least and the greatest value. Long values are cut: one long dictionary value may be the bound of every page,
    /// and whole copies of it could fill the memory.
    pub bounds: Option<(OrderedValue, OrderedValue)>,
    /// Rows that begin in this page.
    pub rows: u64,
    /// Whether the page begins with the first entry of a row.
    pub begins_row: bool,
    /// The total length of the page's values in bytes, if the values are byte arrays.
    pub bytes: u64,
    /// For each repetition level: the number of entries with this level.
    pub repetition: Vec<u64>,
    /// For each definition level: the number of entries with this level.
    pub definition: Vec<u64>,
    /// Whether the page's values are indices of the dictionary.
    pub by_dictionary: bool,
}

/// The lengths of the longest bounds that a file declares for a column chunk.
#[derive(Debug, Default)]
pub struct BoundLengths {
    /// The length of the longest bound of the whole chunk.
    pub whole: usize,
    /// For each data page: the length of its longest bound.
    pub pages: Vec<usize>,
}

/// The measure of a column chunk, page by page as the decoder reads them.
#[derive(Debug)]
pub struct ChunkMeasure {
    pub column: ColumnDescPtr,
    pub order: Order,
    pub pages: Vec<PageMeasure>,
    /// The bounds of all pages so far. Long values are cut to the prefix that a comparison needs (`measure_values`).
    pub bounds: Option<(OrderedValue, OrderedValue)>,
    declared_bounds: BoundLengths,
    /// The total length of all byte arrays so far, in bytes.
    pub bytes: u64,
    pub dictionary: Option<Dictionary>,
    /// The first error. The decoder continues regardless.
    pub fault: Option<Fault>,
    /// The levels of a column that is nested, or that shares an optional group with a neighbour.
    pub nested: Option<NestedLevels>,
    /// The rows as dictionary indices, if the column is read as indices.
    pub row_indices: Option<RowIndices>,
    filter: Option<BloomFilter>,
    /// Whether the dictionary records which of its values rows use.
    marks_used_values: bool,
}

impl ChunkMeasure {
    /// With `marks_used_values` or a filter, the dictionary records which of its values rows use.
    pub fn new(
        column: ColumnDescPtr,
        nested: Option<NestedLevels>,
        filter: Option<BloomFilter>,
        marks_used_values: bool,
        declared_bounds: BoundLengths,
    ) -> ChunkMeasure {
        ChunkMeasure {
            order: Order::of_column(&column),
            column,
            pages: Vec::new(),
            bounds: None,
            declared_bounds,
            bytes: 0,
            dictionary: None,
            fault: None,
            nested,
            row_indices: None,
            marks_used_values: marks_used_values || filter.is_some(),
            filter,
        }
    }

    /// Measures a page. The first error is kept for `finish`.
    pub fn add_page(&mut self, page: &Page) {
        if self.fault.is_none()
            && let Err(fault) = self.measure_page(page)
        {
            self.fault = Some(fault);
        }
    }

    fn measure_page(&mut self, page: &Page) -> Result<()> {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                let (physical, width) = (self.column.physical_type(), self.width());
                let mut dictionary = Dictionary::new(buf.clone(), *num_values, physical, width, self.order)
                    .ok_or_else(|| {
                        self.ambiguous("a dictionary with the declared number of values", "a different one")
                    })?;
                if self.marks_used_values {
                    dictionary.start_marking();
                }
                self.dictionary = Some(dictionary);
                Ok(())
            }
            _ => {
                let mut measure = PageMeasure { entries: page.num_values().into(), ..PageMeasure::default() };
                let (max_repetition, max_definition) = (self.column.max_rep_level(), self.column.max_def_level());
                let (repetition, definition, values) = split_page(page, max_repetition, max_definition)
                    .ok_or_else(|| self.ambiguous("levels inside their page", "different ones"))?;
                self.measure_levels(&mut measure, repetition, definition)?;
                let entries = measure.entries;
                self.row_indices.iter_mut().for_each(RowIndices::start_page);
                let before = self.row_indices.as_ref().map_or(0, RowIndices::len);
                self.measure_values(measure, values, page.encoding())?;
                match &mut self.row_indices {
                    Some(row_indices) => row_indices
                        .insert_nulls(before, definition, entries)
                        .ok_or_else(|| self.ambiguous("an index for every value", "another number")),
                    None => Ok(()),
                }
            }
        }
    }

    fn measure_levels(&mut self, measure: &mut PageMeasure, repetition: &[u8], definition: &[u8]) -> Result<()> {
        let (max_repetition, max_definition) = (self.column.max_rep_level(), self.column.max_def_level());
        measure.repetition = self.count_levels(repetition, max_repetition, measure.entries)?;
        measure.definition = self.count_levels(definition, max_definition, measure.entries)?;
        if let Some(nested) = &mut self.nested
            && nested.add(repetition, definition, measure.entries).is_none()
        {
            return Err(self.ambiguous("levels without further entries of null or empty lists", "different ones"));
        }
        // An entry with repetition level 0 begins a row. An entry with the highest definition level has a value.
        measure.rows = measure.repetition[0];
        measure.present = *measure.definition.last().unwrap_or(&0);
        measure.begins_row = true;
        if max_repetition > 0 && measure.entries > 0 {
            each_block(repetition, bit_width(max_repetition.unsigned_abs().into()), 1, |levels, _| {
                measure.begins_row = levels == [0];
                Some(())
            });
        }
        Ok(())
    }

    /// How many entries have each level, from 0 to `max_level`.
    fn count_levels(&self, data: &[u8], max_level: i16, entries: u64) -> Result<Vec<u64>> {
        let mut counts = vec![0; usize::from(max_level.unsigned_abs()) + 1];
        if max_level == 0 {
            counts[0] = entries;
            return Ok(counts);
        }
        each_block(data, bit_width(max_level.unsigned_abs().into()), entries, |levels, times| {
            levels.iter().try_for_each(|level| {
                *counts.get_mut(*level as usize)? += times;
                Some(())
            })
        })
        .ok_or_else(|| self.ambiguous("levels of the column", "different ones"))?;
        Ok(counts)
    }

    /// Measures the values of a page, and adds the page's measure to the chunk's.
    fn measure_values(&mut self, mut measure: PageMeasure, data: Bytes, encoding: Encoding) -> Result<()> {
        #[allow(deprecated)]
        let by_dictionary = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        let summary = if by_dictionary {
            measure.by_dictionary = true;
            self.measure_indices(&data, measure.present)?
        } else if self.row_indices.is_some() {
            return Err(self.ambiguous("indices of a dictionary", "values"));
        } else if encoding == Encoding::PLAIN {
            self.measure_plain(&data, measure.present)?
        } else {
            // Some readers find the byte streams by the size of the data, others by the number of values.
            if encoding == Encoding::BYTE_STREAM_SPLIT && data.len() as u64 != measure.present * self.width() as u64 {
                return Err(self.ambiguous("as many bytes as the values have", "another number"));
            }
            // Decoders disagree on overlong numbers and empty runs.
            let is_read_alike = match encoding {
                Encoding::RLE => has_boolean_runs(&data, measure.present),
                _ => deltas::is_read_alike(&data, encoding, self.column.physical_type(), measure.present),
            };
            if !data.is_empty() && !is_read_alike {
                return Err(self.ambiguous("runs and deltas that every reader decodes alike", "different ones"));
            }
            let data = decode_to_plain(&self.column, data, encoding, measure.present)
                .ok_or_else(|| self.ambiguous("values that can be decoded", "different ones"))?;
            self.measure_plain(&data, measure.present)?
        };
        (measure.nans, measure.bytes) = (summary.nans, summary.bytes);
        self.bytes = self.bytes.saturating_add(summary.bytes);
        // One byte more than the longest declared bound is enough to compare.
        if let Some((low, high)) = &summary.bounds {
            let chunk_bytes = self.declared_bounds.whole.max(BOUND_MAX_BYTES) + 1;
            self.bounds = join_bounds(self.bounds.take(), Some((low.shorten(chunk_bytes), high.shorten(chunk_bytes))));
            let page_bytes = self
                .declared_bounds
                .pages
                .get(self.pages.len())
                .map_or(0, |declared| declared + 1)
                .max(PAGE_BOUNDS_MIN_BYTES);
            measure.bounds = Some((low.shorten(page_bytes), high.shorten(page_bytes)));
        }
        self.pages.push(measure);
        Ok(())
    }

    /// The length of a value in bytes; 0 for booleans and byte arrays.
    fn width(&self) -> usize {
        match self.column.physical_type() {
            Physical::BOOLEAN | Physical::BYTE_ARRAY => 0,
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => usize::try_from(self.column.type_length()).unwrap_or(0),
        }
    }

    /// Measures a page of dictionary indices with `count` values.
    fn measure_indices(&mut self, data: &[u8], count: u64) -> Result<ValueSummary> {
        let ambiguous =
            |got: &str| Fault::new("parquet_ambiguous", &self.column.path().string(), "indices of a dictionary", got);
        // Decoders read the bit width of the indices even if there is no value.
        if self.row_indices.is_some() && data.first().is_none_or(|width| *width > 32) {
            return Err(ambiguous("none"));
        }
        if count == 0 {
            return Ok(ValueSummary::default());
        }
        let dictionary = self.dictionary.as_mut().ok_or_else(|| ambiguous("no dictionary"))?;
        let (width, data) = data.split_first().ok_or_else(|| ambiguous("none"))?;
        let width = u32::from(*width);
        let is_byte_array = self.column.physical_type() == Physical::BYTE_ARRAY;
        if self.marks_used_values {
            let marked = each_block(data, width, count, |indices, _| {
                indices.iter().for_each(|at| dictionary.mark(*at as usize));
                Some(())
            });
            marked.ok_or_else(|| ambiguous("different ones"))?;
        }
        let indices = Indices { data, width, count };
        let summary = match &mut self.row_indices {
            Some(rows) => summarize_indices(dictionary, &indices, is_byte_array, |block, times| rows.add(block, times)),
            None => summarize_indices(dictionary, &indices, is_byte_array, |_, _| ()),
        };
        let summary = summary.ok_or_else(|| ambiguous("different ones"))?;
        // Polars looks up every index of a packed run, also those after the last value.
        if !is_padded_below(data, width, count, dictionary.len()) {
            return Err(ambiguous("other indices behind the last value"));
        }
        Ok(summary)
    }

    /// Measures `count` plain values. Refuses data that ends earlier. Also refuses data behind the last value, except
    /// behind booleans.
    fn measure_plain(&self, data: &[u8], count: u64) -> Result<ValueSummary> {
        let other_count = || self.ambiguous("as many values as the levels count", "another number");
        let count = usize::try_from(count).map_err(|_| other_count())?;
        if self.column.physical_type() == Physical::BOOLEAN {
            if data.len() < count.div_ceil(8) {
                return Err(other_count());
            }
            let ones = (0..count).filter(|at| data[at / 8] >> (at % 8) & 1 == 1).count();
            // DataFusion hashes a boolean as one byte.
            let is_not_in_filter =
                |flag: u8| self.filter.as_ref().is_some_and(|filter| !filter.may_contain_value(&[flag], self.order));
            if ones < count && is_not_in_filter(0) || ones > 0 && is_not_in_filter(1) {
                return Err(self.not_in_filter());
            }
            let (least, greatest) = (i64::from(ones == count), i64::from(ones > 0));
            let bounds = (count > 0).then_some((OrderedValue::Integer(least), OrderedValue::Integer(greatest)));
            return Ok(ValueSummary { bounds, ..ValueSummary::default() });
        }
        if self.column.physical_type() == Physical::BYTE_ARRAY {
            return self.measure_byte_arrays(data, count);
        }
        let width = self.width();
        if data.len() != count.checked_mul(width).ok_or_else(other_count)? || width == 0 && count > 0 {
            return Err(other_count());
        }
        if let Some(filter) = &self.filter
            && data.chunks_exact(width.max(1)).any(|value| !filter.may_contain_value(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        Ok(match self.order {
            Order::Int32 => summarize_integers(data.as_chunks::<4>().0.iter().map(|value| i32::from_le_bytes(*value))),
            Order::Int64 => summarize_integers(data.as_chunks::<8>().0.iter().map(|value| i64::from_le_bytes(*value))),
            Order::Float => {
                let values = data.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
                summarize_floats(values, f32::is_nan, f32::total_cmp, OrderedValue::Float)
            }
            Order::Double => {
                let values = data.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value));
                summarize_floats(values, f64::is_nan, f64::total_cmp, OrderedValue::Double)
            }
            Order::Bytes | Order::Decimal => self.measure_byte_values(data.chunks_exact(width.max(1)))?,
            Order::Boolean | Order::Undefined => ValueSummary::default(),
        })
    }

    fn measure_byte_arrays(&self, data: &[u8], count: usize) -> Result<ValueSummary> {
        let values = split_byte_arrays(data);
        let (found, bytes) = values.fold((0, 0), |(found, bytes), value| (found + 1, bytes + value.len()));
        // Each value has its length in four bytes before it.
        if found != count || bytes + 4 * count != data.len() {
            return Err(self.ambiguous("as many values as the levels count", "another number"));
        }
        if let Some(filter) = &self.filter
            && split_byte_arrays(data).any(|value| !filter.may_contain_value(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        let mut summary = self.measure_byte_values(split_byte_arrays(data))?;
        summary.bytes = bytes as u64;
        Ok(summary)
    }

    /// The bounds of byte strings, or of decimals in byte strings.
    fn measure_byte_values<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> Result<ValueSummary> {
        let mut summary = ValueSummary::default();
        match self.order {
            Order::Bytes => {
                let Some(first) = values.next() else { return Ok(summary) };
                let (low, high) = values.fold((first, first), |(low, high), value| {
                    if value < low {
                        (value, high)
                    } else if value > high {
                        (low, value)
                    } else {
                        (low, high)
                    }
                });
                summary.bounds = Some((OrderedValue::Bytes(low.to_vec()), OrderedValue::Bytes(high.to_vec())));
            }
            Order::Decimal => {
                for value in values {
                    let value = parse_decimal(value)
                        .ok_or_else(|| self.ambiguous("numbers of at most 32 bytes", "different ones"))?;
                    let one = Some((OrderedValue::Decimal(value), OrderedValue::Decimal(value)));
                    summary.bounds = join_bounds(summary.bounds, one);
                }
            }
            _ => {}
        }
        Ok(summary)
    }

    /// Ends the chunk. Returns the first error of its pages, and refuses a bloom filter that lacks a dictionary value
    /// which rows use.
    pub fn finish(&mut self) -> Result<()> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        if let (Some(filter), Some(dictionary)) = (&self.filter, &self.dictionary)
            && dictionary.in_use().any(|value| !filter.may_contain_value(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        Ok(())
    }

    fn not_in_filter(&self) -> Fault {
        let path = self.column.path().string();
        Fault::new(
            "parquet_bloom_filter_lies",
            &path,
            "a bloom filter that has every value",
            "one that lacks a value of a row",
        )
    }

    fn ambiguous(&self, expected: &str, got: &str) -> Fault {
        Fault::new("parquet_ambiguous", &self.column.path().string(), expected, got)
    }
}

/// Whether the data has `count` booleans in the encoding RLE: the size of the runs in four bytes, and then the runs.
fn has_boolean_runs(data: &[u8], count: u64) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let Some(runs) = rest.get(..u32::from_le_bytes(*length) as usize) else { return false };
    each_block(runs, 1, count, |flags, _| flags.iter().all(|flag| *flag <= 1).then_some(())).is_some()
}
