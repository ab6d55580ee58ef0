//! Writes the footer and the page indexes of a published file.

use crate::parquet::format::thrift::physical_number;
use crate::parquet::rewrite::elements::{Column, Element};
use crate::parquet::rewrite::thrift_writer::{Fields, write_struct};

/// Java uses statistics of texts only from a writer whose name has this form.
const CREATED_BY: &str = concat!("pvdm version ", env!("CARGO_PKG_VERSION"));
const FORMAT_VERSION: i32 = 1;
/// The number in the enum `BoundaryOrder` of the format that says: pages are in no order, so readers may not search by
/// bisection.
const UNORDERED: i32 = 0;

/// The least and the greatest value of a chunk or page, as plain bytes.
#[derive(Default)]
pub struct Bounds {
    pub least: Vec<u8>,
    pub greatest: Vec<u8>,
}

/// What the indexes say about a page.
pub struct PageFacts {
    pub offset: i64,
    /// The bytes of the page in the file, with its header.
    pub size: i32,
    pub first_row: i64,
    pub nulls: i64,
    /// Whether all entries are null.
    pub is_null: bool,
    pub bounds: Option<Bounds>,
}

/// What footer and indexes say about a column chunk.
pub struct ChunkFacts {
    /// The number of the codec in the enum `CompressionCodec` of the format.
    pub codec: i32,
    pub encodings: Vec<i32>,
    /// Each entry has a page type, an encoding, and the number of pages with both.
    pub encoding_counts: Vec<[i32; 3]>,
    pub values: i64,
    /// The bytes of the chunk's pages with their headers, decompressed.
    pub uncompressed: i64,
    /// The bytes of the chunk's pages with their headers, in the file.
    pub compressed: i64,
    pub data_offset: i64,
    pub dictionary_offset: Option<i64>,
    /// Whether any entry is not null.
    pub has_values: bool,
    /// The number of nulls. `None` inside lists and maps, where writers count nulls differently.
    pub nulls: Option<i64>,
    pub bounds: Option<Bounds>,
    pub pages: Vec<PageFacts>,
    /// Whether every page begins with a row, so that readers can find pages by row.
    pub begins_rows: bool,
}

pub struct GroupFacts {
    pub rows: i64,
    pub offset: i64,
    pub chunks: Vec<ChunkFacts>,
}

/// Offset and length of an index.
type IndexRange = (i64, i32);

/// Where the column index and the offset index of a chunk are.
#[derive(Clone, Copy, Default)]
struct Indexes {
    column: Option<IndexRange>,
    offset: Option<IndexRange>,
}

/// Appends indexes, footer and trailer to `out`, which begins at byte `start` of the file. Returns the length of the
/// footer.
pub fn write_indexes_and_footer(
    out: &mut Vec<u8>,
    start: u64,
    elements: &[Element],
    columns: &[Column],
    groups: &[GroupFacts],
) -> usize {
    let mut places: Vec<Vec<Indexes>> =
        groups.iter().map(|group| vec![Indexes::default(); group.chunks.len()]).collect();
    // Some readers need an offset index for every column or for none.
    if groups.iter().flat_map(|group| &group.chunks).all(|chunk| chunk.begins_rows) {
        for (group, places) in groups.iter().zip(&mut places) {
            for (chunk, place) in group.chunks.iter().zip(places) {
                place.column = write_column_index(out, start, chunk);
            }
        }
        for (group, places) in groups.iter().zip(&mut places) {
            for (chunk, place) in group.chunks.iter().zip(places) {
                place.offset = Some(write_offset_index(out, start, chunk));
            }
        }
    }
    let before = out.len();
    let rows = groups.iter().map(|group| group.rows).sum();
    let placed: Vec<(usize, &GroupFacts, &Vec<Indexes>)> =
        groups.iter().zip(&places).enumerate().map(|(at, (group, places))| (at, group, places)).collect();
    write_struct(out, |fields| {
        fields.int(1, FORMAT_VERSION);
        fields.structs(2, elements, |element, fields| element.write(fields));
        fields.long(3, rows);
        fields.structs(4, &placed, |(at, group, places), fields| write_group(fields, *at, group, places, columns));
        fields.binary(6, CREATED_BY.as_bytes());
        // `column_orders`: every column has the order of its type.
        fields.structs(7, columns, |_, order| order.nested(1, |_| ()));
    });
    let length = out.len() - before;
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(b"PAR1");
    length
}

