//! A bound column of a batch, and the encoded cells of its dictionary.

use crate::canonical::cells::{CHUNK, copy_bytes};
use crate::canonical::column::{Column, Values};
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_data::ArrayData;
use std::collections::HashMap;
use std::sync::Arc;

/// A dictionary is not encoded in advance if its cells together need more bytes than this.
const DICTIONARY_BYTES: usize = 1 << 26;
/// The size of an entry of `DictionaryCells::short` in bytes. All cells of the dictionary must be shorter.
const SHORT: usize = 16;

/// A bound column and, for a dictionary, its encoded values.
pub struct BatchColumn {
    pub column: Column,
    pub dictionary: Option<Arc<DictionaryCells>>,
}

impl BatchColumn {
    pub fn new(column: Column) -> Self {
        let dictionary = match &column.values {
            Values::Dictionary { values, .. } => DictionaryCells::new(values, column.len).map(Arc::new),
            _ => None,
        };
        BatchColumn { column, dictionary }
    }
}

/// The last dictionary of each column with its encoded cells. Batches from the same pages share a dictionary.
#[derive(Default)]
pub struct DictionaryCache(HashMap<usize, (ArrayData, Arc<DictionaryCells>)>);

impl DictionaryCache {
    /// Returns the column with the cells of its dictionary. The cells come from the cache if the cache has them for
    /// this dictionary. `array` is the array that `column` was bound from, and `at` the column's position. The cache
    /// keeps the dictionary itself too, so that no other dictionary can have the same address.
    pub fn batch_column(&mut self, at: usize, column: Column, array: &dyn Array) -> BatchColumn {
        let (Values::Dictionary { .. }, Some(dictionary)) = (&column.values, array.as_any_dictionary_opt()) else {
            return BatchColumn::new(column);
        };
        let values = dictionary.values().to_data();
        if let Some((last, cells)) = self.0.get(&at)
            && last.ptr_eq(&values)
        {
            return BatchColumn { column, dictionary: Some(cells.clone()) };
        }
        let batch_column = BatchColumn::new(column);
        match &batch_column.dictionary {
            Some(cells) => self.0.insert(at, (values, cells.clone())),
            None => self.0.remove(&at),
        };
        batch_column
    }
}

/// The cell of every dictionary value. A refused value has an impossible range, so only a row that uses it fails.
pub struct DictionaryCells {
    /// Start and end of each cell in `bytes`.
    ranges: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    /// The size of the longest cell.
    pub longest: usize,
    /// Each cell, with its size in the last byte; a refused value has size zero. Empty if some cell is not short.
    pub short: Vec<[u8; SHORT]>,
}

impl DictionaryCells {
    /// Encodes every value for a batch of `rows` rows. Returns `None` if that costs more than it saves: there are more
    /// values than rows, or their cells are too large.
    fn new(values: &Column, rows: usize) -> Option<Self> {
        if values.len > rows {
            return None;
        }
        let (mut ranges, mut bytes, mut cell) = (Vec::with_capacity(values.len), Vec::new(), Vec::new());
        for index in 0..values.len {
            cell.clear();
            ranges.push(match values.put(index, &mut cell) {
                Ok(()) => (bytes.len() as u32, (bytes.len() + cell.len()) as u32),
                Err(_) => (u32::MAX, 0),
            });
            bytes.extend_from_slice(&cell);
            if bytes.len() > DICTIONARY_BYTES {
                return None;
            }
        }
        bytes.resize(bytes.len() + CHUNK, 0);
        let longest = ranges.iter().map(|(start, end)| end.saturating_sub(*start) as usize).max().unwrap_or(0);
        let mut short = Vec::new();
        if longest < SHORT {
            short.extend(ranges.iter().map(|(start, end)| {
                let (mut entry, length) = ([0; SHORT], end.saturating_sub(*start) as usize);
                if length > 0 {
                    entry[..length].copy_from_slice(&bytes[*start as usize..*end as usize]);
                    entry[SHORT - 1] = length as u8;
                }
                entry
            }));
        }
        Some(DictionaryCells { ranges, bytes, longest, short })
    }

    /// The size of the cell of dictionary value `key`; zero if the value is refused or out of range.
    pub fn size(&self, key: Option<i64>) -> usize {
        let range = key.and_then(|key| self.ranges.get(usize::try_from(key).ok()?));
        range.map_or(0, |(start, end)| end.saturating_sub(*start) as usize)
    }

    /// Like `write`, for a dictionary whose cells are all short.
    #[inline(always)]
    pub fn write_short(&self, slot: &mut [u8], key: usize) -> Option<usize> {
        let cell = self.short.get(key)?;
        *slot.first_chunk_mut::<SHORT>()? = *cell;
        Some(usize::from(cell[SHORT - 1])).filter(|length| *length > 0)
    }

    /// Copies the cell of dictionary value `key` to the slot, and returns its size. Returns `None` if the value is
    /// refused or out of range.
    #[inline(always)]
    pub fn write(&self, slot: &mut [u8], key: usize) -> Option<usize> {
        let (start, end) = *self.ranges.get(key)?;
        copy_bytes(slot, &self.bytes, start as usize, end as usize)
    }
}
