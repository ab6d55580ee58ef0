//! Encodes the rows of a batch in tiles of up to 256 rows. Every row of a tile has a slot. The columns are written into
//! the slots one after the other, and the rows are then padded in place, ready to hash.

use crate::canonical::batch_column::{BatchColumn, DictionaryCells};
use crate::canonical::cells::{CHUNK, is_text, write_bytes, write_number, write_view};
use crate::canonical::column::{ByteStrings, Column, Conversion, Decimals, Integers, Unscaled, Values};
use crate::canonical::floats::{Floats, canonicalize_double, canonicalize_single};
use crate::canonical::schema::{Mode, ROW_SIZE_MAX_BYTES};
use crate::canonical::text::*;
use crate::error::{Fault, Result};
use crate::hash::sha256::{self, Messages};

/// The most rows in a tile. So many rows are enough to fill the sixteen lanes of the AVX-512 hash, which hashes rows
/// together if they have the same number of blocks. More rows would not fit the first-level cache.
pub const TILE_ROWS: usize = 256;
/// The most bytes of values in a tile, unless a single row has more.
const TILE_BYTES: usize = 1 << 20;
/// Room behind a row. The widest fixed-size store (48 bytes) and the padding (72 bytes) may run past the row's end.
const SLACK: usize = 128;

/// How the cells of a column get into the slots.
enum Layout<'a> {
    /// Every cell has at most this many bytes.
    Bounded(usize),
    /// Cells are copied from the array's buffers.
    Bytes(&'a ByteStrings),
    /// Cells are copied from the encoded dictionary, by these keys.
    Dictionary(&'a Integers, &'a DictionaryCells),
    /// Cells are encoded one by one before their slots are laid out.
    Prepared,
}

fn layout_of(column: &BatchColumn) -> Layout<'_> {
    match &column.column.values {
        Values::Nulls => Layout::Bounded(1),
        // A tag, a length byte, and the longest text of the type.
        Values::Boolean(_) => Layout::Bounded(7),
        Values::Integers { .. } => Layout::Bounded(22),
        Values::Floats { .. } => Layout::Bounded(10),
        // Tag, length, sign, point and a leading zero take 5 bytes; one byte is spare.
        Values::Decimals(decimals) => Layout::Bounded(usize::from(decimals.precision) + 6),
        Values::Bytes { values, text, .. } if *text != Some(Mode::Portable) => Layout::Bytes(values),
        Values::Dictionary { keys, .. } => match &column.dictionary {
            Some(cells) => Layout::Dictionary(keys, cells),
            None => Layout::Prepared,
        },
        _ => Layout::Prepared,
    }
}

/// The cells of a column with the layout `Prepared`, for the rows of a tile.
#[derive(Default)]
struct Cells {
    /// Where the cell of each row ends in `bytes`.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Cells {
    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        start..self.ends[row]
    }

    /// Encodes up to `rows` cells, fewer if they are large, and at least one. Returns their number. `cell` is a buffer.
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

/// The encoded cells of one projection, for consecutive rows of a batch. A tile is reused for the next rows.
#[derive(Default)]
pub struct Tile {
    /// The slots of all rows.
    bytes: Vec<u8>,
    /// Where the slot of each row begins.
    starts: Vec<u32>,
    /// Where the next cell of each row is written.
    ends: Vec<u32>,
    /// The length of each row in bytes, without padding.
    lengths: Vec<u32>,
    /// The number of hash blocks of each row, with padding.
    blocks: Vec<u32>,
    /// For each row: the bytes of its cells in the columns for which `lay_out` adds no bound to `fixed_bytes`.
    sizes: Vec<usize>,
    /// One entry for each column. Only columns with the layout `Prepared` use their entry.
    prepared: Vec<Cells>,
    /// A buffer for one cell.
    cell: Vec<u8>,
}

impl Tile {
    /// Encodes and pads at most `rows` rows from `first` on. Returns their number.
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

