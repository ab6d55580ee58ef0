//! Parses what a file declares about its values, in the footer, page headers, page indexes and bloom filter headers.

use crate::parquet::format::pages::{chunk_end, chunk_start};
use crate::parquet::format::thrift::{Scan, TRUE};
use crate::parquet::format::thrift_form::{Binary, Bool, EMPTY, Int, Kind, List, Long, Struct, Union, is_unambiguous};
use crate::parquet::guard::footer_limits::SCHEMA_ELEMENTS_MAX;
use bytes::Bytes;
use parquet::file::metadata::ColumnChunkMetaData;

/// The statistics of a column chunk or of a page. An absent field is not a claim. Each array has the least value first,
/// then the greatest.
#[derive(Debug, Default)]
pub struct Statistics<'a> {
    /// `min` and `max`, which are deprecated.
    pub old: [Option<&'a [u8]>; 2],
    /// `min_value` and `max_value`.
    pub bounds: [Option<&'a [u8]>; 2],
    /// Whether `min_value` is exact, and whether `max_value` is.
    pub exact: [Option<bool>; 2],
    pub nulls: Option<i64>,
    pub distinct: Option<i64>,
}

impl Statistics<'_> {
    /// The length of the longest bound.
    pub fn longest_bound(&self) -> usize {
        self.old.iter().chain(&self.bounds).flatten().map(|bound| bound.len()).max().unwrap_or(0)
    }
}

/// Where the footer says that an index or bloom filter lies in the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeclaredRange {
    pub offset: Option<i64>,
    pub length: Option<i64>,
}

/// What the footer declares about a column chunk.
#[derive(Debug, Default)]
pub struct ChunkMetadata<'a> {
    pub encodings: Vec<i64>,
    pub codec: i64,
    pub statistics: Statistics<'a>,
    pub has_statistics: bool,
    /// Each entry has a page type, an encoding, and the number of pages with both.
    pub encoding_stats: Option<Vec<[i64; 3]>>,
    pub bloom: DeclaredRange,
    pub sizes: Sizes,
    /// Whether there are geospatial statistics.
    pub geospatial: bool,
    pub offset_index: DeclaredRange,
    pub column_index: DeclaredRange,
}

/// The struct `SizeStatistics` of the format.
#[derive(Debug, Default)]
pub struct Sizes {
    /// The total length of byte arrays in bytes, before encoding.
    pub bytes: Option<i64>,
    /// A histogram: how many entries have each repetition level. An empty histogram is not a claim, because writers
    /// omit a histogram without information.
    pub repetition: Vec<i64>,
    /// The same for definition levels.
    pub definition: Vec<i64>,
}

/// A column by which a row group declares to be sorted.
#[derive(Debug)]
pub struct Sorting {
    pub column: i64,
    pub descending: bool,
    pub nulls_first: bool,
}

#[derive(Debug, Default)]
pub struct GroupMetadata<'a> {
    pub chunks: Vec<ChunkMetadata<'a>>,
    pub sorting: Vec<Sorting>,
}

#[derive(Debug, Default)]
pub struct FileMetadata<'a> {
    pub groups: Vec<GroupMetadata<'a>>,
    /// The key-value pairs of the footer.
    pub keys: Vec<(&'a [u8], &'a [u8])>,
}

/// The header of a page, and where the page begins and ends.
#[derive(Debug, Default)]
pub struct PageMetadata<'a> {
    /// The number of the page's type in the enum `PageType` of the format.
    pub kind: i64,
    pub encoding: i64,
    /// Only a version 2 page declares nulls and rows.
    pub nulls: Option<i64>,
    pub rows: Option<i64>,
    /// Whether a dictionary is declared as sorted.
    pub sorted: bool,
    pub statistics: Statistics<'a>,
    /// The decompressed size of the body.
    pub size: i64,
    /// The size of the body in the file.
    pub body_size: usize,
    pub values: i64,
    /// For a version 2 page: the bytes of its definition levels.
    pub definition_size: i64,
    /// For a version 2 page: the bytes of its repetition levels.
    pub repetition_size: i64,
    /// For a version 2 page: whether its values are compressed.
    pub is_compressed: bool,
    pub start: usize,
    pub end: usize,
}

