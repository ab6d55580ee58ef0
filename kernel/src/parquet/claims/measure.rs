//! What the pages of a column chunk hold, measured from the very bytes that are decoded into rows.

use crate::error::{Fault, Result};
use crate::parquet::claims::bloom::BloomFilter;
use crate::parquet::claims::dictionary::{Dictionary, split_texts};
use crate::parquet::claims::levels::NestedLevels;
use crate::parquet::claims::plain_values::decode_to_plain;
use crate::parquet::claims::row_indices::RowIndices;
use crate::parquet::claims::value_summary::{ValueSummary, summarize_floats, summarize_indices, summarize_integers};
use crate::parquet::format::deltas;
use crate::parquet::format::pages::split_page;
use crate::parquet::format::runs::{bit_width, each_block, is_padded_below};
use crate::parquet::ordered_value::{BOUND_MAX_BYTES, Order, OrderedValue, join_ends, parse_decimal};
use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

/// What is kept of a page's ends at least, for the words of a refusal.
const PAGE_ENDS_MIN_BYTES: usize = 64;

/// One data page.
#[derive(Debug, Default)]
pub struct PageMeasure {
    /// Entries with a value or without.
    pub entries: u64,
    pub present: u64,
    pub nans: u64,
    pub bounds: Option<(OrderedValue, OrderedValue)>,
    /// Rows that begin here, and whether the page begins with one.
    pub rows: u64,
    pub begins_row: bool,
    /// The bytes of its values, where these are byte arrays.
    pub bytes: u64,
    pub repetition: Vec<u64>,
    pub definition: Vec<u64>,
    pub by_dictionary: bool,
}

/// How long the ends are that a file tells of a chunk and of each of its data pages.
#[derive(Debug, Default)]
pub struct EndLengths {
    pub whole: usize,
    pub pages: Vec<usize>,
}

/// A column chunk, page by page as a decoder asks for them.
#[derive(Debug)]
pub struct ChunkMeasure {
    pub column: ColumnDescPtr,
    pub order: Order,
    pub pages: Vec<PageMeasure>,
    /// The ends of all pages so far; of bytes here and there only what is needed, for a few bytes of a file can stand for
    /// long values in every page.
    pub ends: Option<(OrderedValue, OrderedValue)>,
    declared_ends: EndLengths,
    /// What the byte arrays of all pages so far have together.
    pub bytes: u64,
    pub dictionary: Option<Dictionary>,
    /// The first thing that was wrong; a decoder goes on all the same.
    pub fault: Option<Fault>,
    /// What is kept of the levels of a column inside others.
    pub nested: Option<NestedLevels>,
    /// Its rows by their indices, where these are what is decoded of it.
    pub row_indices: Option<RowIndices>,
    filter: Option<BloomFilter>,
    marks: bool,
}

