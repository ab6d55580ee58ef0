//! Writes single cells into the slots of a tile, by fixed-size copies where there is room. A tile is a buffer of
//! encoded rows in which each row has a slot.

use crate::canonical::column::has_prefix;
use crate::canonical::text::{HEADER_MAX_BYTES, push_uvarint, text16, write_short_number};
use arrow_buffer::Buffer;

/// Copies of this many bytes compile to plain moves instead of a call.
pub const CHUNK: usize = 32;

/// Whether `data` is well-formed UTF-8 from the first to the last of the offsets `cuts`, and no offset is inside a
/// character.
pub fn is_text<Offset: Copy + PartialOrd + TryInto<usize>>(data: &[u8], cuts: &[Offset]) -> bool {
    // Cuts that are not ascending may lie outside the range that is checked here.
    if !cuts.is_sorted_by(|a, b| a <= b) {
        return false;
    }
    let first_and_last = (cuts[0].try_into(), cuts[cuts.len() - 1].try_into());
    let (Ok(start), Ok(end)) = first_and_last else {
        return false;
    };
    let Some(bytes) = data.get(start..end) else {
        return false;
    };
    bytes.is_ascii()
        || std::str::from_utf8(bytes).is_ok_and(|text| {
            cuts.iter().all(|cut| {
                (*cut).try_into().is_ok_and(|cut| cut.checked_sub(start).is_some_and(|cut| text.is_char_boundary(cut)))
            })
        })
}

/// Writes the cell of a number with `scale` digits after the point, and returns its length. Returns `None` if the
/// magnitude of `number` is 10^16 or more, if the slot is too small, and for some numbers between -1 and 1 with many
/// digits after the point. `Column::put` encodes these numbers.
#[inline(always)]
pub fn write_number(slot: &mut [u8], tag: u8, number: i64, scale: u32) -> Option<usize> {
    if let Some(length) = write_short_number(slot, tag, number, scale) {
        return Some(length);
    }
    write_long_number(slot, tag, number, scale as usize)
}

#[inline(never)]
fn write_long_number(slot: &mut [u8], tag: u8, number: i64, scale: usize) -> Option<usize> {
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

/// Writes the cell of a string view, and returns its length. Returns `None` if the view contradicts its buffers, and,
/// if `text` is true, for bytes that are not ASCII.
#[inline(always)]
pub fn write_view(slot: &mut [u8], tag: u8, view: u128, buffers: &[Buffer], text: bool) -> Option<usize> {
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
    if (text && !value.is_ascii()) || !has_prefix(view, value) {
        return None;
    }
    write_bytes(slot, tag, data, start, end)
}

/// Writes the cell of `data[start..end]`, and returns its length. Returns `None` if the range is invalid.
#[inline(always)]
pub fn write_bytes(slot: &mut [u8], tag: u8, data: &[u8], start: usize, end: usize) -> Option<usize> {
    let length = end.checked_sub(start)?;
    // A length above 0x7f takes more than one byte.
    if length > 0x7f {
        return write_long_bytes(slot, tag, data.get(start..end)?);
    }
    *slot.first_chunk_mut::<2>()? = [tag, length as u8];
    Some(2 + copy_bytes(&mut slot[2..], data, start, end)?)
}

#[inline(never)]
fn write_long_bytes(slot: &mut [u8], tag: u8, value: &[u8]) -> Option<usize> {
    let mut header = Vec::with_capacity(HEADER_MAX_BYTES);
    header.push(tag);
    push_uvarint(&mut header, value.len());
    slot.get_mut(..header.len())?.copy_from_slice(&header);
    slot.get_mut(header.len()..header.len() + value.len())?.copy_from_slice(value);
    Some(header.len() + value.len())
}

/// Copies `data[start..end]` to the front of `slot`, by a fixed-size copy if both sides have room. Returns the number
/// of bytes, or `None` if the range is invalid or the slot too small.
#[inline(always)]
pub fn copy_bytes(slot: &mut [u8], data: &[u8], start: usize, end: usize) -> Option<usize> {
    let length = end.checked_sub(start)?;
    let chunk = data.get(start..).and_then(|rest| rest.first_chunk::<CHUNK>());
    match (chunk, slot.first_chunk_mut::<CHUNK>()) {
        (Some(chunk), Some(target)) if length <= CHUNK && end <= data.len() => *target = *chunk,
        _ => slot.get_mut(..length)?.copy_from_slice(data.get(start..end)?),
    }
    Some(length)
}
