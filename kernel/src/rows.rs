//! Canonical rows of a batch, a tile at a time: column by column into slots, padded where they lie, ready to hash.

use crate::column::{
    ByteStrings, Column, Conversion, Decimals, Floats, Integers, Unscaled, Values, canonicalize_double,
    canonicalize_single, has_prefix,
};
use crate::error::{Fault, Result};
use crate::schema::{Mode, ROW_SIZE_MAX_BYTES};
use crate::sha256::{self, Messages};
use crate::text::*;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows a tile at most: enough to fill sixteen lanes of most lengths, few enough to stay in the nearest cache.
pub const TILE_ROWS: usize = 256;
/// Bytes of values a tile at most, unless a single row has more.
const TILE_BYTES: usize = 1 << 20;
/// Room behind a row: the widest fixed-size store (48 bytes) and the padding (72) may run past its end.
const SLACK: usize = 128;
/// Dictionaries up to this many encoded bytes are encoded once a batch.
const DICTIONARY_BYTES: usize = 1 << 26;
/// Copies of this size need no call.
const CHUNK: usize = 32;
/// A cell of a dictionary takes so much where all its cells are shorter.
const SHORT: usize = 16;

/// A bound column and, for a dictionary, its encoded values.
pub struct BatchColumn {
    pub column: Column,
    dictionary: Option<Arc<DictionaryCells>>,
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

/// The last dictionary of each column and its cells: batches that come from the same pages share it.
#[derive(Default)]
pub struct Encoded(HashMap<usize, (ArrayData, Arc<DictionaryCells>)>);

impl Encoded {
    /// A bound column at a place of the schema, and the array that it was bound from. The array is kept, so that nothing else
    /// can lie where its values do.
    pub fn column(&mut self, at: usize, column: Column, array: &dyn Array) -> BatchColumn {
        let (Values::Dictionary { .. }, Some(given)) = (&column.values, array.as_any_dictionary_opt()) else {
            return BatchColumn::new(column);
        };
        let values = given.values().to_data();
        if let Some((last, cells)) = self.0.get(&at)
            && last.ptr_eq(&values)
        {
            return BatchColumn { column, dictionary: Some(cells.clone()) };
        }
        let made = BatchColumn::new(column);
        match &made.dictionary {
            Some(cells) => self.0.insert(at, (values, cells.clone())),
            None => self.0.remove(&at),
        };
        made
    }
}

/// The cell of every dictionary value. A value that is refused has an impossible range: only a row that uses it fails.
pub struct DictionaryCells {
    ranges: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    /// The size of the longest cell.
    longest: usize,
    /// Where all are short: each with its size behind it, which is zero for one that is refused.
    short: Vec<[u8; SHORT]>,
}

impl DictionaryCells {
    /// `None` where encoding every value costs more than the rows could save.
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
                let (mut made, length) = ([0; SHORT], end.saturating_sub(*start) as usize);
                if length > 0 {
                    made[..length].copy_from_slice(&bytes[*start as usize..*end as usize]);
                    made[SHORT - 1] = length as u8;
                }
                made
            }));
        }
        Some(DictionaryCells { ranges, bytes, longest, short })
    }

    /// The size of the cell of dictionary value `key`; nothing for one that is refused or out of range.
    fn size(&self, key: Option<i64>) -> usize {
        let range = key.and_then(|key| self.ranges.get(usize::try_from(key).ok()?));
        range.map_or(0, |(start, end)| end.saturating_sub(*start) as usize)
    }

    #[inline(always)]
    fn write_short(&self, slot: &mut [u8], key: usize) -> Option<usize> {
        let cell = self.short.get(key)?;
        *slot.first_chunk_mut::<SHORT>()? = *cell;
        Some(usize::from(cell[SHORT - 1])).filter(|length| *length > 0)
    }

    #[inline(always)]
    fn write(&self, slot: &mut [u8], key: usize) -> Option<usize> {
        let (start, end) = *self.ranges.get(key)?;
        copy(slot, &self.bytes, start as usize, end as usize)
    }
}

/// How a column gets into the slots.
enum Way<'a> {
    /// Every cell has at most this many bytes.
    Bounded(usize),
    Bytes(&'a ByteStrings),
    Dictionary(&'a Integers, &'a DictionaryCells),
    /// Cells are encoded one by one before their slots are laid out.
    Prepared,
}