/// Declared facts of each page of a column chunk.
#[derive(Debug, Default)]
pub struct ColumnIndex<'a> {
    pub null_pages: Vec<bool>,
    pub least: Vec<&'a [u8]>,
    pub greatest: Vec<&'a [u8]>,
    /// The number of the order in the enum `BoundaryOrder` of the format.
    pub order: i64,
    pub nulls: Option<Vec<i64>>,
    /// The histograms of repetition levels of all pages, one after the other.
    pub repetition: Vec<i64>,
    /// The histograms of definition levels of all pages, one after the other.
    pub definition: Vec<i64>,
}

#[derive(Debug, Default)]
pub struct OffsetIndex {
    /// Offset, size and first row of each page.
    pub pages: Vec<[i64; 3]>,
    /// The unencoded bytes of byte arrays in each page.
    pub bytes: Option<Vec<i64>>,
}

const COLUMN_INDEX: Kind = Struct(&[
    (1, List(&Bool)),
    (2, List(&Binary)),
    (3, List(&Binary)),
    (4, Int),
    (5, List(&Long)),
    (6, List(&Long)),
    (7, List(&Long)),
]);

const OFFSET_INDEX: Kind = Struct(&[(1, List(&Struct(&[(1, Long), (2, Int), (3, Long)]))), (2, List(&Long))]);
/// A union whose only known member has the id 1.
const ONE_MEMBER: Kind = Union(&[(1, EMPTY)]);
const BLOOM: Kind = Struct(&[(1, Int), (2, ONE_MEMBER), (3, ONE_MEMBER), (4, ONE_MEMBER)]);
/// The most key-value pairs. A parsed list takes more memory than its bytes in the file, so list lengths are limited.
const KEYS_MAX: usize = 100_000;
const ENCODINGS_MAX: usize = 64;
/// The most levels of a histogram. No schema is so deep that its levels exceed this.
const LEVELS_MAX: usize = 1_024;

