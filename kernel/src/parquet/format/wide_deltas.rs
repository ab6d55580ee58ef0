//! Delta-encoded 32-bit integers whose differences need more than 32 bits.
//!
//! DuckDB subtracts with 64 bits and writes a difference of 33 bits where other writers wrap around. Spark reads such
//! pages, but the `parquet` crate does not. So the crate gets a plain page with the same numbers.

use crate::parquet::format::deltas::{Reader, each_miniblock, read_header};
use crate::parquet::format::pages::split_page;
use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::Page;
use parquet::schema::types::ColumnDescriptor;

/// The difference of two 32-bit numbers needs one bit more.
const WIDTH_MAX: u8 = 33;

/// Returns the page, or a plain one with the same values if it has wide differences.
pub fn with_plain_integers(page: Page, column: &ColumnDescriptor) -> Page {
    if column.physical_type() != Physical::INT32 || page.encoding() != Encoding::DELTA_BINARY_PACKED {
        return page;
    }
    match make_plain_body(&page, column) {
        Some(body) => with_body(page, body),
        None => page,
    }
}

/// The page's levels unchanged, followed by its values as plain integers. Returns `None` if no difference is wide.
fn make_plain_body(page: &Page, column: &ColumnDescriptor) -> Option<Bytes> {
    let (_, _, values) = split_page(page, column.max_rep_level(), column.max_def_level())?;
    let integers = decode_wide_integers(&values, page.num_values().into())?;
    let buffer = page.buffer();
    let mut body = buffer[..buffer.len() - values.len()].to_vec();
    integers.iter().for_each(|value| body.extend(value.to_le_bytes()));
    Some(body.into())
}

/// The page with another body, of plain values.
fn with_body(mut page: Page, body: Bytes) -> Page {
    match &mut page {
        Page::DataPage { buf, encoding, .. } | Page::DataPageV2 { buf, encoding, .. } => {
            (*buf, *encoding) = (body, Encoding::PLAIN);
        }
        Page::DictionaryPage { .. } => {}
    }
    page
}

/// Decodes all numbers. Returns `None` unless a difference is wide, every number fits 32 bits, and there are at most
/// `most` numbers.
fn decode_wide_integers(data: &[u8], most: u64) -> Option<Vec<i32>> {
    let mut reader = Reader::new(data);
    let header = read_header(&mut reader).filter(|header| (1..=most).contains(&header.count))?;
    let (mut last, mut is_wide) = (i32::try_from(header.first).ok()?, false);
    let mut found = vec![last];
    each_miniblock(&mut reader, &header, WIDTH_MAX, |packed, width, taken, min_delta| {
        is_wide |= width == usize::from(WIDTH_MAX) || i32::try_from(min_delta).is_err();
        for at in 0..usize::try_from(taken).ok()? {
            let next = i64::from(last).checked_add(min_delta)?.checked_add(unpack(packed, width, at)?)?;
            last = i32::try_from(next).ok()?;
            found.push(last);
        }
        Some(())
    })?;
    is_wide.then_some(found)
}

/// Unpacks the number at a position, lowest bit first.
fn unpack(packed: &[u8], width: usize, at: usize) -> Option<i64> {
    let first = at * width;
    let mut window = [0; 8];
    let bytes = packed.get(first / 8..(first + width).div_ceil(8))?;
    window[..bytes.len()].copy_from_slice(bytes);
    let value = u64::from_le_bytes(window) >> (first % 8) & ((1 << width) - 1);
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three numbers in a block of 128 with four miniblocks: the least 32-bit number, then two differences.
    fn page(min_delta: i64, width: u8, differences: [u64; 2]) -> Vec<u8> {
        let zigzag = |value: i64| {
            let (mut left, mut varint) = (((value << 1) ^ (value >> 63)) as u64, Vec::new());
            while left > 127 {
                varint.push(left as u8 & 127 | 128);
                left >>= 7;
            }
            varint.push(left as u8);
            varint
        };
        let mut page = vec![0x80, 1, 4, 3];
        page.extend(zigzag(i64::from(i32::MIN)));
        page.extend(zigzag(min_delta));
        page.extend([width, 0, 0, 0]);
        // Two differences fit nine bytes. A miniblock has 32 numbers, so it takes four bytes per bit of the width.
        let both = u128::from(differences[0]) | u128::from(differences[1]) << width;
        page.extend(&both.to_le_bytes()[..9]);
        page.resize(page.len() - 9 + usize::from(width) * 4, 0);
        page
    }

    #[test]
    fn differences_of_33_bits_are_added_up() {
        let data = page(-0xffff_ffff, 33, [0x1_ffff_fffe, 0]);
        assert_eq!(decode_wide_integers(&data, 3), Some(vec![i32::MIN, i32::MAX, i32::MIN]));
        assert_eq!(decode_wide_integers(&data, 2), None, "more numbers than the page has");
    }

    #[test]
    fn narrow_differences_and_numbers_beyond_32_bits_are_not_decoded() {
        assert_eq!(decode_wide_integers(&page(1, 8, [0, 0]), 3), None);
        assert_eq!(decode_wide_integers(&page(-0xffff_ffff, 33, [0, 0]), 3), None);
        assert_eq!(decode_wide_integers(&page(0, 34, [0, 0]), 3), None);
    }
}
