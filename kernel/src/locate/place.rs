//! The place of a row: its side, file and row number.

use crate::error::{Fault, Result};

/// The bits of a row number in a packed place.
pub const ROW_BITS: u32 = 40;
/// The bits of a file number in a packed place.
const FILE_BITS: u32 = 23;

/// Where a row was seen: its side, the number of its file on this side, and the number of the row in this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub staged: bool,
    pub file: u32,
    pub row: u64,
}

impl Place {
    /// Packs the place into one number that sorts by side, file and row. Refuses a row or file number that is too
    /// large.
    pub fn pack(self) -> Result<u64> {
        if self.row >> ROW_BITS != 0 || self.file >> FILE_BITS != 0 {
            let got = format!("row {} of file {}", self.row, self.file);
            return Err(Fault::new("locate_too_large", "", "fewer rows and files", got));
        }
        Ok(u64::from(self.staged) << (ROW_BITS + FILE_BITS) | u64::from(self.file) << ROW_BITS | self.row)
    }

    pub fn unpack(packed: u64) -> Place {
        Place {
            staged: packed >> (ROW_BITS + FILE_BITS) != 0,
            file: (packed >> ROW_BITS) as u32 & ((1 << FILE_BITS) - 1),
            row: packed & ((1 << ROW_BITS) - 1),
        }
    }
}