    /// The padded rows.
    pub fn messages(&self) -> Messages<'_> {
        Messages { bytes: &self.bytes, starts: &self.starts, blocks: &self.blocks }
    }

    /// The bytes of each row without padding.
    pub fn lengths(&self) -> &[u32] {
        &self.lengths
    }

    /// The canonical row, without padding.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[self.starts[row] as usize..][..self.lengths[row] as usize]
    }

    /// Gives each row a slot that is large enough for its cells. Returns the number of rows that fit into the tile.
    fn lay_out(&mut self, columns: &[&BatchColumn], first: usize, mut rows: usize) -> Result<usize> {
        self.prepared.resize_with(columns.len(), Cells::default);
        self.sizes.clear();
        self.sizes.resize(rows, 0);
        // What every slot needs: the slack, the cells with a bound, and the headers of the cells without one.
        let mut fixed_bytes = SLACK;
        for (at, batch_column) in columns.iter().enumerate() {
            let column = &batch_column.column;
            match layout_of(batch_column) {
                Layout::Bounded(bound) => fixed_bytes += bound,
                Layout::Bytes(ByteStrings::Offsets32 { offsets, .. }) if column.nulls.is_none() => {
                    fixed_bytes += HEADER_MAX_BYTES;
                    let offsets = &offsets[first..=first + rows];
                    for (size, pair) in self.sizes.iter_mut().zip(offsets.windows(2)) {
                        // An invalid range gets no room, and fails when it is read.
                        *size += usize::try_from(pair[1].wrapping_sub(pair[0])).unwrap_or(0);
                    }
                }
                Layout::Bytes(ByteStrings::Views { views, .. }) if column.nulls.is_none() => {
                    fixed_bytes += HEADER_MAX_BYTES;
                    for (size, view) in self.sizes.iter_mut().zip(&views[first..first + rows]) {
                        *size += usize::try_from(*view as i32).unwrap_or(0);
                    }
                }
                Layout::Bytes(values) => {
                    fixed_bytes += HEADER_MAX_BYTES;
                    for row in (0..rows).filter(|row| !column.is_null(first + row)) {
                        self.sizes[row] += values.get(first + row).map_or(0, <[u8]>::len);
                    }
                }
                Layout::Dictionary(_, cells) if cells.longest <= CHUNK => fixed_bytes += cells.longest.max(1),
                Layout::Dictionary(keys, cells) => {
                    fixed_bytes += 1;
                    for row in (0..rows).filter(|row| !column.is_null(first + row)) {
                        self.sizes[row] += cells.size(keys.get(first + row));
                    }
                }
                Layout::Prepared => {
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
        self.cut_slots(columns, first, rows, fixed_bytes)
    }

    /// Cuts the tile's bytes into slots. Returns the number of rows that got a slot.
    fn cut_slots(&mut self, columns: &[&BatchColumn], first: usize, rows: usize, fixed_bytes: usize) -> Result<usize> {
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
            total += (size + fixed_bytes).next_multiple_of(64);
        }
        // An earlier large row made the buffer large. Its memory is freed as soon as a small buffer is enough.
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

    /// Writes the column's cell into the slot of each row, in a fast way if its layout and type have one.
    fn write_column(&mut self, at: usize, batch_column: &BatchColumn, first: usize, rows: usize) -> Result<()> {
        let column = &batch_column.column;
        match (layout_of(batch_column), &column.values) {
            (Layout::Prepared, _) => {
                let cells = &self.prepared[at];
                for row in 0..rows {
                    let cell = &cells.bytes[cells.range(row)];
                    let end = self.ends[row] as usize;
                    self.bytes[end..end + cell.len()].copy_from_slice(cell);
                    self.ends[row] += cell.len() as u32;
                }
                Ok(())
            }
            (Layout::Dictionary(Integers::I32(keys), cells), _) if !cells.short.is_empty() => {
                let keys = &keys[first..first + rows];
                self.write(column, first, rows, |slot, row| cells.write_short(slot, usize::try_from(keys[row]).ok()?))
            }
            (Layout::Dictionary(Integers::I32(keys), cells), _) => {
                let keys = &keys[first..first + rows];
                self.write(column, first, rows, |slot, row| cells.write(slot, usize::try_from(keys[row]).ok()?))
            }
            (Layout::Dictionary(keys, cells), _) => self.write(column, first, rows, |slot, row| {
                cells.write(slot, usize::try_from(keys.get(first + row)?).ok()?)
            }),
            (Layout::Bytes(values), Values::Bytes { tag, text, .. }) => {
                self.write_bytes(column, values, *tag, text.is_some(), first, rows)
            }
            (_, Values::Integers { tag, values, conversion }) => {
                self.write_integers(column, values, *tag, *conversion, first, rows)
            }
            (_, Values::Decimals(decimals)) if decimals.scale == decimals.written_scale => {
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

    /// Writes one cell per row, by `fast` if it returns a length, otherwise by `Column::put`. `fast` gets the part
    /// of the row's slot that has no cells yet, and the number of the row in the tile.
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
            let fast_length = if null { None } else { fast(slot, row) };
            let length = match fast_length {
                Some(length) => length,
                None => write_by_column(column, first + row, slot, cell)?,
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
                self.write(column, first, rows, |slot, row| write_number(slot, tag, values[row].into(), 0))
            }
            (Integers::I64(values), Conversion::None) => {
                let values = &values[first..first + rows];
                self.write(column, first, rows, |slot, row| write_number(slot, tag, values[row], 0))
            }
            _ => self.write(column, first, rows, |slot, row| {
                write_number(slot, tag, conversion.apply(values.get(first + row)?)?, 0)
            }),
        }
    }

    fn write_decimals(&mut self, column: &Column, decimals: &Decimals, first: usize, rows: usize) -> Result<()> {
        let limit = 10u64.checked_pow(decimals.precision.into()).unwrap_or(u64::MAX);
        let scale = u32::from(decimals.written_scale);
        let cell = |slot: &mut [u8], unscaled: i64| {
            if unscaled.unsigned_abs() >= limit { None } else { write_number(slot, TAG_DECIMAL, unscaled, scale) }
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
                self.write(column, first, rows, |slot, row| write_view(slot, tag, views[row], buffers, text))
            }
            ByteStrings::Fixed { width, data } => self.write(column, first, rows, |slot, row| {
                let start = (first + row) * width;
                write_bytes(slot, tag, data, start, start + width)
            }),
        }
    }

    /// Writes the byte strings between consecutive offsets. If the data has text that is not well-formed, every row is
    /// encoded by `Column::put`, which reports the row that uses such text.
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
            write_bytes(slot, tag, data, offsets[row].try_into().ok()?, offsets[row + 1].try_into().ok()?)
        })
    }
}

/// Encodes one cell by `Column::put`, which handles every value and gives the errors, and copies it to the slot.
#[inline(never)]
fn write_by_column(column: &Column, index: usize, slot: &mut [u8], cell: &mut Vec<u8>) -> Result<usize> {
    cell.clear();
    column.put(index, cell).map_err(|fault| fault.at(index))?;
    slot[..cell.len()].copy_from_slice(cell);
    Ok(cell.len())
}

/// Adds rows to a row count. Refuses a total that a digest cannot have.
pub fn add_rows(before: u64, more: usize) -> Result<u64> {
    let overflow = || Fault::new("row_count_overflow", "", "at most 2^63 - 1 rows", "more");
    let total = before.checked_add(more as u64).ok_or_else(overflow)?;
    i64::try_from(total).map_err(|_| overflow())?;
    Ok(total)
}