fn write_group(fields: &mut Fields<'_>, at: usize, group: &GroupFacts, places: &[Indexes], columns: &[Column]) {
    let chunks: Vec<(&ChunkFacts, &Column, Indexes)> =
        group.chunks.iter().zip(columns).zip(places).map(|((chunk, column), place)| (chunk, column, *place)).collect();
    fields.structs(1, &chunks, |(chunk, column, places), fields| {
        // `file_offset`: the position of a copy of this metadata. No writer makes such a copy any more.
        fields.long(2, 0);
        fields.nested(3, |fields| write_chunk(fields, chunk, column));
        if let Some((offset, length)) = places.offset {
            fields.long(4, offset);
            fields.int(5, length);
        }
        if let Some((offset, length)) = places.column {
            fields.long(6, offset);
            fields.int(7, length);
        }
    });
    fields.long(2, group.chunks.iter().map(|chunk| chunk.uncompressed).sum());
    fields.long(3, group.rows);
    fields.long(5, group.offset);
    fields.long(6, group.chunks.iter().map(|chunk| chunk.compressed).sum());
    if let Ok(at) = i16::try_from(at) {
        fields.short(7, at);
    }
}

fn write_chunk(fields: &mut Fields<'_>, chunk: &ChunkFacts, column: &Column) {
    fields.int(1, physical_number(column.physical));
    fields.ints(2, &chunk.encodings);
    fields.binaries(3, column.path.iter().map(String::as_bytes));
    fields.int(4, chunk.codec);
    fields.long(5, chunk.values);
    fields.long(6, chunk.uncompressed);
    fields.long(7, chunk.compressed);
    fields.long(9, chunk.data_offset);
    if let Some(offset) = chunk.dictionary_offset {
        fields.long(11, offset);
    }
    if let Some(nulls) = chunk.nulls {
        fields.nested(12, |fields| {
            fields.long(3, nulls);
            if let Some(bounds) = &chunk.bounds {
                fields.binary(5, &bounds.greatest);
                fields.binary(6, &bounds.least);
                fields.flag(7, true);
                fields.flag(8, true);
            }
        });
    }
    fields.structs(13, &chunk.encoding_counts, |[kind, encoding, count], fields| {
        fields.int(1, *kind);
        fields.int(2, *encoding);
        fields.int(3, *count);
    });
}

/// Writes the column index, unless the bounds of a page with values are unknown. Returns its range.
fn write_column_index(out: &mut Vec<u8>, start: u64, chunk: &ChunkFacts) -> Option<IndexRange> {
    chunk.nulls?;
    if chunk.pages.is_empty() || chunk.pages.iter().any(|page| page.bounds.is_none() && !page.is_null) {
        return None;
    }
    let least = chunk.pages.iter().map(|page| page.bounds.as_ref().map_or(&[][..], |bounds| &bounds.least));
    let greatest = chunk.pages.iter().map(|page| page.bounds.as_ref().map_or(&[][..], |bounds| &bounds.greatest));
    let nulls: Vec<i64> = chunk.pages.iter().map(|page| page.nulls).collect();
    let null_pages: Vec<bool> = chunk.pages.iter().map(|page| page.is_null).collect();
    Some(write_index(out, start, |fields| {
        fields.flags(1, &null_pages);
        fields.binaries(2, least);
        fields.binaries(3, greatest);
        fields.int(4, UNORDERED);
        fields.longs(5, &nulls);
    }))
}

fn write_offset_index(out: &mut Vec<u8>, start: u64, chunk: &ChunkFacts) -> IndexRange {
    write_index(out, start, |fields| {
        fields.structs(1, &chunk.pages, |page, fields| {
            fields.long(1, page.offset);
            fields.int(2, page.size);
            fields.long(3, page.first_row);
        });
    })
}

/// Appends a struct to `out`, which begins at byte `start` of the file. Returns the range of the struct in the file.
fn write_index(out: &mut Vec<u8>, start: u64, write: impl FnOnce(&mut Fields<'_>)) -> IndexRange {
    let before = out.len();
    write_struct(out, write);
    ((start + before as u64) as i64, (out.len() - before) as i32)
}
