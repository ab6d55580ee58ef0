//! Parquet's bloom filters. A filter is a list of blocks of 256 bits. The XXH64 hash of a value's plain bytes selects
//! one block, and eight bits in this block.

use crate::parquet::ordered_value::Order;
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::schema::types::ColumnDescriptor;
use twox_hash::XxHash64;

/// A filter has at most 128 MiB, because readers allocate memory for the whole filter.
const FILTER_MAX_BYTES: usize = 134_217_728;
const BLOCK_BYTES: usize = 32;
/// The constants of the format that select one bit in each of a block's eight words.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// The blocks of one filter.
#[derive(Debug)]
pub struct BloomFilter(Bytes);

impl BloomFilter {
    /// Returns `None` if there is no block, if the last block is not whole, or if the filter is too large for readers.
    pub fn new(blocks: Bytes) -> Option<BloomFilter> {
        let size = blocks.len();
        (size.is_multiple_of(BLOCK_BYTES) && (BLOCK_BYTES..=FILTER_MAX_BYTES).contains(&size))
            .then_some(BloomFilter(blocks))
    }

    /// Whether a reader that looks up this value reads the row group. For negative zero, the filter must also contain
    /// zero, because a query for zero must find it.
    pub fn may_contain_value(&self, value: &[u8], order: Order) -> bool {
        let is_negative_zero =
            matches!((order, value), (Order::Float, [0, 0, 0, 0x80]) | (Order::Double, [0, 0, 0, 0, 0, 0, 0, 0x80]));
        self.may_contain(value) && (!is_negative_zero || self.may_contain(&[0; 8][..value.len()]))
    }

    fn may_contain(&self, value: &[u8]) -> bool {
        let hash = XxHash64::oneshot(0, value);
        let count = (self.0.len() / BLOCK_BYTES) as u64;
        let block = (((hash >> 32) * count) >> 32) as usize * BLOCK_BYTES;
        SALTS.iter().zip(self.0[block..block + BLOCK_BYTES].chunks_exact(4)).all(|(salt, word)| {
            let bit = (hash as u32).wrapping_mul(*salt) >> 27;
            word[(bit / 8) as usize] >> (bit % 8) & 1 == 1
        })
    }
}

/// Whether readers look up a value by the bytes that are stored. A decimal that is stored as a byte array is different:
/// Iceberg looks it up with the width that the column's number of digits needs, whatever width is stored.
pub fn is_looked_up_by_stored_bytes(column: &ColumnDescriptor) -> bool {
    if Order::of_column(column) != Order::Decimal {
        return true;
    }
    column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && Some(column.type_length()) == needed_bytes(column)
}

/// The width in bytes that a decimal with the column's number of digits needs.
fn needed_bytes(column: &ColumnDescriptor) -> Option<i32> {
    let greatest = 10_u128.checked_pow(u32::try_from(column.type_precision()).ok()?)? - 1;
    let sign_bit = 1;
    i32::try_from((u128::BITS - greatest.leading_zeros() + sign_bit).div_ceil(8)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_whole_blocks_and_no_larger_than_readers_accept() {
        let accepts = |size: usize| BloomFilter::new(vec![0; size].into()).is_some();
        assert!(accepts(BLOCK_BYTES) && accepts(FILTER_MAX_BYTES));
        assert!(!accepts(0) && !accepts(BLOCK_BYTES + 1) && !accepts(FILTER_MAX_BYTES + BLOCK_BYTES));
    }
}
