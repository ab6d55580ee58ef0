//! What the pages of a column chunk hold, measured from the very bytes that are decoded into rows.

use crate::bound::{Bound, Order, decimal, joined};
use crate::claims::bloom::Filter;
use crate::claims::dictionary::{Dictionary, texts};
use crate::claims::kept::Kept;
use crate::claims::levels::Nested;
use crate::claims::plain::plainly;
use crate::claims::runs::{bits, each_block, fills_below};
use crate::deltas;
use crate::error::{Fault, Result};
use crate::facts::BOUND_MAX_BYTES;
use crate::opened::parts;
use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescPtr;

/// What is kept of a page's ends at least, for the words of a refusal.
const PAGE_ENDS_MIN_BYTES: usize = 64;

/// One data page.
#[derive(Debug, Default)]
pub struct Measure {
    /// Entries with a value or without.
    pub entries: u64,
    pub present: u64,
    pub nans: u64,
    pub bounds: Option<(Bound, Bound)>,
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
pub struct Told {
    pub whole: usize,
    pub pages: Vec<usize>,
}

/// A column chunk, page by page as a decoder asks for them.
#[derive(Debug)]
pub struct Chunk {
    pub column: ColumnDescPtr,
    pub order: Order,
    pub pages: Vec<Measure>,
    /// The ends of all pages so far; of bytes here and there only what is needed, for a few bytes of a file can stand for
    /// long values in every page.
    pub ends: Option<(Bound, Bound)>,
    told: Told,
    /// What the byte arrays of all pages so far have together.
    pub bytes: u64,
    pub dictionary: Option<Dictionary>,
    /// The first thing that was wrong; a decoder goes on all the same.
    pub fault: Option<Fault>,
    /// What is kept of the levels of a column inside others.
    pub nested: Option<Nested>,
    /// Its rows by their indices, where these are what is decoded of it.
    pub kept: Option<Kept>,
    filter: Option<Filter>,
    marks: bool,
}

/// The ends of a page's values so far, and what else is counted of them.
#[derive(Default)]
struct Seen {
    bounds: Option<(Bound, Bound)>,
    nans: u64,
    bytes: u64,
}

impl Chunk {
    /// `marks` keeps which values of the dictionary rows have.
    pub fn new(
        column: ColumnDescPtr,
        nested: Option<Nested>,
        filter: Option<Filter>,
        marks: bool,
        told: Told,
    ) -> Chunk {
        let (order, pages, dictionary, fault, marks) =
            (Order::of(&column), Vec::new(), None, None, marks || filter.is_some());
        Chunk { column, order, pages, ends: None, told, bytes: 0, dictionary, fault, nested, kept: None, filter, marks }
    }

    pub fn see(&mut self, page: &Page) {
        if self.fault.is_none()
            && let Err(fault) = self.measure(page)
        {
            self.fault = Some(fault);
        }
    }

