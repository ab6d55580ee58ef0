//! Makes the recipe of the published file from a staged file whose pages were measured, row group by row group.

use crate::canonical::schema::Field;
use crate::error::{Fault, Result};
use crate::parquet::claims::compare::join_pages;
use crate::parquet::claims::measure::{ChunkMeasure, PageMeasure};
use crate::parquet::claims::metadata::{PageMetadata, read_page_headers};
use crate::parquet::claims::pages::SharedMeasure;
use crate::parquet::format::pages::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE};
use crate::parquet::guard::footer_limits::{FOOTER_MAX_BYTES, too_large};
use crate::parquet::resolve::Shape;
use crate::parquet::rewrite::elements::{Column, FileSchema, Names};
use crate::parquet::rewrite::footer::{Bounds, ChunkFacts, GroupFacts, PageFacts, write_indexes_and_footer};
use crate::parquet::rewrite::recipe::Recipe;
use crate::parquet::rewrite::statistics;
use crate::parquet::rewrite::thrift_writer::{Fields, write_struct};
use bytes::Bytes;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::Type as FileElement;
use std::collections::{BTreeMap, BTreeSet};

/// The number of the encoding of levels, in the enum `Encoding` of the format.
const RLE: i32 = 3;
/// The most pages of a file. It limits memory: a few hundred bytes per page are kept until the footer is written, while
/// a page may have only a few dozen bytes in the file.
const PAGES_MAX: usize = 1_000_000;

/// Collects the parts of a published file, row group by row group.
pub struct Rewriter<'a> {
    data: &'a Bytes,
    metadata: &'a ParquetMetaData,
    schema: FileSchema,
    recipe: Recipe,
    groups: Vec<GroupFacts>,
    /// The number of pages so far.
    pages: usize,
}

/// The recipe of a published file, and the facts for the file's manifest entry.
pub struct Rewritten {
    pub recipe: Vec<u8>,
    pub size: u64,
    pub split_offsets: Vec<i64>,
    pub column_sizes: BTreeMap<i32, i64>,
}

impl<'a> Rewriter<'a> {
    /// Refuses columns that cannot be published with the table's types, before anything is decoded.
    pub fn new(
        data: &'a Bytes,
        metadata: &'a ParquetMetaData,
        wanted: &[Field],
        shape: &Shape,
        root: &FileElement,
        names: &Names,
    ) -> Result<Rewriter<'a>> {
        let schema = FileSchema::new(wanted, shape, root, names)?;
        let mut recipe = Recipe::default();
        recipe.add(0..0, |out| out.extend_from_slice(b"PAR1"));
        Ok(Rewriter { data, metadata, schema, recipe, groups: Vec::new(), pages: 0 })
    }

    /// Adds a row group whose pages were all measured and compared. A row group without rows is left out.
    pub fn add_group(&mut self, group: usize, measures: &[SharedMeasure]) -> Result<()> {
        let of_file = self.metadata.row_group(group);
        if of_file.num_rows() == 0 {
            return Ok(());
        }
        let offset = self.recipe.size() as i64;
        let mut chunks = Vec::with_capacity(self.schema.columns.len());
        for column in &self.schema.columns {
            let chunk = build_chunk(self.data, &mut self.recipe, of_file, column, measures);
            let chunk = chunk.map_err(|fault| fault.in_group(group))?;
            self.pages += chunk.pages.len();
            if self.pages > PAGES_MAX {
                return Err(too_large("number of pages to publish", PAGES_MAX as u64, self.pages as u64));
            }
            chunks.push(chunk);
        }
        self.groups.push(GroupFacts { rows: of_file.num_rows(), offset, chunks });
        Ok(())
    }

    /// Writes the footer. Refuses a footer above `FOOTER_MAX_BYTES`, which readers, for example this kernel, refuse.
    pub fn finish(mut self) -> Result<Rewritten> {
        for column in 0..self.schema.columns.len() {
            drop_partial_bounds(&mut self.groups, column);
        }
        let start = self.recipe.size();
        let (schema, groups) = (&self.schema, &self.groups);
        let mut footer = 0;
        self.recipe.add(0..0, |out| footer = append_indexes_and_footer(out, start, schema, groups));
        if footer > FOOTER_MAX_BYTES {
            return Err(too_large("footer to publish", FOOTER_MAX_BYTES as u64, footer as u64));
        }
        let mut column_sizes = BTreeMap::new();
        for (chunk, column) in groups.iter().flat_map(|group| group.chunks.iter().zip(&schema.columns)) {
            if let Some(id) = column.id {
                *column_sizes.entry(id).or_insert(0) += chunk.compressed;
            }
        }
        Ok(Rewritten {
            recipe: self.recipe.to_bytes(),
            size: self.recipe.size(),
            split_offsets: groups.iter().map(|group| group.offset).collect(),
            column_sizes,
        })
    }
}