fn way(column: &BatchColumn) -> Way<'_> {
    match &column.column.values {
        Values::Nulls => Way::Bounded(1),
        Values::Boolean(_) => Way::Bounded(7),
        Values::Integers { .. } => Way::Bounded(22),
        Values::Floats { .. } => Way::Bounded(10),
        Values::Decimals(decimals) => Way::Bounded(usize::from(decimals.precision) + 6),
        Values::Bytes { values, text, .. } if *text != Some(Mode::Portable) => Way::Bytes(values),
        Values::Dictionary { keys, .. } => match &column.dictionary {
            Some(cells) => Way::Dictionary(keys, cells),
            None => Way::Prepared,
        },
        _ => Way::Prepared,
    }
}

/// Cells of one column for the rows of a tile.
#[derive(Default)]
struct Cells {
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Cells {
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        start..self.ends[row]
    }

    /// Encodes up to `rows` cells, fewer where they grow large; at least one.
    fn prepare(&mut self, column: &Column, first: usize, rows: usize, cell: &mut Vec<u8>) -> Result<usize> {
        self.ends.clear();
        self.bytes.clear();
        for index in first..first + rows {
            cell.clear();
            column.put(index, cell).map_err(|fault| fault.at(index))?;
            self.bytes.extend_from_slice(cell);
            self.ends.push(self.bytes.len());
            if self.bytes.len() > TILE_BYTES {
                break;
            }
        }
        Ok(self.ends.len())
    }
}

/// The rows of one projection, for some consecutive rows of a batch. Kept and filled again.
#[derive(Default)]
pub struct Tile {
    bytes: Vec<u8>,
    starts: Vec<u32>,
    /// Where each row's next cell goes.
    ends: Vec<u32>,
    lengths: Vec<u32>,
    blocks: Vec<u32>,
    sizes: Vec<usize>,
    prepared: Vec<Cells>,
    cell: Vec<u8>,
}

impl Tile {
    /// Encodes and pads rows from `first` on, at most `rows` of them; returns how many.
    pub fn fill(&mut self, columns: &[&BatchColumn], first: usize, rows: usize) -> Result<usize> {
        let rows = self.lay_out(columns, first, rows.min(TILE_ROWS))?;
        for (at, column) in columns.iter().enumerate() {
            self.write_column(at, column, first, rows)?;
        }
        self.lengths.clear();
        self.blocks.clear();
        for row in 0..rows {
            let length = (self.ends[row] - self.starts[row]) as usize;
            if length > ROW_SIZE_MAX_BYTES {
                return Err(columns[0].column.too_large(length).at(first + row));
            }
            self.lengths.push(length as u32);
            self.blocks.push(sha256::pad(&mut self.bytes[self.starts[row] as usize..], length));
        }
        Ok(rows)
    }