    fn measure(&mut self, page: &Page) -> Result<()> {
        match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                let (physical, width) = (self.column.physical_type(), self.width());
                let mut made = Dictionary::of(buf.clone(), *num_values, physical, width, self.order)
                    .ok_or_else(|| self.odd("a dictionary of as many values as it says", "another"))?;
                if self.marks {
                    made.mark_all();
                }
                self.dictionary = Some(made);
                Ok(())
            }
            _ => {
                let mut found = Measure { entries: page.num_values().into(), ..Measure::default() };
                let levels = (self.column.max_rep_level(), self.column.max_def_level());
                let (repetition, definition, values) =
                    parts(page, levels.0, levels.1).ok_or_else(|| self.odd("levels inside their page", "others"))?;
                self.levels(&mut found, repetition, definition)?;
                let entries = found.entries;
                self.kept.iter_mut().for_each(Kept::begin);
                let before = self.kept.as_ref().map_or(0, Kept::len);
                self.values(found, values, page.encoding())?;
                match &mut self.kept {
                    Some(kept) => kept
                        .spread(before, definition, entries)
                        .ok_or_else(|| self.odd("an index for every value", "another number")),
                    None => Ok(()),
                }
            }
        }
    }

    fn levels(&mut self, found: &mut Measure, repetition: &[u8], definition: &[u8]) -> Result<()> {
        let (rep, def) = (self.column.max_rep_level(), self.column.max_def_level());
        found.repetition = self.histogram(repetition, rep, found.entries)?;
        found.definition = self.histogram(definition, def, found.entries)?;
        if let Some(nested) = &mut self.nested
            && nested.add(repetition, definition, found.entries).is_none()
        {
            return Err(self.odd("lists that go on only where they have elements", "others"));
        }
        found.rows = found.repetition[0];
        found.present = *found.definition.last().unwrap_or(&0);
        found.begins_row = true;
        if rep > 0 && found.entries > 0 {
            each_block(repetition, bits(rep.unsigned_abs().into()), 1, |levels, _| {
                found.begins_row = levels == [0];
                Some(())
            });
        }
        Ok(())
    }

    fn histogram(&self, data: &[u8], most: i16, entries: u64) -> Result<Vec<u64>> {
        let mut found = vec![0; usize::from(most.unsigned_abs()) + 1];
        if most == 0 {
            found[0] = entries;
            return Ok(found);
        }
        each_block(data, bits(most.unsigned_abs().into()), entries, |levels, times| {
            levels.iter().try_for_each(|level| {
                *found.get_mut(*level as usize)? += times;
                Some(())
            })
        })
        .ok_or_else(|| self.odd("levels of the column", "others"))?;
        Ok(found)
    }

    fn values(&mut self, mut found: Measure, data: Bytes, encoding: Encoding) -> Result<()> {
        #[allow(deprecated)]
        let by_dictionary = matches!(encoding, Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        let seen = if by_dictionary {
            found.by_dictionary = true;
            self.indexed(&data, found.present)?
        } else if self.kept.is_some() {
            return Err(self.odd("indices of a dictionary", "values"));
        } else if encoding == Encoding::PLAIN {
            self.plain(&data, found.present)?
        } else {
            // Readers find the streams by the bytes or by the values.
            if encoding == Encoding::BYTE_STREAM_SPLIT && data.len() as u64 != found.present * self.width() as u64 {
                return Err(self.odd("as many bytes as the values have", "another number"));
            }
            // Others than Rust read numbers that are too long, and runs of nothing, as something else.
            let one_form = match encoding {
                Encoding::RLE => is_flags(&data, found.present),
                _ => deltas::is_plain(&data, encoding, self.column.physical_type(), found.present),
            };
            if !data.is_empty() && !one_form {
                return Err(self.odd("runs and differences that every reader takes apart alike", "others"));
            }
            let data = plainly(&self.column, data, encoding, found.present)
                .ok_or_else(|| self.odd("values that can be decoded", "others"))?;
            self.plain(&data, found.present)?
        };
        (found.nans, found.bytes) = (seen.nans, seen.bytes);
        self.bytes = self.bytes.saturating_add(seen.bytes);
        if let Some((low, high)) = &seen.bounds {
            let whole = self.told.whole.max(BOUND_MAX_BYTES) + 1;
            self.ends = joined(self.ends.take(), Some((low.cut(whole), high.cut(whole))));
            let page = self.told.pages.get(self.pages.len()).map_or(0, |told| told + 1).max(PAGE_ENDS_MIN_BYTES);
            found.bounds = Some((low.cut(page), high.cut(page)));
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

    fn indexed(&mut self, data: &[u8], count: u64) -> Result<Seen> {
        let odd =
            |got: &str| Fault::new("parquet_ambiguous", &self.column.path().string(), "indices of a dictionary", got);
        // A decoder asks for the width even where there is no value.
        if self.kept.is_some() && data.first().is_none_or(|width| *width > 32) {
            return Err(odd("none"));
        }
        if count == 0 {
            return Ok(Seen::default());
        }
        let dictionary = self.dictionary.as_mut().ok_or_else(|| odd("no dictionary"))?;
        let (width, data) = data.split_first().ok_or_else(|| odd("none"))?;
        let width = u32::from(*width);
        let sized = self.column.physical_type() == Physical::BYTE_ARRAY;
        if self.marks {
            let marked = each_block(data, width, count, |indices, _| {
                indices.iter().for_each(|at| dictionary.mark(*at as usize));
                Some(())
            });
            marked.ok_or_else(|| odd("others"))?;
        }
        let seen = match &mut self.kept {
            Some(kept) => by_indices(dictionary, data, width, count, sized, |indices, times| kept.add(indices, times)),
            None => by_indices(dictionary, data, width, count, sized, |_, _| ()),
        };
        let seen = seen.ok_or_else(|| odd("others"))?;
        // Polars looks up all of a packed run.
        match fills_below(data, width, count, dictionary.len()) {
            true => Ok(seen),
            false => Err(odd("others behind the last")),
        }
    }

    /// Plain values, exactly so many.
    fn plain(&self, data: &[u8], count: u64) -> Result<Seen> {
        let many = || self.odd("as many values as the levels say", "another number");
        let count = usize::try_from(count).map_err(|_| many())?;
        if self.column.physical_type() == Physical::BOOLEAN {
            if data.len() < count.div_ceil(8) {
                return Err(many());
            }
            let ones = (0..count).filter(|at| data[at / 8] >> (at % 8) & 1 == 1).count();
            // DataFusion hashes a boolean as one byte.
            let lacks = |flag: u8| self.filter.as_ref().is_some_and(|filter| !filter.finds(&[flag], self.order));
            if ones < count && lacks(0) || ones > 0 && lacks(1) {
                return Err(self.not_in_filter());
            }
            let ends = (i64::from(ones == count), i64::from(ones > 0));
            let bounds = (count > 0).then_some((Bound::Integer(ends.0), Bound::Integer(ends.1)));
            return Ok(Seen { bounds, ..Seen::default() });
        }
        if self.column.physical_type() == Physical::BYTE_ARRAY {
            return self.texts(data, count);
        }
        let width = self.width();
        if data.len() != count.checked_mul(width).ok_or_else(many)? || width == 0 && count > 0 {
            return Err(many());
        }
        if let Some(filter) = &self.filter
            && data.chunks_exact(width.max(1)).any(|value| !filter.finds(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        Ok(match self.order {
            Order::Int32 => integers(data.as_chunks::<4>().0.iter().map(|value| i32::from_le_bytes(*value))),
            Order::Int64 => integers(data.as_chunks::<8>().0.iter().map(|value| i64::from_le_bytes(*value))),
            Order::Float => {
                let values = data.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
                floats(values, f32::is_nan, f32::total_cmp, Bound::Float)
            }
            Order::Double => {
                let values = data.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value));
                floats(values, f64::is_nan, f64::total_cmp, Bound::Double)
            }
            Order::Bytes | Order::Decimal => self.strings(data.chunks_exact(width.max(1)))?,
            Order::Boolean | Order::Undefined => Seen::default(),
        })
    }

    fn texts(&self, data: &[u8], count: usize) -> Result<Seen> {
        let (found, bytes) = texts(data).fold((0, 0), |(found, bytes), text| (found + 1, bytes + text.len()));
        if found != count || bytes + 4 * count != data.len() {
            return Err(self.odd("as many values as the levels say", "another number"));
        }
        if let Some(filter) = &self.filter
            && texts(data).any(|value| !filter.finds(value, self.order))
        {
            return Err(self.not_in_filter());
        }
        let mut seen = self.strings(texts(data))?;
        seen.bytes = bytes as u64;
        Ok(seen)
    }

    fn strings<'a>(&self, mut values: impl Iterator<Item = &'a [u8]>) -> Result<Seen> {
        let mut seen = Seen::default();
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
                seen.bounds = Some((Bound::Bytes(low.to_vec()), Bound::Bytes(high.to_vec())));
            }
            Order::Decimal => {
                for value in values {
                    let value = decimal(value).ok_or_else(|| self.odd("numbers of at most 32 bytes", "others"))?;
                    let one = Some((Bound::Decimal(value), Bound::Decimal(value)));
                    seen.bounds = joined(seen.bounds, one);
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
            && dictionary.in_use().any(|value| !filter.finds(value, self.order))
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

    fn odd(&self, expected: &str, got: &str) -> Fault {
        Fault::new("parquet_ambiguous", &self.column.path().string(), expected, got)
    }
}

/// Whether a page has so many booleans in runs, with their length before them.
fn is_flags(data: &[u8], count: u64) -> bool {
    let Some((length, rest)) = data.split_first_chunk::<4>() else { return false };
    let Some(runs) = rest.get(..u32::from_le_bytes(*length) as usize) else { return false };
    each_block(runs, 1, count, |flags, _| flags.iter().all(|flag| *flag <= 1).then_some(())).is_some()
}

fn integers<T: Copy + Ord + Into<i64>>(values: impl Iterator<Item = T> + Clone) -> Seen {
    // Twice over the values, each of which compilers make fast.
    let ends = values.clone().min().zip(values.max());
    let bounds = ends.map(|(low, high)| (Bound::Integer(low.into()), Bound::Integer(high.into())));
    Seen { bounds, ..Seen::default() }
}

fn floats<T: Copy>(
    values: impl Iterator<Item = T>,
    is_nan: impl Fn(T) -> bool,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
    bound: impl Fn(T) -> Bound,
) -> Seen {
    let (mut ends, mut nans) = (None, 0);
    for value in values {
        if is_nan(value) {
            nans += 1;
            continue;
        }
        ends = Some(match ends {
            None => (value, value),
            Some((low, high)) => (
                if order(&value, &low).is_lt() { value } else { low },
                if order(&value, &high).is_gt() { value } else { high },
            ),
        });
    }
    Seen { bounds: ends.map(|(low, high)| (bound(low), bound(high))), nans, bytes: 0 }
}

/// Shows each block of indices as well, once they are known to be those of values.
fn by_indices(
    dictionary: &Dictionary,
    data: &[u8],
    width: u32,
    count: u64,
    sized: bool,
    mut show: impl FnMut(&[u32], u64),
) -> Option<Seen> {
    let mut seen = Seen::default();
    // Of indices that are already known to be those of values.
    let bytes = |indices: &[u32], times| match sized {
        true => indices.iter().map(|at| dictionary.length(*at as usize)).sum::<u64>() * times,
        false => 0,
    };
    match (dictionary.keys(), dictionary.nans()) {
        (Some(keys), None) => {
            let (mut low, mut high) = (i64::MAX, i64::MIN);
            each_block(data, width, count, |indices, times| {
                for at in indices {
                    let key = *keys.get(*at as usize)?;
                    (low, high) = (low.min(key), high.max(key));
                }
                seen.bytes += bytes(indices, times);
                show(indices, times);
                Some(())
            })?;
            seen.bounds = Some((dictionary.keyed(low)?, dictionary.keyed(high)?));
        }
        (Some(keys), Some(nans)) => {
            let mut ends: Option<(i64, i64)> = None;
            each_block(data, width, count, |indices, times| {
                for at in indices {
                    let key = *keys.get(*at as usize)?;
                    if nans[*at as usize] {
                        seen.nans += times;
                    } else {
                        ends = Some(ends.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
                    }
                }
                show(indices, times);
                Some(())
            })?;
            seen.bounds = match ends {
                Some((low, high)) => Some((dictionary.keyed(low)?, dictionary.keyed(high)?)),
                None => None,
            };
        }
        // Where there are too many values to sort.
        (None, _) => {
            let mut ends: Option<(usize, usize)> = None;
            each_block(data, width, count, |indices, times| {
                for at in indices {
                    let at = Some(*at as usize).filter(|at| *at < dictionary.len())?;
                    ends = Some(match ends {
                        None => (at, at),
                        Some((low, high)) => (
                            if dictionary.compare(at, low).is_lt() { at } else { low },
                            if dictionary.compare(at, high).is_gt() { at } else { high },
                        ),
                    });
                }
                seen.bytes += bytes(indices, times);
                show(indices, times);
                Some(())
            })?;
            seen.bounds = ends.and_then(|(low, high)| Some((dictionary.bound(low)?, dictionary.bound(high)?)));
        }
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[&[u8]], order: Order, indices: &[u8], count: u64) -> Option<Seen> {
        let data: Vec<u8> =
            values.iter().flat_map(|each| [&(each.len() as u32).to_le_bytes(), *each].concat()).collect();
        let dictionary = Dictionary::of(data.into(), values.len() as u32, Physical::BYTE_ARRAY, 0, order)?;
        by_indices(&dictionary, indices, 2, count, true, |_, _| ())
    }

    #[test]
    fn a_page_of_indices_has_the_bounds_and_the_bytes_of_its_values() {
        // Eight packed numbers, 0 1 2 0 0 0 0 0, and five times 2.
        let seen = measured(&[b"b", b"abc", b"cd"], Order::Bytes, &[3, 0b10_0100, 0, 10, 2], 13).unwrap();
        let bounds = (Bound::Bytes(b"abc".to_vec()), Bound::Bytes(b"cd".to_vec()));
        assert_eq!((seen.bounds, seen.bytes), (Some(bounds), 6 + 3 + 2 + 10));
    }

    #[test]
    fn an_index_beyond_the_dictionary_is_none_wherever_it_stands() {
        // Without an order values are compared themselves, as where there are too many to sort.
        for order in [Order::Bytes, Order::Undefined] {
            for indices in [&[3, 0b1100_0000, 0][..], &[3, 0, 0b1100_0000], &[16, 3], &[2, 1, 14, 3]] {
                assert!(measured(&[b"b", b"abc", b"cd"], order, indices, 8).is_none(), "{indices:?}");
            }
            assert!(measured(&[b"b", b"abc", b"cd"], order, &[3, 0b10_0100, 0], 8).is_some());
        }
    }
}
