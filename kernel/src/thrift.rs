//! Just enough of Thrift's compact protocol to look at a file's footer and page headers before a decoder trusts them.

/// A place in bytes of the compact protocol; every step is `None` where the bytes end or make no sense.
pub struct Scan<'a> {
    data: &'a [u8],
    pub at: usize,
}

pub const I32: u8 = 5;
pub const I64: u8 = 6;
pub const BINARY: u8 = 8;
pub const LIST: u8 = 9;
pub const STRUCT: u8 = 12;
const SKIP_DEPTH_MAX: usize = 64;

impl<'a> Scan<'a> {
    pub fn new(data: &'a [u8], at: usize) -> Self {
        Scan { data, at }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.data.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Shows each field's id and kind; what `each` does not take (it says so) is skipped.
    pub fn fields(&mut self, mut each: impl FnMut(&mut Self, i16, u8) -> Option<bool>) -> Option<()> {
        let mut id: i16 = 0;
        loop {
            let head = self.byte()?;
            let kind = head & 0x0f;
            if kind == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => i16::try_from(self.integer()?).ok()?,
                delta => id.checked_add(i16::from(delta))?,
            };
            if !each(self, id, kind)? {
                self.skip(kind, SKIP_DEPTH_MAX)?;
            }
        }
    }

    /// The length of a list and the kind of its elements.
    pub fn list(&mut self) -> Option<(usize, u8)> {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => usize::try_from(self.varint()?).ok()?,
            short => usize::from(short),
        };
        Some((length, head & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let below = depth.checked_sub(1)?;
        match kind {
            1 | 2 => {}
            3 => self.step(1)?,
            4..=6 => {
                self.varint()?;
            }
            7 => self.step(8)?,
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                self.step(length)?;
            }
            9 | 10 => {
                let (length, inner) = self.list()?;
                (0..length).try_for_each(|_| self.inside(inner, below))?;
            }
            11 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let kinds = if length == 0 { 0 } else { self.byte()? };
                (0..length).try_for_each(|_| {
                    self.inside(kinds >> 4, below)?;
                    self.inside(kinds & 0x0f, below)
                })?;
            }
            STRUCT => loop {
                let head = self.byte()?;
                if head & 0x0f == 0 {
                    break;
                }
                if head >> 4 == 0 {
                    self.varint()?;
                }
                self.skip(head & 0x0f, below)?;
            },
            _ => return None,
        }
        Some(())
    }

    /// The bytes of a text.
    pub fn binary(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let start = self.at;
        self.step(length)?;
        self.data.get(start..self.at)
    }

    /// A boolean in a list.
    pub fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            1 => Some(true),
            2 => Some(false),
            _ => None,
        }
    }

    /// Passes over one element of a list.
    pub fn element(&mut self, kind: u8) -> Option<()> {
        self.inside(kind, SKIP_DEPTH_MAX)
    }

    /// Inside lists and maps a boolean has a byte of its own.
    fn inside(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.step(1) } else { self.skip(kind, depth) }
    }

    fn step(&mut self, count: usize) -> Option<()> {
        self.at = self.at.checked_add(count).filter(|at| *at <= self.data.len())?;
        Some(())
    }
}
