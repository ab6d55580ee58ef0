//! Rows of a column as indices of its dictionary, recorded while the pages are read.

use crate::parquet::format::runs::each_block;
use arrow_array::PrimitiveArray;
use arrow_array::types::Int32Type;
use arrow_buffer::{BooleanBufferBuilder, NullBuffer, ScalarBuffer};

/// The rows that were recorded and not yet taken.
#[derive(Debug, Default)]
pub struct RowIndices {
    /// The index of every row; 0 for a null row.
    keys: Vec<i32>,
    /// For each row, whether it has a value. `None` as long as no row is null.
    present: Option<BooleanBufferBuilder>,
    /// The number of rows at the front that were taken.
    taken: usize,
}

impl RowIndices {
    pub fn len(&self) -> usize {
        self.keys.len() - self.taken
    }

    /// Discards the rows that were taken. It is called before each page, when less than a batch is left.
    pub fn start_page(&mut self) {
        let left = self.taken..self.keys.len();
        self.present = self.present.take().map(|present| {
            let mut rest = BooleanBufferBuilder::new(left.len());
            rest.append_packed_range(left, present.as_slice());
            rest
        });
        self.keys.drain(..self.taken);
        self.taken = 0;
    }

    /// Adds indices of a page's values, each repeated `times` times.
    #[inline(always)]
    pub fn add(&mut self, indices: &[u32], times: u64) {
        if times == 1 {
            self.keys.extend(indices.iter().map(|at| *at as i32));
        } else {
            indices.iter().for_each(|at| self.keys.extend(std::iter::repeat_n(*at as i32, times as usize)));
        }
    }

    /// Inserts the nulls of a page whose indices were added after the first `before` rows. Each definition level is one
    /// row: level 0 is a null, and level 1 is a value. Returns `None` if the numbers of values and indices differ.
    pub fn insert_nulls(&mut self, before: usize, definition: &[u8], entries: u64) -> Option<()> {
        let added = self.keys.len().checked_sub(before)?;
        if added as u64 == entries {
            self.present.iter_mut().for_each(|present| present.append_n(added, true));
            return Some(());
        }
        let values = self.keys.split_off(before);
        let (mut left, keys) = (values.as_slice(), &mut self.keys);
        let present = self.present.get_or_insert_with(|| {
            let mut all_present = BooleanBufferBuilder::new(before);
            all_present.append_n(before, true);
            all_present
        });
        each_block(definition, 1, entries, |levels, times| {
            let times = usize::try_from(times).ok()?;
            for level in levels {
                if *level == 0 {
                    keys.extend(std::iter::repeat_n(0, times));
                } else {
                    let (these, rest) = left.split_at_checked(times)?;
                    keys.extend_from_slice(these);
                    left = rest;
                }
                present.append_n(times, *level != 0);
            }
            Some(())
        })?;
        left.is_empty().then_some(())
    }

    /// Takes the first `rows` recorded rows, or all if there are fewer.
    pub fn take(&mut self, rows: usize) -> PrimitiveArray<Int32Type> {
        let taken = self.taken..self.taken + rows.min(self.len());
        self.taken = taken.end;
        let nulls = self.present.as_ref().map(|present| {
            let mut of_taken = BooleanBufferBuilder::new(taken.len());
            of_taken.append_packed_range(taken.clone(), present.as_slice());
            NullBuffer::new(of_taken.finish())
        });
        PrimitiveArray::new(ScalarBuffer::from(self.keys[taken].to_vec()), nulls)
    }
}