    pub fn messages(&self) -> Messages<'_> {
        Messages { bytes: &self.bytes, starts: &self.starts, blocks: &self.blocks }
    }

    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.starts[row] as usize..][..self.lengths[row] as usize]
    }

    /// Gives every row a slot that its cells fit in; returns the number of rows that fit the tile.
    fn lay_out(&mut self, columns: &[&BatchColumn], first: usize, mut rows: usize) -> Result<usize> {
        self.prepared.resize_with(columns.len(), Cells::default);
        self.sizes.clear();
        self.sizes.resize(rows, 0);
        let mut bounded = SLACK;
        for (at, batch_column) in columns.iter().enumerate() {
            let column = &batch_column.column;
            match way(batch_column) {
                Way::Bounded(bound) => bounded += bound,
                Way::Bytes(ByteStrings::Offsets32 { offsets, .. }) if column.nulls.is_none() => {
                    bounded += HEADER_MAX_BYTES;
                    let offsets = &offsets[first..=first + rows];
                    for (size, pair) in self.sizes.iter_mut().zip(offsets.windows(2)) {
                        // A range that contradicts itself gets no room and fails when it is read.
                        *size += usize::try_from(pair[1].wrapping_sub(pair[0])).unwrap_or(0);
                    }
                }
                Way::Bytes(ByteStrings::Views { views, .. }) if column.nulls.is_none() => {
                    bounded += HEADER_MAX_BYTES;
                    for (size, view) in self.sizes.iter_mut().zip(&views[first..first + rows]) {
                        *size += usize::try_from(*view as i32).unwrap_or(0);
                    }
                }
                Way::Bytes(values) => {
                    bounded += HEADER_MAX_BYTES;
                    for row in (0..rows).filter(|row| !column.is_null(first + row)) {
                        self.sizes[row] += values.get(first + row).map_or(0, <[u8]>::len);
                    }
                }
                Way::Dictionary(_, cells) if cells.longest <= CHUNK => bounded += cells.longest.max(1),
                Way::Dictionary(keys, cells) => {
                    bounded += 1;
                    for row in (0..rows).filter(|row| !column.is_null(first + row)) {
                        self.sizes[row] += cells.size(keys.get(first + row));
                    }
                }
                Way::Prepared => {
                    rows = self.prepared[at].prepare(column, first, rows, &mut self.cell)?;
                    for row in 0..rows {
                        self.sizes[row] += self.prepared[at].range(row).len();
                        if self.sizes[row] > ROW_SIZE_MAX_BYTES {
                            return Err(column.too_large(self.sizes[row]).at(first + row));
                        }
                    }
                }
            }
        }
        self.cut_slots(columns, first, rows, bounded)
    }

    fn cut_slots(&mut self, columns: &[&BatchColumn], first: usize, rows: usize, bounded: usize) -> Result<usize> {
        self.starts.clear();
        let mut total = 0;
        for (row, size) in self.sizes[..rows].iter().enumerate() {
            if *size > ROW_SIZE_MAX_BYTES {
                return Err(columns[0].column.too_large(*size).at(first + row));
            }
            if row > 0 && total + size > TILE_BYTES {
                break;
            }
            self.starts.push(total as u32);
            total += (size + bounded).next_multiple_of(64);
        }
        if self.bytes.len() > 8 * TILE_BYTES && total <= TILE_BYTES {
            self.bytes = Vec::new();
        }
        if self.bytes.len() < total {
            self.bytes.resize(total, 0);
        }
        self.ends.clear();
        self.ends.extend_from_slice(&self.starts);
        Ok(self.starts.len())
    }

    fn write_column(&mut self, at: usize, batch_column: &BatchColumn, first: usize, rows: usize) -> Result<()> {
        let column = &batch_column.column;
        match (way(batch_column), &column.values) {
            (Way::Prepared, _) => {
                let cells = &self.prepared[at];
                for row in 0..rows {
                    let cell = &cells.bytes[cells.range(row)];
                    let end = self.ends[row] as usize;
                    self.bytes[end..end + cell.len()].copy_from_slice(cell);
                    self.ends[row] += cell.len() as u32;
                }
                Ok(())
            }
            (Way::Dictionary(Integers::I32(keys), cells), _) if !cells.short.is_empty() => {
                let keys = &keys[first..first + rows];
                self.write(column, first, rows, |slot, row| cells.write_short(slot, usize::try_from(keys[row]).ok()?))
            }
            (Way::Dictionary(Integers::I32(keys), cells), _) => {
                let keys = &keys[first..first + rows];
                self.write(column, first, rows, |slot, row| cells.write(slot, usize::try_from(keys[row]).ok()?))
            }
            (Way::Dictionary(keys, cells), _) => self.write(column, first, rows, |slot, row| {
                cells.write(slot, usize::try_from(keys.get(first + row)?).ok()?)
            }),
            (Way::Bytes(values), Values::Bytes { tag, text, .. }) => {
                self.write_bytes(column, values, *tag, text.is_some(), first, rows)
            }
            (_, Values::Integers { tag, values, conversion }) => {
                self.write_integers(column, values, *tag, *conversion, first, rows)
            }
            (_, Values::Decimals(decimals)) if decimals.scale == decimals.written => {
                self.write_decimals(column, decimals, first, rows)
            }
            (_, Values::Floats { tag, values: Floats::F64(bits) }) => self.write(column, first, rows, |slot, row| {
                let cell = slot.first_chunk_mut::<10>()?;
                (cell[0], cell[1]) = (*tag, 8);
                cell[2..].copy_from_slice(&canonicalize_double(bits[first + row]).to_be_bytes());
                Some(10)
            }),
            (_, Values::Floats { tag, values: Floats::F32(bits) }) => self.write(column, first, rows, |slot, row| {
                let cell = slot.first_chunk_mut::<6>()?;
                (cell[0], cell[1]) = (*tag, 4);
                cell[2..].copy_from_slice(&canonicalize_single(bits[first + row]).to_be_bytes());
                Some(6)
            }),
            (_, Values::Boolean(values)) => self.write(column, first, rows, |slot, row| {
                let (cell, length) =
                    if values.value(first + row) { (b"\x01\x04true\0", 6) } else { (b"\x01\x05false", 7) };
                *slot.first_chunk_mut::<7>()? = *cell;
                Some(length)
            }),
            _ => self.write(column, first, rows, |_, _| None),
        }
    }

    /// Writes one cell a row: by `fast` where that knows how, by `Column::put` otherwise. `fast` is given the slot from the
    /// row's end on, and the row within the tile.
    #[inline(always)]
    fn write(
        &mut self,
        column: &Column,
        first: usize,
        rows: usize,
        fast: impl Fn(&mut [u8], usize) -> Option<usize>,
    ) -> Result<()> {
        let Tile { bytes, ends, cell, .. } = self;
        let nulls = column.nulls.as_ref();
        for (row, end) in ends[..rows].iter_mut().enumerate() {
            let slot = &mut bytes[*end as usize..];
            let null = nulls.is_some_and(|nulls| nulls.is_null(first + row));
            let length = match if null { None } else { fast(slot, row) } {
                Some(length) => length,
                None => write_slowly(column, first + row, slot, cell)?,
            };
            *end += length as u32;
        }
        Ok(())
    }

    fn write_integers(
        &mut self,
        column: &Column,
        values: &Integers,
        tag: u8,
        conversion: Conversion,
        first: usize,
        rows: usize,
    ) -> Result<()> {
        match (values, conversion) {
            (Integers::I32(values), Conversion::None) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| number(slot, tag, values[row].into(), 0))
            }
            (Integers::I64(values), Conversion::None) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| number(slot, tag, values[row], 0))
            }
            _ => self.write(column, first, rows, |slot, row| {
                number(slot, tag, conversion.apply(values.get(first + row)?)?, 0)
            }),
        }
    }

    fn write_decimals(&mut self, column: &Column, decimals: &Decimals, first: usize, rows: usize) -> Result<()> {
        let limit = 10u64.checked_pow(decimals.precision.into()).unwrap_or(u64::MAX);
        let scale = u32::from(decimals.written);
        let cell = |slot: &mut [u8], unscaled: i64| {
            if unscaled.unsigned_abs() >= limit { None } else { number(slot, TAG_DECIMAL, unscaled, scale) }
        };
        match &decimals.values {
            Unscaled::I32(values) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| cell(slot, values[row].into()))
            }
            Unscaled::I64(values) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| cell(slot, values[row]))
            }
            Unscaled::I128(values) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| cell(slot, i64::try_from(values[row]).ok()?))
            }
            Unscaled::U64(_) | Unscaled::I256(_) => self.write(column, first, rows, |_, _| None),
        }
    }

    fn write_bytes(
        &mut self,
        column: &Column,
        values: &ByteStrings,
        tag: u8,
        text: bool,
        first: usize,
        rows: usize,
    ) -> Result<()> {
        match values {
            ByteStrings::Offsets32 { offsets, data } => {
                self.write_ranges(column, &offsets[first..=first + rows], data, tag, text, first)
            }
            ByteStrings::Offsets64 { offsets, data } => {
                self.write_ranges(column, &offsets[first..=first + rows], data, tag, text, first)
            }
            ByteStrings::Views { views, buffers } => {
                let views = &views[first..first + rows];
                self.write(column, first, rows, |slot, row| view(slot, tag, views[row], buffers, text))
            }
            ByteStrings::Fixed { width, data } => self.write(column, first, rows, |slot, row| {
                let start = (first + row) * width;
                bytes(slot, tag, data, start, start + width)
            }),
        }
    }

    fn write_ranges<Offset: Copy + PartialOrd + TryInto<usize>>(
        &mut self,
        column: &Column,
        offsets: &[Offset],
        data: &[u8],
        tag: u8,
        text: bool,
        first: usize,
    ) -> Result<()> {
        let rows = offsets.len() - 1;
        if text && !is_text(data, offsets) {
            return self.write(column, first, rows, |_, _| None);
        }
        self.write(column, first, rows, |slot, row| {
            bytes(slot, tag, data, offsets[row].try_into().ok()?, offsets[row + 1].try_into().ok()?)
        })
    }
}

