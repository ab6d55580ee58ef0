//! The batches of a file, resolved to the schema, one row group after the other.

use crate::error::{Fault, Result};
use crate::parquet::dictionary_columns::{DictionaryColumn, DictionaryReader, mask_other_leaves, merge_columns};
use crate::parquet::resolve::{Shape, apply_shape};
use crate::parquet::row_counts::{
    require_group_rows, require_no_extra_rows, require_rows, unreadable_file, unreadable_pages,
};
use crate::parquet::source_indices::SourceIndices;
use arrow_array::{Array, StructArray};
use arrow_schema::{Fields, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use std::sync::Arc;

/// The part of a file that is read: its leaves, their columns, and how these become columns of the schema.
pub struct Projection {
    pub mask: ProjectionMask,
    pub fields: Fields,
    pub shape: Arc<Shape>,
}

/// How a row group is given as it is stored: the types of all columns of the file, and the columns that are given by
/// their dictionary, by position among the columns that are read.
pub struct StoredGroup {
    pub types: Fields,
    pub by_dictionary: Vec<DictionaryColumn>,
}

pub struct Batches {
    data: Bytes,
    footer: ArrowReaderMetadata,
    batch_rows: usize,
    projection: Projection,
    /// Per row group, if some columns are not given in the types of the footer.
    stored: Vec<StoredGroup>,
    reader: Option<ParquetRecordBatchReader>,
    /// Columns of the row group that its reader does not decode.
    readers: Vec<DictionaryReader>,
    /// The number of row groups that were opened, and the rows of the last one that were given.
    group: usize,
    seen: u64,
    rows: u64,
}

impl Batches {
    pub fn new(
        data: Bytes,
        footer: ArrowReaderMetadata,
        batch_rows: usize,
        projection: Projection,
        stored: Vec<StoredGroup>,
    ) -> Result<Batches> {
        let (reader, readers) = (None, Vec::new());
        let mut made =
            Batches { data, footer, batch_rows, projection, stored, reader, readers, group: 0, seen: 0, rows: 0 };
        made.open_next_group()?;
        if made.reader.is_none() {
            require_rows(made.footer.metadata(), 0)?;
        }
        Ok(made)
    }

    fn open_next_group(&mut self) -> Result<()> {
        let group = self.group;
        if group >= self.footer.metadata().num_row_groups() {
            return Ok(());
        }
        self.readers = self.open_dictionary_readers(group).unwrap_or_default();
        self.reader = Some(self.open(group)?);
        (self.group, self.seen) = (group + 1, 0);
        Ok(())
    }

    /// Opens a reader for the columns of a row group that are not read by their dictionary.
    fn open(&self, group: usize) -> Result<ParquetRecordBatchReader> {
        let mut mask = self.projection.mask.clone();
        if !self.readers.is_empty() {
            mask.intersect(&mask_other_leaves(self.footer.parquet_schema(), &self.stored[group].by_dictionary));
        }
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.data.clone(), self.with_stored_types(group));
        let builder = builder.with_row_groups(vec![group]).with_projection(mask);
        builder.with_batch_size(self.batch_rows).build().map_err(unreadable_file)
    }

    /// Opens the columns of a row group that are read by their dictionary. Returns `None` if one cannot be.
    fn open_dictionary_readers(&self, group: usize) -> Option<Vec<DictionaryReader>> {
        let (columns, metadata) = (self.footer.parquet_schema(), self.footer.metadata().row_group(group));
        let readers = self.stored.get(group)?.by_dictionary.iter().map(|each| {
            let pages = SourceIndices::new(&self.data, metadata, each.leaf, each.kind.primitive_width()?).ok()?;
            Some(DictionaryReader::unmeasured(each, columns.column(each.leaf).path().string(), pages))
        });
        readers.collect()
    }

    /// The footer with the types of a row group. Types that the reader does not support are ignored.
    fn with_stored_types(&self, group: usize) -> ArrowReaderMetadata {
        let types = self.stored.get(group).map(|stored| &stored.types);
        let Some(fields) = types.filter(|fields| *fields != self.footer.schema().fields()) else {
            return self.footer.clone();
        };
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields.clone())));
        let typed = ArrowReaderMetadata::try_new(self.footer.metadata().clone(), options);
        typed.unwrap_or_else(|_| self.footer.clone())
    }

    /// The next rows of the row group.
    fn next_rows(&mut self) -> Result<Option<StructArray>> {
        let Some(batch) = self.reader.as_mut().and_then(Iterator::next) else {
            self.readers.iter_mut().try_for_each(DictionaryReader::require_end)?;
            return Ok(None);
        };
        merge_columns(&self.projection.fields, batch.map_err(unreadable_pages)?, &mut self.readers).map(Some)
    }

    /// Decodes the row group without dictionary indices, from the first row that was not given yet. A source may use
    /// every form that the decoder reads, so only the decoder may refuse it.
    fn restart_without_indices(&mut self) -> Result<()> {
        self.readers.clear();
        let mut reader = self.open(self.group - 1)?;
        let mut left = self.seen;
        while left > 0 {
            let rows = match reader.next() {
                Some(batch) => batch.map_err(unreadable_pages)?.num_rows() as u64,
                None => 0,
            };
            // Both readers fill every batch but the last.
            left = left.checked_sub(rows).filter(|_| rows > 0).ok_or_else(|| {
                Fault::new("parquet_unreadable", "", "the rows that were read before", "different ones")
                    .in_group(self.group - 1)
            })?;
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// Checks the rows of this row group and opens the next one. After the last one, checks the rows of the file.
    fn finish_group(&mut self) -> Result<()> {
        self.reader = None;
        require_group_rows(self.footer.metadata(), self.group - 1, self.seen)?;
        self.open_next_group()?;
        if self.reader.is_none() { require_rows(self.footer.metadata(), self.rows) } else { Ok(()) }
    }

    fn next_batch(&mut self) -> Result<Option<StructArray>> {
        while self.reader.is_some() {
            let found = match self.next_rows() {
                Err(_) if !self.readers.is_empty() => {
                    self.restart_without_indices()?;
                    self.next_rows()?
                }
                found => found?,
            };
            let Some(batch) = found else {
                self.finish_group()?;
                continue;
            };
            self.seen += batch.len() as u64;
            self.rows += batch.len() as u64;
            require_no_extra_rows(self.footer.metadata(), self.group - 1, self.seen)?;
            return apply_shape(&self.projection.shape, &batch).map(Some);
        }
        Ok(None)
    }
}

impl Iterator for Batches {
    type Item = Result<StructArray>;

    fn next(&mut self) -> Option<Result<StructArray>> {
        let found = self.next_batch();
        if found.is_err() {
            self.reader = None;
        }
        found.transpose()
    }
}
