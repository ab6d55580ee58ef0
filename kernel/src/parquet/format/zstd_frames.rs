//! Walks over the Zstandard frames of a page, to check the memory (window) that a reader needs to decompress them.

const MAGIC: u32 = 0xfd2f_b528;
/// The magic number of a skippable frame; its last four bits may be any.
const SKIPPED: u32 = 0x184d_2a50;
const SKIPPED_MASK: u32 = 0xffff_fff0;
/// Streaming decompressors, such as Java's, refuse a larger window even for a short frame.
const WINDOW_MAX: u64 = 1 << 27;
/// The smallest window has 2^10 bytes.
const WINDOW_LEAST_BITS: u8 = 10;
/// Bits of a frame's descriptor byte.
const SINGLE_SEGMENT: u8 = 0x20;
const CHECKSUM: u8 = 4;
const CHECKSUM_BYTES: usize = 4;
/// `Block_Type` of the format: a single repeated byte.
const REPEATED: usize = 1;

/// Whether the bytes are frames, each with a window that every reader accepts.
pub fn are_readable_by_all(mut data: &[u8]) -> bool {
    while !data.is_empty() {
        let Some(rest) = skip_frame(data) else { return false };
        data = rest;
    }
    true
}

/// Returns the bytes after the first frame. Returns `None` if the frame is not complete, or its window is too large.
fn skip_frame(data: &[u8]) -> Option<&[u8]> {
    let (magic, rest) = data.split_first_chunk::<4>()?;
    let magic = u32::from_le_bytes(*magic);
    if magic & SKIPPED_MASK == SKIPPED {
        let (size, rest) = rest.split_first_chunk::<4>()?;
        return rest.get(u32::from_le_bytes(*size) as usize..);
    }
    let (descriptor, rest) = rest.split_first().filter(|_| magic == MAGIC)?;
    let is_single = descriptor & SINGLE_SEGMENT != 0;
    let (window, rest) =
        if is_single { (None, rest) } else { rest.split_first().map(|(byte, rest)| (Some(*byte), rest))? };
    // The last two bits of the descriptor say how many bytes a dictionary id takes.
    let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    // The first two bits say how many bytes the content size takes.
    let size_bytes = match descriptor >> 6 {
        0 => usize::from(is_single),
        more => 1 << more,
    };
    let (size, rest) = rest.split_at_checked(size_bytes)?;
    let window = window.map_or_else(|| read_content_size(size), |byte| Some(window_size(byte)))?;
    if window > WINDOW_MAX {
        return None;
    }
    let rest = skip_blocks(rest)?;
    rest.get(if descriptor & CHECKSUM == 0 { 0 } else { CHECKSUM_BYTES }..)
}

/// Decodes the window size: the high five bits are an exponent, and the low three bits are eighths to add.
fn window_size(byte: u8) -> u64 {
    let base = 1_u64 << (WINDOW_LEAST_BITS + (byte >> 3));
    base + base / 8 * u64::from(byte & 7)
}

/// Reads the content size. A size of two bytes is stored minus 256.
fn read_content_size(bytes: &[u8]) -> Option<u64> {
    let mut whole = [0; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    u64::from_le_bytes(whole).checked_add(if bytes.len() == 2 { 256 } else { 0 })
}

/// Returns the bytes after the last block.
fn skip_blocks(mut data: &[u8]) -> Option<&[u8]> {
    loop {
        let (head, rest) = data.split_first_chunk::<3>()?;
        let head = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        data = rest.get(if head >> 1 & 3 == REPEATED { 1 } else { head >> 3 }..)?;
        if head & 1 == 1 {
            return Some(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_every_form_are_walked() {
        // A checksum, a dictionary id of two bytes, a content size of eight bytes; raw, repeated and compressed blocks.
        let head = [&MAGIC.to_le_bytes()[..], &[0xc6, 0, 1, 2, 9, 0, 0, 0, 0, 0, 0, 0]].concat();
        let blocks = [0x10, 0, 0, b'a', b'b', 0xf2, 0xff, 0, b'c', 0x1d, 0, 0, 1, 2, 3];
        let whole = [&head[..], &blocks, &[1, 2, 3, 4]].concat();
        let skipped = [&SKIPPED.to_le_bytes()[..], &[2, 0, 0, 0, 7, 7]].concat();
        assert!(are_readable_by_all(&whole) && are_readable_by_all(&[]));
        assert!(are_readable_by_all(&[&skipped[..], &whole, &whole, &skipped].concat()));
        assert!((1..whole.len()).all(|size| !are_readable_by_all(&whole[..size])));
        assert!(!are_readable_by_all(&[&whole[..], &[7]].concat()) && !are_readable_by_all(b"other"));
    }

    #[test]
    fn a_window_has_at_most_128_mebibytes() {
        let frame = |window: u8| [&MAGIC.to_le_bytes()[..], &[0, window, 9, 0, 0, b'x']].concat();
        assert!(are_readable_by_all(&frame(17 << 3)));
        assert!(
            !are_readable_by_all(&frame(17 << 3 | 1))
                && !are_readable_by_all(&frame(21 << 3))
                && !are_readable_by_all(&frame(255))
        );
        // In a single-segment frame the content size is the window.
        let single = |size: u32| [&MAGIC.to_le_bytes()[..], &[0xa0], &size.to_le_bytes(), &[1, 0, 0]].concat();
        assert!(are_readable_by_all(&single(1 << 27)) && !are_readable_by_all(&single((1 << 27) + 1)));
    }
}
