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

/// The part of a file that is read.
pub struct ColumnSelection {
    /// The leaves that are read.
    pub mask: ProjectionMask,
    /// The columns of the file to which these leaves belong.
    pub fields: Fields,
    /// How these columns become columns of the schema.
    pub shape: Arc<Shape>,
}

/// For one row group: in which Arrow types its columns are given, and which of them as dictionary indices.
pub struct StoredGroup {
    /// The Arrow types in which the columns are given. It has all columns of the file, also those that are not read.
    pub types: Fields,
    /// The columns that are given as indices of their dictionary. Their positions count only the columns that are read.
    pub by_dictionary: Vec<DictionaryColumn>,
}

/// An iterator over the rows of a file.
pub struct Batches {
    data: Bytes,
    footer: ArrowReaderMetadata,
    batch_rows: usize,
    selection: ColumnSelection,
    /// One entry for each row group; empty if all columns are given in the Arrow types of the footer.
    stored: Vec<StoredGroup>,
    /// The decoder of the current row group.
    decoder: Option<ParquetRecordBatchReader>,
    /// Readers for the columns of the current row group that are read by their dictionary.
    readers: Vec<DictionaryReader>,
    /// The number of row groups that were opened.
    opened_groups: usize,
    /// The number of rows of the current row group that were given so far.
    group_rows: u64,
    /// The number of rows of the file that were given so far.
    rows: u64,
}

impl Batches {
    pub fn new(
        data: Bytes,
        footer: ArrowReaderMetadata,
        batch_rows: usize,
        selection: ColumnSelection,
        stored: Vec<StoredGroup>,
    ) -> Result<Batches> {
        let mut batches = Batches {
            data,
            footer,
            batch_rows,
            selection,
            stored,
            decoder: None,
            readers: Vec::new(),
            opened_groups: 0,
            group_rows: 0,
            rows: 0,
        };
        batches.open_next_group()?;
        if batches.decoder.is_none() {
            require_rows(batches.footer.metadata(), 0)?;
        }
        Ok(batches)
    }

    /// Opens the next row group; after the last one there is no decoder.
    fn open_next_group(&mut self) -> Result<()> {
        let group = self.opened_groups;
        if group >= self.footer.metadata().num_row_groups() {
            return Ok(());
        }
        // The dictionary readers come first: the decoder gets the columns that they do not read.
        self.readers = self.open_dictionary_readers(group).unwrap_or_default();
        self.decoder = Some(self.open_decoder(group)?);
        (self.opened_groups, self.group_rows) = (group + 1, 0);
        Ok(())
    }

    /// Opens a decoder for the columns of a row group that are not read by their dictionary.
    fn open_decoder(&self, group: usize) -> Result<ParquetRecordBatchReader> {
        let mut mask = self.selection.mask.clone();
        if !self.readers.is_empty() {
            mask.intersect(&mask_other_leaves(self.footer.parquet_schema(), &self.stored[group].by_dictionary));
        }
        let builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(self.data.clone(), self.with_stored_types(group));
        let builder = builder.with_row_groups(vec![group]).with_projection(mask);
        builder.with_batch_size(self.batch_rows).build().map_err(unreadable_file)
    }

    /// Opens readers for the columns of a row group that are read by their dictionary. Returns `None` if this is not
    /// possible for one of these columns.
    fn open_dictionary_readers(&self, group: usize) -> Option<Vec<DictionaryReader>> {
        let (columns, metadata) = (self.footer.parquet_schema(), self.footer.metadata().row_group(group));
        let readers = self.stored.get(group)?.by_dictionary.iter().map(|column| {
            let pages = SourceIndices::new(&self.data, metadata, column.leaf, column.kind.primitive_width()?).ok()?;
            Some(DictionaryReader::unmeasured(column, columns.column(column.leaf).path().string(), pages))
        });
        readers.collect()
    }

    /// The footer with the types that were chosen for a row group. Types that the decoder does not support are ignored.
    fn with_stored_types(&self, group: usize) -> ArrowReaderMetadata {
        let types = self.stored.get(group).map(|stored| &stored.types);
        let Some(fields) = types.filter(|fields| *fields != self.footer.schema().fields()) else {
            return self.footer.clone();
        };
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields.clone())));
        let typed = ArrowReaderMetadata::try_new(self.footer.metadata().clone(), options);
        typed.unwrap_or_else(|_| self.footer.clone())
    }

    /// The next rows of the current row group.
    fn next_rows(&mut self) -> Result<Option<StructArray>> {
        let Some(batch) = self.decoder.as_mut().and_then(Iterator::next) else {
            self.readers.iter_mut().try_for_each(DictionaryReader::require_end)?;
            return Ok(None);
        };
        merge_columns(&self.selection.fields, batch.map_err(unreadable_pages)?, &mut self.readers).map(Some)
    }

    /// Decodes the rest of the current row group without dictionary indices, from the first row that was not given yet.
    /// The file of a source (from which intended rows are read) may use every form that the decoder reads. So only the
    /// decoder may refuse such a file, not a dictionary reader.
    fn restart_without_indices(&mut self) -> Result<()> {
        self.readers.clear();
        let mut decoder = self.open_decoder(self.opened_groups - 1)?;
        let mut left = self.group_rows;
        while left > 0 {
            let rows = match decoder.next() {
                Some(batch) => batch.map_err(unreadable_pages)?.num_rows() as u64,
                None => 0,
            };
            // All batches but the last have the same number of rows, so the rows that were given end
            // where a batch ends.
            left = left.checked_sub(rows).filter(|_| rows > 0).ok_or_else(|| {
                Fault::new("parquet_unreadable", "", "the rows that were read before", "different ones")
                    .in_group(self.opened_groups - 1)
            })?;
        }
        self.decoder = Some(decoder);
        Ok(())
    }

    /// Checks the row count of this row group and opens the next row group. After the last row group, checks the row
    /// count of the file.
    fn finish_group(&mut self) -> Result<()> {
        self.decoder = None;
        require_group_rows(self.footer.metadata(), self.opened_groups - 1, self.group_rows)?;
        self.open_next_group()?;
        if self.decoder.is_none() { require_rows(self.footer.metadata(), self.rows) } else { Ok(()) }
    }

    fn next_batch(&mut self) -> Result<Option<StructArray>> {
        while self.decoder.is_some() {
            let rows = match self.next_rows() {
                Err(_) if !self.readers.is_empty() => {
                    self.restart_without_indices()?;
                    self.next_rows()?
                }
                rows => rows?,
            };
            let Some(batch) = rows else {
                self.finish_group()?;
                continue;
            };
            self.group_rows += batch.len() as u64;
            self.rows += batch.len() as u64;
            require_no_extra_rows(self.footer.metadata(), self.opened_groups - 1, self.group_rows)?;
            return apply_shape(&self.selection.shape, &batch).map(Some);
        }
        Ok(None)
    }
}

impl Iterator for Batches {
    type Item = Result<StructArray>;

    fn next(&mut self) -> Option<Result<StructArray>> {
        let batch = self.next_batch();
        if batch.is_err() {
            // Without a decoder the iterator has ended.
            self.decoder = None;
        }
        batch.transpose()
    }
}