#[inline(never)]
fn write_slowly(column: &Column, index: usize, slot: &mut [u8], cell: &mut Vec<u8>) -> Result<usize> {
    cell.clear();
    column.put(index, cell).map_err(|fault| fault.at(index))?;
    slot[..cell.len()].copy_from_slice(cell);
    Ok(cell.len())
}

/// Whether a stretch of string data is well-formed UTF-8 that is cut between characters only.
fn is_text<Offset: Copy + PartialOrd + TryInto<usize>>(data: &[u8], cuts: &[Offset]) -> bool {
    // Cuts that go back may lie outside the stretch that is judged here.
    if !cuts.is_sorted_by(|a, b| a <= b) {
        return false;
    }
    let ends = (cuts[0].try_into(), cuts[cuts.len() - 1].try_into());
    let (Ok(start), Ok(end)) = ends else {
        return false;
    };
    let Some(stretch) = data.get(start..end) else {
        return false;
    };
    stretch.is_ascii()
        || std::str::from_utf8(stretch).is_ok_and(|text| {
            cuts.iter().all(|cut| {
                (*cut).try_into().is_ok_and(|cut| cut.checked_sub(start).is_some_and(|cut| text.is_char_boundary(cut)))
            })
        })
}

/// Writes the cell of a number below 10^16 in magnitude; `None` where the general way is needed.
#[inline(always)]
fn number(slot: &mut [u8], tag: u8, number: i64, scale: u32) -> Option<usize> {
    if let Some(length) = short_number(slot, tag, number, scale) {
        return Some(length);
    }
    longer_number(slot, tag, number, scale as usize)
}