/// Parses a footer that `is_unambiguous` accepted before.
pub fn read_file(footer: &[u8]) -> Option<FileMetadata<'_>> {
    let mut found = FileMetadata::default();
    Scan::new(footer, 0).each_field(|scan, id, _| {
        match id {
            4 => found.groups = read_list(scan, usize::MAX, read_group)?,
            5 => {
                found.keys = read_list(scan, KEYS_MAX, |scan| {
                    let (mut key, mut value) = (&[][..], &[][..]);
                    scan.each_field(|scan, id, _| {
                        match id {
                            1 => key = scan.binary()?,
                            2 => value = scan.binary()?,
                            _ => return Some(false),
                        }
                        Some(true)
                    })?;
                    Some((key, value))
                })?;
            }
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_group<'a>(scan: &mut Scan<'a>) -> Option<GroupMetadata<'a>> {
    let mut found = GroupMetadata::default();
    scan.each_field(|scan, id, _| {
        match id {
            1 => found.chunks = read_list(scan, SCHEMA_ELEMENTS_MAX, read_chunk)?,
            4 => found.sorting = read_list(scan, SCHEMA_ELEMENTS_MAX, read_sorting)?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_sorting(scan: &mut Scan<'_>) -> Option<Sorting> {
    let mut found = Sorting { column: -1, descending: false, nulls_first: false };
    scan.each_field(|scan, id, wire| {
        match id {
            1 => found.column = scan.integer()?,
            2 => found.descending = wire == TRUE,
            3 => found.nulls_first = wire == TRUE,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_chunk<'a>(scan: &mut Scan<'a>) -> Option<ChunkMetadata<'a>> {
    let mut found = ChunkMetadata { codec: -1, ..ChunkMetadata::default() };
    scan.each_field(|scan, id, _| {
        match id {
            3 => read_column(scan, &mut found)?,
            4 => found.offset_index.offset = Some(scan.integer()?),
            5 => found.offset_index.length = Some(scan.integer()?),
            6 => found.column_index.offset = Some(scan.integer()?),
            7 => found.column_index.length = Some(scan.integer()?),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_column<'a>(scan: &mut Scan<'a>, found: &mut ChunkMetadata<'a>) -> Option<()> {
    scan.each_field(|scan, id, _| {
        match id {
            2 => found.encodings = read_list(scan, ENCODINGS_MAX, Scan::integer)?,
            4 => found.codec = scan.integer()?,
            12 => (found.statistics, found.has_statistics) = (read_statistics(scan)?, true),
            13 => {
                found.encoding_stats = Some(read_list(scan, ENCODINGS_MAX, |scan| {
                    let mut numbers = [-1; 3];
                    read_integers(scan, &mut numbers)?;
                    Some(numbers)
                })?);
            }
            14 => found.bloom.offset = Some(scan.integer()?),
            15 => found.bloom.length = Some(scan.integer()?),
            16 => found.sizes = read_sizes(scan)?,
            17 => {
                found.geospatial = true;
                return Some(false);
            }
            _ => return Some(false),
        }
        Some(true)
    })
}

fn read_statistics<'a>(scan: &mut Scan<'a>) -> Option<Statistics<'a>> {
    let mut found = Statistics::default();
    scan.each_field(|scan, id, wire| {
        match id {
            1 => found.old[1] = Some(scan.binary()?),
            2 => found.old[0] = Some(scan.binary()?),
            3 => found.nulls = Some(scan.integer()?),
            4 => found.distinct = Some(scan.integer()?),
            5 => found.bounds[1] = Some(scan.binary()?),
            6 => found.bounds[0] = Some(scan.binary()?),
            7 => found.exact[1] = Some(wire == TRUE),
            8 => found.exact[0] = Some(wire == TRUE),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_sizes(scan: &mut Scan<'_>) -> Option<Sizes> {
    let mut found = Sizes::default();
    scan.each_field(|scan, id, _| {
        match id {
            1 => found.bytes = Some(scan.integer()?),
            2 => found.repetition = read_list(scan, LEVELS_MAX, Scan::integer)?,
            3 => found.definition = read_list(scan, LEVELS_MAX, Scan::integer)?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

/// Parses the header of the page that begins at `at`.
pub fn read_page(data: &[u8], at: usize) -> Option<PageMetadata<'_>> {
    let (mut found, mut size) = (PageMetadata { start: at, is_compressed: true, ..PageMetadata::default() }, 0);
    let mut scan = Scan::new(data, at);
    scan.each_field(|scan, id, _| {
        match id {
            1 => found.kind = scan.integer()?,
            2 => found.size = scan.integer()?,
            3 => size = scan.integer()?,
            5 | 7 | 8 => scan.each_field(|scan, inner, wire| {
                match (id, inner) {
                    (_, 1) => found.values = scan.integer()?,
                    (5 | 7, 2) | (8, 4) => found.encoding = scan.integer()?,
                    (8, 5) => found.definition_size = scan.integer()?,
                    (8, 6) => found.repetition_size = scan.integer()?,
                    (8, 7) => found.is_compressed = wire == TRUE,
                    (7, 3) => found.sorted = wire == TRUE,
                    (8, 2) => found.nulls = Some(scan.integer()?),
                    (8, 3) => found.rows = Some(scan.integer()?),
                    (5, 5) | (8, 8) => found.statistics = read_statistics(scan)?,
                    _ => return Some(false),
                }
                Some(true)
            })?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    found.body_size = usize::try_from(size).ok()?;
    found.end = scan.at.checked_add(found.body_size).filter(|end| *end <= data.len())?;
    Some(found)
}

/// Parses a column index that fills these bytes. Returns `None` if parsers may read it differently, or if its lists are
/// far too long for this number of pages.
pub fn read_column_index(data: &[u8], pages: usize) -> Option<ColumnIndex<'_>> {
    let most = (pages + 1) * LEVELS_MAX;
    let mut found = ColumnIndex { order: -1, ..ColumnIndex::default() };
    scan_unambiguous(data, &COLUMN_INDEX)?.each_field(|scan, id, _| {
        match id {
            1 => found.null_pages = read_list(scan, most, Scan::flag)?,
            2 => found.least = read_list(scan, most, Scan::binary)?,
            3 => found.greatest = read_list(scan, most, Scan::binary)?,
            4 => found.order = scan.integer()?,
            5 => found.nulls = Some(read_list(scan, most, Scan::integer)?),
            6 => found.repetition = read_list(scan, most, Scan::integer)?,
            7 => found.definition = read_list(scan, most, Scan::integer)?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

/// Parses an offset index that fills these bytes, with the limits of `read_column_index`.
pub fn read_offset_index(data: &[u8], pages: usize) -> Option<OffsetIndex> {
    let most = (pages + 1) * LEVELS_MAX;
    let mut found = OffsetIndex::default();
    scan_unambiguous(data, &OFFSET_INDEX)?.each_field(|scan, id, _| {
        match id {
            1 => {
                found.pages = read_list(scan, most, |scan| {
                    let mut numbers = [-1; 3];
                    read_integers(scan, &mut numbers)?;
                    Some(numbers)
                })?;
            }
            2 => found.bytes = Some(read_list(scan, most, Scan::integer)?),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

/// Parses the header of a bloom filter. Returns the size of the filter, and the size of the header. Returns `None` if
/// algorithm, hash or compression is not the one that the format defines.
pub fn read_bloom_header(data: &[u8], at: usize) -> Option<(i64, usize)> {
    if is_unambiguous(&mut Scan::new(data, at), &BLOOM) != Some(true) {
        return None;
    }
    let (mut size, mut known, mut scan) = (-1, 0, Scan::new(data, at));
    scan.each_field(|scan, id, _| {
        match id {
            1 => size = scan.integer()?,
            // Algorithm, hash and compression: unions whose member 1 is the known kind.
            2..=4 => {
                scan.each_field(|_, inner, _| {
                    known += usize::from(inner == 1);
                    Some(false)
                })?;
            }
            _ => return Some(false),
        }
        Some(true)
    })?;
    (known == 3).then_some((size, scan.at - at))
}

/// Returns a scan of the bytes if they are exactly one struct that every parser reads alike.
fn scan_unambiguous<'a>(data: &'a [u8], kind: &Kind) -> Option<Scan<'a>> {
    let mut scan = Scan::new(data, 0);
    (is_unambiguous(&mut scan, kind)? && scan.at == data.len()).then(|| Scan::new(data, 0))
}

/// Reads a struct of numbers: the field with id 1 into `into[0]`, the field with id 2 into `into[1]`, and so on.
fn read_integers(scan: &mut Scan<'_>, into: &mut [i64]) -> Option<()> {
    scan.each_field(|scan, id, _| {
        let Some(place) = usize::try_from(id - 1).ok().and_then(|at| into.get_mut(at)) else { return Some(false) };
        *place = scan.integer()?;
        Some(true)
    })
}

fn read_list<'a, T>(
    scan: &mut Scan<'a>,
    most: usize,
    mut read_element: impl FnMut(&mut Scan<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    let length = scan.short_list(most)?;
    // Memory is not reserved for the declared length, which may be wrong. It grows with the elements that are read, and
    // each element takes at least a byte of the file.
    let mut found = Vec::new();
    for _ in 0..length {
        found.push(read_element(scan)?);
    }
    Some(found)
}

/// Parses the headers of all pages of a column chunk. Returns `None` if one cannot be parsed.
pub fn read_page_headers<'a>(data: &'a Bytes, column: &ColumnChunkMetaData) -> Option<Vec<PageMetadata<'a>>> {
    let (mut at, end, mut found) = (chunk_start(column), chunk_end(data, column)?, Vec::new());
    while at < end {
        let page = read_page(&data[..end], at)?;
        at = page.end;
        found.push(page);
    }
    Some(found)
}
