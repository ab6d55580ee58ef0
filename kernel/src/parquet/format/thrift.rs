//! A minimal reader of Thrift's compact protocol, for checking a footer and page headers before a decoder uses them.

use parquet::basic::Type as Physical;

/// A reader at a position in bytes of the compact protocol. Every read returns `None` if the bytes end or are invalid.
pub struct Scan<'a> {
    data: &'a [u8],
    pub at: usize,
    /// Whether the scan stopped at a number that readers interpret differently.
    pub is_ambiguous: bool,
}

/// Wire types of the compact protocol. The value of a boolean field is its wire type.
pub const TRUE: u8 = 1;
pub const FALSE: u8 = 2;
pub const BYTE: u8 = 3;
pub const I16: u8 = 4;
pub const I32: u8 = 5;
pub const I64: u8 = 6;
const DOUBLE: u8 = 7;
pub const BINARY: u8 = 8;
pub const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
pub const STRUCT: u8 = 12;
/// Values may nest this deep inside a field that is skipped.
const SKIP_DEPTH_MAX: usize = 64;

/// The number of a physical type in the format.
pub fn physical_number(kind: Physical) -> i32 {
    match kind {
        Physical::BOOLEAN => 0,
        Physical::INT32 => 1,
        Physical::INT64 => 2,
        Physical::INT96 => 3,
        Physical::FLOAT => 4,
        Physical::DOUBLE => 5,
        Physical::BYTE_ARRAY => 6,
        Physical::FIXED_LEN_BYTE_ARRAY => 7,
    }
}