/// Drops the bounds of a column unless every row group with values has them. DataFusion takes the bounds of some row
/// groups for those of the whole file.
fn drop_partial_bounds(groups: &mut [GroupFacts], column: usize) {
    let lacks = |group: &GroupFacts| group.chunks[column].has_values && group.chunks[column].bounds.is_none();
    if groups.iter().any(lacks) {
        groups.iter_mut().for_each(|group| group.chunks[column].bounds = None);
    }
}

/// Appends indexes and footer to `out`. `start` is the position in the published file at which they begin, because
/// offsets count from the start of the file. Returns the length of the footer.
fn append_indexes_and_footer(out: &mut Vec<u8>, start: u64, schema: &FileSchema, groups: &[GroupFacts]) -> usize {
    let mut tail = Vec::new();
    let footer = write_indexes_and_footer(&mut tail, start, &schema.elements, &schema.columns, groups);
    out.extend_from_slice(&tail);
    footer
}

/// Adds the pages of a column chunk to the recipe, with new headers. Returns the facts for the footer.
fn build_chunk(
    data: &Bytes,
    recipe: &mut Recipe,
    group: &RowGroupMetaData,
    column: &Column,
    measures: &[SharedMeasure],
) -> Result<ChunkFacts> {
    let ambiguous =
        || Fault::new("parquet_ambiguous", &column.path.join("."), "the pages of all rows", "different ones");
    let of_file: &ColumnChunkMetaData = group.columns().get(column.source).ok_or_else(ambiguous)?;
    let headers = read_page_headers(data, of_file).ok_or_else(ambiguous)?;
    let measure = measures.get(column.source).ok_or_else(ambiguous)?;
    measure.with(|chunk| {
        let (whole, is_flat) = (join_pages(chunk), chunk.column.max_rep_level() == 0);
        let mut facts = start_chunk(of_file, column, &whole, is_flat)?;
        let (mut pages, mut row) = (chunk.pages.iter(), 0);
        // The number of pages by page type and encoding.
        let mut counts = BTreeMap::<(i32, i32), i32>::new();
        for header in &headers {
            let measured =
                if header.kind == DICTIONARY_PAGE { None } else { Some(pages.next().ok_or_else(ambiguous)?) };
            // PyArrow writes pages without entries, and fails on such pages inside a row. These pages are left out.
            if measured.is_some_and(|measured| measured.entries == 0) {
                continue;
            }
            let at = recipe.size();
            let body = header.end - header.body_size..header.end;
            recipe.add(body, |out| write_page_header(out, header, measured));
            let size = recipe.size() - at;
            facts.compressed += size as i64;
            facts.uncompressed += (size - header.body_size as u64) as i64 + header.size;
            *counts.entry((header.kind as i32, header.encoding as i32)).or_default() += 1;
            match measured {
                None => facts.dictionary_offset = Some(at as i64),
                Some(measured) => {
                    facts.pages.push(build_page(column, measured, at, size, row));
                    facts.begins_rows &= measured.begins_row;
                    row += measured.rows as i64;
                }
            }
        }
        facts.data_offset = facts.pages.first().ok_or_else(ambiguous)?.offset;
        facts.encodings = list_encodings(&counts, chunk);
        facts.encoding_counts = counts.into_iter().map(|((kind, encoding), count)| [kind, encoding, count]).collect();
        Ok(facts)
    })
}

