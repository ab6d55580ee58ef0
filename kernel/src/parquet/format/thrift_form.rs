//! Checks that every parser reads the Thrift structures of a file alike.

use crate::parquet::format::thrift::{BINARY, BYTE, FALSE, I16, I32, I64, LIST, STRUCT, Scan, TRUE};
pub use Kind::{Binary, Bool, Byte, I16 as Short, I32 as Int, I64 as Long, List, Struct, Union};

/// The length of `PAR1`, which is at both ends of a file.
pub const MAGIC_BYTES: usize = 4;
/// The length of what follows the footer: the footer's length in four bytes, and `PAR1`.
pub const TRAILER_BYTES: usize = 4 + MAGIC_BYTES;

/// The type of a field in Parquet's structures. The type is checked, because the `parquet` crate accepts a field of
/// another wire type, while other readers skip it.
pub enum Kind {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Binary,
    List(&'static Kind),
    /// Field ids and their types.
    Struct(&'static [(i16, Kind)]),
    /// A struct with at most one of these fields.
    Union(&'static [(i16, Kind)]),
}

/// A struct without known fields.
pub const EMPTY: Kind = Struct(&[]);
// The structures of parquet.thrift, from the inner to the outer ones.
const DECIMAL: Kind = Struct(&[(1, Int), (2, Int)]);
const TIME: Kind = Struct(&[(1, Bool), (2, Union(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))]);
const LOGICAL: Kind = Union(&[(5, DECIMAL), (7, TIME), (8, TIME), (10, Struct(&[(1, Byte), (2, Bool)]))]);

/// `SchemaElement`.
const ELEMENT: Kind = Struct(&[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Binary),
    (5, Int),
    (6, Int),
    (7, Int),
    (8, Int),
    (9, Int),
    (10, LOGICAL),
]);

/// `KeyValue`.
const PAIR: Kind = Struct(&[(1, Binary), (2, Binary)]);
const STATISTICS: Kind =
    Struct(&[(1, Binary), (2, Binary), (3, Long), (4, Long), (5, Binary), (6, Binary), (7, Bool), (8, Bool)]);

/// `ColumnMetaData`.
const COLUMN: Kind = Struct(&[
    (1, Int),
    (2, List(&Int)),
    (3, List(&Binary)),
    (4, Int),
    (5, Long),
    (6, Long),
    (7, Long),
    (8, List(&PAIR)),
    (9, Long),
    (10, Long),
    (11, Long),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, Int), (2, Int), (3, Int)]))),
    (14, Long),
    (15, Int),
    (16, Struct(&[(1, Long), (2, List(&Long)), (3, List(&Long))])),
    (17, EMPTY),
]);

/// `ColumnChunk`.
const CHUNK: Kind =
    Struct(&[(1, Binary), (2, Long), (3, COLUMN), (4, Long), (5, Int), (6, Long), (7, Int), (8, EMPTY), (9, Binary)]);

/// `RowGroup`.
const GROUP: Kind = Struct(&[
    (1, List(&CHUNK)),
    (2, Long),
    (3, Long),
    (4, List(&Struct(&[(1, Int), (2, Bool), (3, Bool)]))),
    (5, Long),
    (6, Long),
    (7, Short),
]);

/// `FileMetaData`.
pub const FILE: Kind = Struct(&[
    (1, Int),
    (2, List(&ELEMENT)),
    (3, Long),
    (4, List(&GROUP)),
    (5, List(&PAIR)),
    (6, Binary),
    (7, List(&Union(&[(1, EMPTY)]))),
    (8, EMPTY),
    (9, Binary),
]);

/// `PageHeader`.
pub const PAGE: Kind = Struct(&[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Int),
    (5, Struct(&[(1, Int), (2, Int), (3, Int), (4, Int), (5, STATISTICS)])),
    (6, EMPTY),
    (7, Struct(&[(1, Int), (2, Int), (3, Bool)])),
    (8, Struct(&[(1, Int), (2, Int), (3, Int), (4, Int), (5, Int), (6, Int), (7, Bool), (8, STATISTICS)])),
]);

impl Kind {
    fn wire_types(&self) -> &'static [u8] {
        match self {
            Bool => &[TRUE, FALSE],
            Byte => &[BYTE],
            Short => &[I16],
            Int => &[I32],
            Long => &[I64],
            Binary => &[BINARY],
            List(_) => &[LIST],
            Struct(_) | Union(_) => &[STRUCT],
        }
    }
}

/// Whether every parser reads this struct or list alike: known fields have their wire types, and ids ascend. Returns
/// `None` if it cannot be parsed.
pub fn is_unambiguous(scan: &mut Scan<'_>, kind: &Kind) -> Option<bool> {
    let (fields, most_fields) = match kind {
        List(inner) => return is_list_unambiguous(scan, inner),
        Struct(fields) => (fields, usize::MAX),
        Union(fields) => (fields, 1),
        _ => return None,
    };
    let (mut last, mut count, mut is_clear) = (0, 0, true);
    scan.each_field(|scan, id, wire| {
        // Ascending ids exclude repeated fields: some parsers use the first, others the last.
        is_clear &= id > last;
        (last, count) = (id, count + 1);
        let Some((_, known)) = fields.iter().find(|(known, _)| *known == id) else { return Some(false) };
        is_clear &= known.wire_types().contains(&wire);
        if is_clear && matches!(known, List(_) | Struct(_) | Union(_)) {
            is_clear &= is_unambiguous(scan, known)?;
            return Some(true);
        }
        Some(false)
    })?;
    Some(is_clear && count <= most_fields)
}

fn is_list_unambiguous(scan: &mut Scan<'_>, inner: &Kind) -> Option<bool> {
    let (length, wire) = scan.list()?;
    let mut is_clear = length == 0 || inner.wire_types().contains(&wire);
    for _ in 0..length {
        match inner {
            Struct(_) | Union(_) if is_clear => is_clear &= is_unambiguous(scan, inner)?,
            _ => scan.skip_element(wire)?,
        }
    }
    Some(is_clear)
}

/// Where the footer begins, by the length at the file's end. Returns `None` if the file is too short for it.
pub fn footer_start(data: &[u8]) -> Option<usize> {
    let end = data.len().checked_sub(TRAILER_BYTES)?;
    let length = u32::from_le_bytes(*data.get(end..)?.first_chunk::<4>()?) as usize;
    end.checked_sub(length)
}