impl<'a> Scan<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Self {
        Scan { data, at, is_ambiguous: false }
    }

    pub fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A varint in its shortest form. A varint with superfluous bytes is ambiguous. So is a varint with bits beyond 64:
    /// Java shifts some of these bits into the number, and other readers drop them.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            value |= low << shift;
            if byte < 0x80 {
                let is_too_long = shift > 0 && byte == 0;
                self.is_ambiguous |= is_too_long || low << shift >> shift != low;
                return (!self.is_ambiguous).then_some(value);
            }
        }
        self.is_ambiguous = true;
        None
    }

    /// The length of a text, a list or a map, which Java reads as a signed 32-bit number.
    fn length(&mut self) -> Option<usize> {
        let length = i64::try_from(self.varint()?).unwrap_or(i64::MAX);
        usize::try_from(self.require_range(length, 0, i32::MAX.into())?).ok()
    }

    /// A number of a 64-bit field, or of a field whose range was checked before.
    pub fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A number of a field with this wire type. A number outside the type's range is ambiguous, because some readers
    /// truncate it.
    pub fn number(&mut self, kind: u8) -> Option<i64> {
        let value = self.integer()?;
        match kind {
            I16 => self.require_range(value, i16::MIN.into(), i16::MAX.into()),
            I32 => self.require_range(value, i32::MIN.into(), i32::MAX.into()),
            _ => Some(value),
        }
    }

    fn require_range(&mut self, value: i64, least: i64, most: i64) -> Option<i64> {
        self.is_ambiguous |= !(least..=most).contains(&value);
        (!self.is_ambiguous).then_some(value)
    }

    /// Reads a struct: gives each field's id and wire type to `each`, which returns whether it has read the field.
    /// Fields that it has not read are skipped.
    pub fn each_field(&mut self, mut each: impl FnMut(&mut Self, i16, u8) -> Option<bool>) -> Option<()> {
        let mut id: i16 = 0;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.number(I16)?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            if !each(self, id, kind)? {
                self.skip(kind, SKIP_DEPTH_MAX)?;
            }
        }
    }

    /// Reads the length of a list and the wire type of its elements.
    pub fn list(&mut self) -> Option<(usize, u8)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.length()?,
            short => usize::from(short),
        };
        Some((length, head & 0x0f))
    }

    /// Reads the length of a list.
    pub fn list_length(&mut self) -> Option<usize> {
        self.list().map(|(length, _)| length)
    }

    /// Reads the length of the next list without advancing.
    pub fn peek_list_length(&self) -> Option<usize> {
        Scan::new(self.data, self.at).list_length()
    }

    /// Reads the length of a list whose elements are kept. Returns `None` above `most`, because an element takes far
    /// more memory than bytes of the file.
    pub fn short_list(&mut self, most: usize) -> Option<usize> {
        self.list_length().filter(|length| *length <= most)
    }

    /// Skips a value of this wire type, which may nest at most `depth` deep.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let below = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => {}
            BYTE => self.advance(1)?,
            I16..=I64 => {
                self.number(kind)?;
            }
            DOUBLE => self.advance(8)?,
            BINARY => {
                let length = self.length()?;
                self.advance(length)?;
            }
            LIST | SET => {
                let (length, inner) = self.list()?;
                (0..length).try_for_each(|_| self.skip_inside(inner, below))?;
            }
            MAP => {
                let length = self.length()?;
                let kinds = if length == 0 { 0 } else { self.byte()? };
                (0..length).try_for_each(|_| {
                    self.skip_inside(kinds >> 4, below)?;
                    self.skip_inside(kinds & 0x0f, below)
                })?;
            }
            STRUCT => loop {
                let head = self.byte()?;
                if head & 0x0f == 0 {
                    break;
                }
                if head >> 4 == 0 {
                    self.number(I16)?;
                }
                self.skip(head & 0x0f, below)?;
            },
            _ => return None,
        }
        Some(())
    }

    /// Reads the bytes of a text or binary value.
    pub fn binary(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let start = self.at;
        self.advance(length)?;
        self.data.get(start..self.at)
    }

    /// Reads a boolean in a list.
    pub fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            TRUE => Some(true),
            FALSE => Some(false),
            _ => None,
        }
    }

    /// Skips one element of a list.
    pub fn skip_element(&mut self, kind: u8) -> Option<()> {
        self.skip_inside(kind, SKIP_DEPTH_MAX)
    }

    /// Skips an element of a list or map, where a boolean takes one byte.
    fn skip_inside(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, TRUE | FALSE) { self.advance(1) } else { self.skip(kind, depth) }
    }

    fn advance(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.data.len())?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number as a field of this wire type has it, and whether it is ambiguous.
    fn number(bytes: &[u8], kind: u8) -> (Option<i64>, bool) {
        let mut scan = Scan::new(bytes, 0);
        (scan.number(kind), scan.is_ambiguous)
    }

    #[test]
    fn a_number_has_one_form() {
        assert_eq!(number(&[0], I32), (Some(0), false));
        assert_eq!(number(&[0x80, 0x01], I32), (Some(64), false));
        assert_eq!(number(&[0x82, 0x00], I32), (None, true));
        assert_eq!(number(&[0x80; 11], I64), (None, true));
        assert_eq!(number(&[0x80; 2], I64), (None, false));
    }

    #[test]
    fn a_number_is_within_the_range_of_its_field() {
        let most = |bytes: usize, last: u8| [vec![255; bytes], vec![last]].concat();
        assert_eq!(number(&most(2, 3), I16), (Some(i16::MIN.into()), false));
        assert_eq!(number(&[0x80, 0x80, 4], I16), (None, true));
        assert_eq!(number(&most(4, 15), I32), (Some(i32::MIN.into()), false));
        assert_eq!(number(&[0x80, 0x80, 0x80, 0x80, 16], I32), (None, true));
        assert_eq!(number(&most(9, 1), I64), (Some(i64::MIN), false));
        assert_eq!(number(&most(9, 3), I64), (None, true));
    }

    #[test]
    fn numbers_in_skipped_fields_are_checked_too() {
        // Structs with a number, with a number again, with a text, and with a field whose id is written in full. All
        // but the first have a varint that is longer than needed.
        for (bytes, ambiguous) in
            [(&[0x15, 2, 0][..], false), (&[0x15, 0x82, 0, 0], true), (&[0x18, 0x81, 0, 65, 0], true)]
        {
            let mut scan = Scan::new(bytes, 0);
            assert_eq!((scan.each_field(|_, _, _| Some(false)).is_none(), scan.is_ambiguous), (ambiguous, ambiguous));
        }
        let mut scan = Scan::new(&[0x05, 0xc8, 0x81, 0x00, 2, 0], 0);
        assert_eq!((scan.each_field(|_, _, _| Some(false)), scan.is_ambiguous), (None, true));
    }
}