/// The facts of a chunk without its pages.
fn start_chunk(
    of_file: &ColumnChunkMetaData,
    column: &Column,
    whole: &PageMeasure,
    is_flat: bool,
) -> Result<ChunkFacts> {
    let codec = codec_number(of_file).ok_or_else(|| {
        Fault::new("parquet_codec_unsupported", &column.path.join("."), "a known codec", "a different one")
    })?;
    Ok(ChunkFacts {
        codec,
        encodings: Vec::new(),
        encoding_counts: Vec::new(),
        values: whole.entries as i64,
        uncompressed: 0,
        compressed: 0,
        data_offset: 0,
        dictionary_offset: None,
        has_values: whole.present > 0,
        nulls: is_flat.then_some((whole.entries - whole.present) as i64),
        bounds: if is_flat { build_bounds(column, whole) } else { None },
        pages: Vec::new(),
        begins_rows: true,
    })
}

fn build_page(column: &Column, measured: &PageMeasure, at: u64, size: u64, first_row: i64) -> PageFacts {
    PageFacts {
        offset: at as i64,
        size: size as i32,
        first_row,
        nulls: (measured.entries - measured.present) as i64,
        is_null: measured.present == 0,
        bounds: build_bounds(column, measured),
    }
}

fn build_bounds(column: &Column, measured: &PageMeasure) -> Option<Bounds> {
    let (least, greatest) = statistics::exact_bounds(column, measured)?;
    Some(Bounds { least, greatest })
}

/// The encodings of the pages, and that of the levels if there are any.
fn list_encodings(counts: &BTreeMap<(i32, i32), i32>, chunk: &ChunkMeasure) -> Vec<i32> {
    let mut found: BTreeSet<i32> = counts.keys().map(|(_, encoding)| *encoding).collect();
    if chunk.column.max_def_level() > 0 || chunk.column.max_rep_level() > 0 {
        found.insert(RLE);
    }
    found.into_iter().collect()
}

/// Writes the header of a page from its measure. The dictionary's number of values was checked before.
fn write_page_header(out: &mut Vec<u8>, page: &PageMetadata<'_>, measured: Option<&PageMeasure>) {
    write_struct(out, |fields| {
        fields.int(1, page.kind as i32);
        fields.int(2, page.size as i32);
        fields.int(3, page.body_size as i32);
        // The fields 5, 7 and 8 are the headers of a version 1 data page, a dictionary page and a version 2 data page.
        match (page.kind, measured) {
            (DATA_PAGE, Some(measured)) => fields.nested(5, |inner| {
                inner.int(1, measured.entries as i32);
                inner.int(2, page.encoding as i32);
                inner.int(3, RLE);
                inner.int(4, RLE);
            }),
            (DATA_PAGE_V2, Some(measured)) => fields.nested(8, |inner| write_v2_header(inner, page, measured)),
            _ => fields.nested(7, |inner| {
                inner.int(1, page.values as i32);
                inner.int(2, page.encoding as i32);
            }),
        }
    });
}

fn write_v2_header(fields: &mut Fields<'_>, page: &PageMetadata<'_>, measured: &PageMeasure) {
    fields.int(1, measured.entries as i32);
    fields.int(2, (measured.entries - measured.present) as i32);
    fields.int(3, measured.rows as i32);
    fields.int(4, page.encoding as i32);
    fields.int(5, page.definition_size as i32);
    fields.int(6, page.repetition_size as i32);
    fields.flag(7, page.is_compressed);
}

/// The number of the codec in the enum `CompressionCodec` of the format.
fn codec_number(column: &ColumnChunkMetaData) -> Option<i32> {
    use parquet::basic::Compression;
    match column.compression() {
        Compression::UNCOMPRESSED => Some(0),
        Compression::SNAPPY => Some(1),
        Compression::GZIP(_) => Some(2),
        Compression::ZSTD(_) => Some(6),
        Compression::LZ4_RAW => Some(7),
        _ => None,
    }
}