#[inline(never)]
fn longer_number(slot: &mut [u8], tag: u8, number: i64, scale: usize) -> Option<usize> {
    let magnitude = number.unsigned_abs();
    if magnitude >= 10_000_000_000_000_000 {
        return None;
    }
    let slot = slot.first_chunk_mut::<48>()?;
    let (text, digits) = text16(magnitude);
    let sign = usize::from(number < 0);
    slot[2] = b'-';
    let start = 2 + sign;
    slot[start..start + 16].copy_from_slice(&text);
    let mut length = sign + digits;
    if scale > 0 {
        let whole = digits.checked_sub(scale).filter(|whole| *whole > 0)?;
        let fraction = u128::from_le_bytes(text) >> (8 * whole);
        slot[start + whole] = b'.';
        slot[start + whole + 1..start + whole + 17].copy_from_slice(&fraction.to_le_bytes());
        length += 1;
    }
    slot[0] = tag;
    slot[1] = length as u8;
    Some(2 + length)
}

/// Writes the cell of a string view; `None` where it is not plain ASCII or contradicts itself.
#[inline(always)]
fn view(slot: &mut [u8], tag: u8, view: u128, buffers: &[Buffer], text: bool) -> Option<usize> {
    let length = view as u32 as usize;
    if length <= 12 {
        let inline = view >> 32;
        if text && inline & 0x8080_8080_8080_8080_8080_8080 != 0 {
            return None;
        }
        let slot = slot.first_chunk_mut::<18>()?;
        slot[0] = tag;
        slot[1] = length as u8;
        slot[2..].copy_from_slice(&inline.to_le_bytes());
        return Some(2 + length);
    }
    let data = buffers.get((view >> 64) as u32 as usize)?;
    let start = (view >> 96) as u32 as usize;
    let end = start.checked_add(length)?;
    let value = data.get(start..end)?;
    if text && !value.is_ascii() || !has_prefix(view, value) {
        return None;
    }
    bytes(slot, tag, data, start, end)
}

/// Writes the cell of `data[start..end]`; `None` where the range contradicts itself.
#[inline(always)]
fn bytes(slot: &mut [u8], tag: u8, data: &[u8], start: usize, end: usize) -> Option<usize> {
    let length = end.checked_sub(start)?;
    if length > 0x7f {
        return longer_bytes(slot, tag, data.get(start..end)?);
    }
    *slot.first_chunk_mut::<2>()? = [tag, length as u8];
    Some(2 + copy(&mut slot[2..], data, start, end)?)
}

#[inline(never)]
fn longer_bytes(slot: &mut [u8], tag: u8, value: &[u8]) -> Option<usize> {
    let mut header = Vec::with_capacity(HEADER_MAX_BYTES);
    header.push(tag);
    push_uvarint(&mut header, value.len());
    slot.get_mut(..header.len())?.copy_from_slice(&header);
    slot.get_mut(header.len()..header.len() + value.len())?.copy_from_slice(value);
    Some(header.len() + value.len())
}

/// Copies `data[start..end]` to the front of `slot`, by a fixed-size copy where both sides have the room.
#[inline(always)]
fn copy(slot: &mut [u8], data: &[u8], start: usize, end: usize) -> Option<usize> {
    let length = end.checked_sub(start)?;
    let chunk = data.get(start..).and_then(|rest| rest.first_chunk::<CHUNK>());
    match (chunk, slot.first_chunk_mut::<CHUNK>()) {
        (Some(chunk), Some(target)) if length <= CHUNK && end <= data.len() => *target = *chunk,
        _ => slot.get_mut(..length)?.copy_from_slice(data.get(start..end)?),
    }
    Some(length)
}

/// Refuses a batch whose rows do not fit the arithmetic of a digest.
pub fn checked_rows(before: u64, more: usize) -> Result<u64> {
    let overflow = || Fault::new("row_count_overflow", "", "at most 2^63 - 1 rows", "more");
    let total = before.checked_add(more as u64).ok_or_else(overflow)?;
    i64::try_from(total).map_err(|_| overflow())?;
    Ok(total)
}