impl ChunkMeasure {
    /// `marks` keeps which values of the dictionary rows have.
    pub fn new(
        column: ColumnDescPtr,
        nested: Option<NestedLevels>,
        filter: Option<BloomFilter>,
        marks: bool,
        declared_ends: EndLengths,
    ) -> ChunkMeasure {
        let (order, pages, dictionary, fault, marks) =
            (Order::of(&column), Vec::new(), None, None, marks || filter.is_some());
        ChunkMeasure {
            column,
            order,
            pages,
            ends: None,
            declared_ends,
            bytes: 0,
            dictionary,
            fault,
            nested,
            row_indices: None,
            filter,
            marks,
        }
    }

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
                let mut made = Dictionary::new(buf.clone(), *num_values, physical, width, self.order)
                    .ok_or_else(|| self.ambiguous("a dictionary of as many values as it says", "another"))?;
                if self.marks {
                    made.mark_all();
                }
                self.dictionary = Some(made);
                Ok(())
            }
            _ => {
                let mut found = PageMeasure { entries: page.num_values().into(), ..PageMeasure::default() };
                let levels = (self.column.max_rep_level(), self.column.max_def_level());
                let (repetition, definition, values) = split_page(page, levels.0, levels.1)
                    .ok_or_else(|| self.ambiguous("levels inside their page", "others"))?;
                self.measure_levels(&mut found, repetition, definition)?;
                let entries = found.entries;
                self.row_indices.iter_mut().for_each(RowIndices::start_page);
                let before = self.row_indices.as_ref().map_or(0, RowIndices::len);
                self.measure_values(found, values, page.encoding())?;
                match &mut self.row_indices {
                    Some(row_indices) => row_indices
                        .insert_nulls(before, definition, entries)
                        .ok_or_else(|| self.ambiguous("an index for every value", "another number")),
                    None => Ok(()),
                }
            }
        }
    }

    fn measure_levels(&mut self, found: &mut PageMeasure, repetition: &[u8], definition: &[u8]) -> Result<()> {
        let (rep, def) = (self.column.max_rep_level(), self.column.max_def_level());
        found.repetition = self.count_levels(repetition, rep, found.entries)?;
        found.definition = self.count_levels(definition, def, found.entries)?;
        if let Some(nested) = &mut self.nested
            && nested.add(repetition, definition, found.entries).is_none()
        {
            return Err(self.ambiguous("lists that go on only where they have elements", "others"));
        }
        found.rows = found.repetition[0];
        found.present = *found.definition.last().unwrap_or(&0);
        found.begins_row = true;
        if rep > 0 && found.entries > 0 {
            each_block(repetition, bit_width(rep.unsigned_abs().into()), 1, |levels, _| {
                found.begins_row = levels == [0];
                Some(())
            });
        }
        Ok(())
    }

    fn count_levels(&self, data: &[u8], most: i16, entries: u64) -> Result<Vec<u64>> {
        let mut found = vec![0; usize::from(most.unsigned_abs()) + 1];
        if most == 0 {
            found[0] = entries;
            return Ok(found);
        }
        each_block(data, bit_width(most.unsigned_abs().into()), entries, |levels, times| {
            levels.iter().try_for_each(|level| {
                *found.get_mut(*level as usize)? += times;
                Some(())
            })
        })
        .ok_or_else(|| self.ambiguous("levels of the column", "others"))?;
        Ok(found)
    }

    fn measure_values(&mut self, mut found: PageMeasure, data: Bytes, encoding: Encoding) -> Result<()> {
        #[allow(deprecated)]
        let by_dictionary = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        let seen = if by_dictionary {
            found.by_dictionary = true;
            self.measure_indices(&data, found.present)?
        } else if self.row_indices.is_some() {
            return Err(self.ambiguous("indices of a dictionary", "values"));
        } else if encoding == Encoding::PLAIN {
            self.measure_plain(&data, found.present)?
        } else {
            // Readers find the streams by the bytes or by the values.
            if encoding == Encoding::BYTE_STREAM_SPLIT && data.len() as u64 != found.present * self.width() as u64 {
                return Err(self.ambiguous("as many bytes as the values have", "another number"));
            }
            // Others than Rust read numbers that are too long, and runs of nothing, as something else.
            let one_form = match encoding {
                Encoding::RLE => is_boolean_runs(&data, found.present),
                _ => deltas::has_one_form(&data, encoding, self.column.physical_type(), found.present),
            };
            if !data.is_empty() && !one_form {
                return Err(self.ambiguous("runs and differences that every reader takes apart alike", "others"));
            }
            let data = decode_to_plain(&self.column, data, encoding, found.present)
                .ok_or_else(|| self.ambiguous("values that can be decoded", "others"))?;
            self.measure_plain(&data, found.present)?
        };
        (found.nans, found.bytes) = (seen.nans, seen.bytes);
        self.bytes = self.bytes.saturating_add(seen.bytes);
        if let Some((low, high)) = &seen.bounds {
            let whole = self.declared_ends.whole.max(BOUND_MAX_BYTES) + 1;
            self.ends = join_ends(self.ends.take(), Some((low.shorten(whole), high.shorten(whole))));
            let page = self
                .declared_ends
                .pages
                .get(self.pages.len())
                .map_or(0, |declared| declared + 1)
                .max(PAGE_ENDS_MIN_BYTES);
            found.bounds = Some((low.shorten(page), high.shorten(page)));
        }
        self.pages.push(found);
        Ok(())
    }

    /// The bytes of a value, where all have as many.
    fn width(&self) -> usize {
        match self.column.physical_type() {
            Physical::BOOLEAN | Physical::BYTE_ARRAY => 0,
            Physical::INT32 | Physical::FLOAT => 4,
            Physical::INT64 | Physical::DOUBLE => 8,
            Physical::INT96 => 12,
            Physical::FIXED_LEN_BYTE_ARRAY => usize::try_from(self.column.type_length()).unwrap_or(0),
        }
    }

    fn measure_indices(&mut self, data: &[u8], count: u64) -> Result<ValueSummary> {
        let ambiguous =
            |got: &str| Fault::new("parquet_ambiguous", &self.column.path().string(), "indices of a dictionary", got);
        // A decoder asks for the width even where there is no value.
        if self.row_indices.is_some() && data.first().is_none_or(|width| *width > 32) {
            return Err(ambiguous("none"));
        }
        if count == 0 {
            return Ok(ValueSummary::default());
        }
        let dictionary = self.dictionary.as_mut().ok_or_else(|| ambiguous("no dictionary"))?;
        let (width, data) = data.split_first().ok_or_else(|| ambiguous("none"))?;
        let width = u32::from(*width);
        let sized = self.column.physical_type() == Physical::BYTE_ARRAY;
        if self.marks {
            let marked = each_block(data, width, count, |indices, _| {
                indices.iter().for_each(|at| dictionary.mark(*at as usize));
                Some(())
            });
            marked.ok_or_else(|| ambiguous("others"))?;
        }
        let seen = match &mut self.row_indices {
            Some(row_indices) => summarize_indices(dictionary, data, width, count, sized, |indices, times| {
                row_indices.add(indices, times)
            }),
            None => summarize_indices(dictionary, data, width, count, sized, |_, _| ()),
        };
        let seen = seen.ok_or_else(|| ambiguous("others"))?;
        // Polars looks up all of a packed run.
        match is_padded_below(data, width, count, dictionary.len()) {
            true => Ok(seen),
            false => Err(ambiguous("others behind the last")),
        }
    }

    /// Plain values, exactly so many.
    fn measure_plain(&self, data: &[u8], count: u64) -> Result<ValueSummary> {
        let many = || self.ambiguous("as many values as the levels say", "another number");
        let count = usize::try_from(count).map_err(|_| many())?;
        if self.column.physical_type() == Physical::BOOLEAN {
            if data.len() < count.div_ceil(8) {
                return Err(many());
            }
            let ones = (0..count).filter(|at| data[at / 8] >> (at % 8) & 1 == 1).count();
            // DataFusion hashes a boolean as one byte.
            let lacks =
                |flag: u8| self.filter.as_ref().is_some_and(|filter| !filter.may_contain_value(&[flag], self.order));
            if ones < count && lacks(0) || ones > 0 && lacks(1) {
                return Err(self.not_in_filter());
            }
            let ends = (i64::from(ones == count), i64::from(ones > 0));
            let bounds = (count > 0).then_some((OrderedValue::Integer(ends.0), OrderedValue::Integer(ends.1)));
            return Ok(ValueSummary { bounds, ..ValueSummary::default() });
        }
        if self.column.physical_type() == Physical::BYTE_ARRAY {
            return self.measure_texts(data, count);
        }
        let width = self.width();
        if data.len() != count.checked_mul(width).ok_or_else(many)? || width == 0 && count > 0 {
            return Err(many());
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
            Order::Bytes | Order::Decimal => self.measure_strings(data.chunks_exact(width.max(1)))?,
            Order::Boolean | Order::Undefined => ValueSummary::default(),
        })
    }

    fn measure_texts(&self, data: &[u8], count: usize) -> Result<ValueSummary> {
        let (found, bytes) = split_texts(data).fold((0, 0), |(found, bytes), text| (found + 1, bytes + text.len()));
        if found != count || bytes + 4 * count != data.len() {
            return Err(self.ambiguous("as many values as the levels say", "another number"));
        }
        if let Some(filter) = &self.filter
            && split_texts(data).any(|value| !filter.may_contain_value(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        let mut seen = self.measure_strings(split_texts(data))?;
        seen.bytes = bytes as u64;
        Ok(seen)
    }

    fn measure_strings<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> Result<ValueSummary> {
        let mut seen = ValueSummary::default();
        match self.order {
            Order::Bytes => {
                let Some(first) = values.next() else { return Ok(seen) };
                let (low, high) = values.fold((first, first), |(low, high), value| {
                    if value < low {
                        (value, high)
                    } else if value > high {
                        (low, value)
                    } else {
                        (low, high)
                    }
                });
                seen.bounds = Some((OrderedValue::Bytes(low.to_vec()), OrderedValue::Bytes(high.to_vec())));
            }
            Order::Decimal => {
                for value in values {
                    let value =
                        parse_decimal(value).ok_or_else(|| self.ambiguous("numbers of at most 32 bytes", "others"))?;
                    let one = Some((OrderedValue::Decimal(value), OrderedValue::Decimal(value)));
                    seen.bounds = join_ends(seen.bounds, one);
                }
            }
            _ => {}
        }
        Ok(seen)
    }

    /// After the last page: every value that rows have by the dictionary must be in the filter.
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
            "one without a value of a row",
        )
    }

    fn ambiguous(&self, expected: &str, got: &str) -> Fault {
        Fault::new("parquet_ambiguous", &self.column.path().string(), expected, got)
    }
}

/// Whether a page has so many booleans in runs, with their length before them.
fn is_boolean_runs(data: &[u8], count: u64) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let Some(runs) = rest.get(..u32::from_le_bytes(*length) as usize) else { return false };
    each_block(runs, 1, count, |flags, _| flags.iter().all(|flag| *flag <= 1).then_some(())).is_some()
}
