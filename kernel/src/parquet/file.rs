//! A Parquet file in memory: one pass gives its rows to a digester and the exact facts for its manifest entry.

use crate::canonical::schema::{Field, Type};
use crate::digest::Digester;
use crate::error::{Fault, Result};
use crate::parquet::batches::{Batches, ColumnSelection, StoredGroup};
use crate::parquet::bucket::{BucketField, parse_buckets};
use crate::parquet::claims::check::Claims;
use crate::parquet::claims::pages::{MeasuredRowGroup, SharedMeasure};
use crate::parquet::decode_types::choose_decode_types;
use crate::parquet::dictionary_columns::{
    DictionaryColumn, DictionaryReader, find_dictionary_columns, has_table_type, mask_other_leaves, merge_columns,
};
use crate::parquet::facts::{LeafFacts, collect_leaves};
use crate::parquet::format::pages::has_small_dictionary;
use crate::parquet::guard::file_columns::{require_ids, require_types, require_variants};
use crate::parquet::guard::footer_limits::{check_footer, choose_batch_rows, require_elements, require_texts};
use crate::parquet::guard::published::annotations::require_plain_annotations;
use crate::parquet::guard::published::arrow_schema::require_arrow_schema;
use crate::parquet::guard::published::footer::{require_filterable, require_layout, require_no_geo_key};
use crate::parquet::guard::published::names::require_table_names;
use crate::parquet::guard::unambiguous::{require_found_by_splits, require_unambiguous};
use crate::parquet::projection::{drop_absent_columns, position_among_read, select_leaves};
use crate::parquet::request::Request;
use crate::parquet::resolve::{Shape, TableColumns, apply_shape, resolve_columns};
use crate::parquet::rewrite::rewriter::{Rewriter, Rewritten};
use crate::parquet::row_counts::{
    require_group_rows, require_no_extra_rows, require_rows, require_rows_max, unreadable_file, unreadable_pages,
};
use arrow_array::{Array, StructArray};
use arrow_schema::{DataType, Field as ArrowField};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema_by_columns};
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A file whose columns were resolved to a schema. No row was read yet.
pub struct ParquetFile {
    data: Bytes,
    pub(super) footer: ArrowReaderMetadata,
    table: TableColumns,
    shape: Arc<Shape>,
    request: Request,
    /// Ids of columns whose values only a digest reads, so that batches may have them in the file's own encoding.
    stored: HashSet<i32>,
    pub(super) batch_rows: usize,
}

/// What one pass over all rows collects beside the digest.
struct Collected {
    rows: u64,
    /// The total length of all byte arrays in the row groups that were read.
    byte_array_bytes: u64,
    leaves: Vec<LeafFacts>,
    buckets: Vec<BucketField>,
}

/// A row group that is being read: the decoder, and one reader for each column that is read by its dictionary instead.
type GroupReaders = (ParquetRecordBatchReader, Vec<DictionaryReader>);

impl ParquetFile {
    /// Opens a file as the request says (the JSON of `Request`). Refuses columns that do not fit the schema, and files
    /// beyond the limits on size and depth.
    pub fn open(data: Bytes, request: &str) -> Result<ParquetFile> {
        let request = Request::parse(request)?;
        let table = request.table_columns()?;
        check_footer(&data)?;
        // A writer may put any Arrow schema into the file, so it is ignored.
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&data, options).map_err(unreadable_file)?;
        let shape = Arc::new(resolve_columns(&table, footer.schema().fields())?);
        // The result is not needed yet. Wrong buckets are refused here, before any row is read.
        parse_buckets(&table.wanted, &request.buckets)?;
        let batch_rows = choose_batch_rows(&data, footer.metadata())?;
        let stored = request.stored();
        Ok(ParquetFile { data, footer, table, shape, request, stored, batch_rows })
    }

    /// Batches of all rows, with those requested columns that the file has. Other columns are not decoded.
    pub fn batches(&self) -> Result<Batches> {
        require_found_by_splits(&self.data, self.footer.metadata(), self.request.first_split_start())?;
        if self.request.claims_checked {
            self.require_claims()?;
        }
        let columns = self.footer.parquet_schema();
        let is_read = select_leaves(&self.shape, self.footer.schema().fields());
        if is_read.len() != columns.num_columns() {
            let expected = format!("{} columns", columns.num_columns());
            return Err(Fault::new("parquet_invalid", "", expected, is_read.len().to_string()));
        }
        let mask = ProjectionMask::leaves(columns, (0..is_read.len()).filter(|at| is_read[*at]));
        let schema = parquet_to_arrow_schema_by_columns(columns, mask.clone(), None).map_err(unreadable_file)?;
        let shape = Arc::new(drop_absent_columns(resolve_columns(&self.table, schema.fields())?));
        let groups = if self.stored.is_empty() { 0 } else { self.footer.metadata().num_row_groups() };
        let stored = (0..groups).map(|group| self.plan_stored_group(group, &is_read)).collect();
        self.open_batches(ColumnSelection { mask, fields: schema.fields().clone(), shape }, stored)
    }

    /// Chooses the types in which a row group's batches are given, and the columns that are given by their dictionary.
    /// `is_read` says for each leaf of the file whether it is read.
    fn plan_stored_group(&self, group: usize, is_read: &[bool]) -> StoredGroup {
        let is_not_stored = |field: &Field| !field.slot.id.is_some_and(|id| self.stored.contains(&id));
        let types = choose_decode_types(
            (&self.table.wanted, &self.shape, self.footer.schema().fields()),
            self.footer.parquet_schema(),
            |leaf| has_small_dictionary(&self.data, self.footer.metadata().row_group(group).column(leaf)),
            |field, of_file| is_not_stored(field) || is_widened(field, of_file),
        );
        // A column that is cast or refused later is decoded plainly.
        let is_inspected =
            |field: &Field, of_file: &ArrowField| is_not_stored(field) || !has_table_type(field, of_file);
        let mut by_dictionary = self.dictionary_columns(group, self.batch_rows, is_inspected);
        for column in &mut by_dictionary {
            column.at = position_among_read(self.footer.schema().fields(), is_read, column.at);
        }
        StoredGroup { types, by_dictionary }
    }

    /// Batches of all rows with all columns of the schema, as `read` gives them to a digester.
    pub fn all_batches(&self) -> Result<Batches> {
        let (fields, shape) = (self.footer.schema().fields().clone(), self.shape.clone());
        self.open_batches(ColumnSelection { mask: ProjectionMask::all(), fields, shape }, Vec::new())
    }

    fn open_batches(&self, selection: ColumnSelection, stored: Vec<StoredGroup>) -> Result<Batches> {
        Batches::new(self.data.clone(), self.footer.clone(), self.batch_rows, selection, stored)
    }

    /// Reads every row and column once, into the digester and into the facts. Refuses a file that another reader may
    /// read as other rows, since the file is published.
    pub fn read(&self, digester: &mut Digester) -> Result<Value> {
        Ok(self.facts_to_json(&self.read_rows(digester, None)?))
    }

    /// Reads every row as `read` does, and also gives the recipe of the file to publish: the staged page bodies under
    /// new metadata. The entry `published` of the facts has the sizes and offsets of that file.
    pub fn read_and_rewrite(&self, digester: &mut Digester) -> Result<(Value, Rewritten)> {
        let (root, metadata) = (self.footer.parquet_schema().root_schema(), self.footer.metadata());
        let names = self.request.published_names();
        let mut rewriter = Rewriter::new(&self.data, metadata, &self.table.wanted, &self.shape, root, &names)?;
        let collected = self.read_rows(digester, Some(&mut rewriter))?;
        let rewritten = rewriter.finish()?;
        let mut facts = self.facts_to_json(&collected);
        facts["published"] = json!({
            "size": rewritten.size,
            "split_offsets": rewritten.split_offsets,
            "column_sizes": to_pairs(&rewritten.column_sizes),
        });
        Ok((facts, rewritten))
    }

    /// Gives every row to the digester, compares the file's claims with its pages, and adds the pages to the rewriter.
    fn read_rows(&self, digester: &mut Digester, mut rewriter: Option<&mut Rewriter<'_>>) -> Result<Collected> {
        let claims = self.require_publishable()?;
        let mut collected = Collected {
            rows: 0,
            byte_array_bytes: 0,
            leaves: collect_leaves(&self.table.wanted, &self.shape, self.footer.schema().fields()),
            buckets: parse_buckets(&self.table.wanted, &self.request.buckets)?,
        };
        for group in 0..self.footer.metadata().num_row_groups() {
            let measures = claims.start_measures(group)?;
            let rows = self.read_group(group, &claims, &measures, digester, &mut collected)?;
            claims.compare(group, &measures)?;
            if let Some(rewriter) = &mut rewriter {
                rewriter.add_group(group, &measures)?;
            }
            collected.leaves.iter_mut().try_for_each(|leaf| leaf.add_measured(&measures))?;
            collected.byte_array_bytes = collected.byte_array_bytes.saturating_add(claims.byte_array_bytes(&measures));
            collected.rows += rows;
        }
        require_rows(self.footer.metadata(), collected.rows)?;
        Ok(collected)
    }

    /// Refuses a file that may not be published, before any row is decoded. Returns its claims.
    fn require_publishable(&self) -> Result<Claims<'_>> {
        let (root, metadata) = (self.footer.parquet_schema().root_schema(), self.footer.metadata());
        require_types("", &self.table.wanted, &self.shape, self.footer.schema().fields())?;
        require_unambiguous(&self.data, metadata)?;
        require_ids(root, self.footer.schema().fields())?;
        require_variants("", &self.table.wanted, &self.shape, root)?;
        require_rows_max(metadata, self.request.rows_max())?;
        require_elements(metadata)?;
        let claims = Claims::read(&self.data, metadata)?;
        if self.request.footer_published {
            self.require_published_footer(&claims)?;
        }
        Ok(claims)
    }

    /// Gives the rows of one row group to the digester and to the facts. Returns their number.
    fn read_group(
        &self,
        group: usize,
        claims: &Claims<'_>,
        measures: &[SharedMeasure],
        digester: &mut Digester,
        collected: &mut Collected,
    ) -> Result<u64> {
        let Collected { byte_array_bytes, leaves, buckets, .. } = collected;
        let mut sort_order = claims.read_sort_order(group)?;
        let is_inspected = |field: &Field, of_file: &ArrowField| {
            sort_order.includes(of_file.name()) || buckets.iter().any(|bucket| bucket.reads_column(&field.name))
        };
        let readers = self.open_measured_group(group, measures, is_inspected)?;
        self.decode_group(group, readers, |batch| {
            require_texts(self.footer.metadata(), byte_array_bytes.saturating_add(claims.byte_array_bytes(measures)))?;
            sort_order.add(&batch).map_err(|fault| fault.in_group(group))?;
            let batch = apply_shape(&self.shape, &batch)?;
            digester.update(&batch)?;
            // Columns outside every projection are published too.
            digester.check_rest(&batch)?;
            leaves.iter_mut().for_each(|leaf| leaf.add(&batch));
            buckets.iter_mut().try_for_each(|bucket| bucket.add(&batch))
        })
    }

    /// Decodes the whole file only to compare its claims with its values.
    fn require_claims(&self) -> Result<()> {
        let metadata = self.footer.metadata();
        require_unambiguous(&self.data, metadata)?;
        require_elements(metadata)?;
        let claims = Claims::read(&self.data, metadata)?;
        for group in 0..metadata.num_row_groups() {
            let measures = claims.start_measures(group)?;
            let readers = self.open_measured_group(group, &measures, |_, _| false)?;
            self.decode_group(group, readers, |_| Ok(()))?;
            claims.compare(group, &measures)?;
        }
        Ok(())
    }

    /// Refuses a footer that engines read in different ways. This applies if the footer of the producer is published.
    fn require_published_footer(&self, claims: &Claims<'_>) -> Result<()> {
        let metadata = self.footer.metadata();
        let root = self.footer.parquet_schema().root_schema();
        require_table_names(&self.table.wanted, root)?;
        require_plain_annotations(&self.table.wanted, root)?;
        require_layout(&self.data, metadata)?;
        require_filterable(&self.table.wanted, metadata)?;
        require_no_geo_key(metadata)?;
        require_arrow_schema(metadata, self.footer.schema().fields())?;
        claims.require_widths()?;
        claims.require_counts()?;
        claims.require_first_pages_with_values()?;
        claims.require_all_or_no_bounds()
    }

    /// Opens a row group whose pages are measured while they are decoded. `is_inspected` says whether anything but a
    /// digest reads a column's values. If so, the column is not read by its dictionary.
    fn open_measured_group(
        &self,
        group: usize,
        chunks: &[SharedMeasure],
        is_inspected: impl Fn(&Field, &ArrowField) -> bool,
    ) -> Result<GroupReaders> {
        let (columns, metadata) = (self.footer.parquet_schema(), self.footer.metadata());
        let schemas = (&self.table.wanted[..], &*self.shape, self.footer.schema().fields());
        let has_dictionary = |leaf| has_small_dictionary(&self.data, metadata.row_group(group).column(leaf));
        let fields = choose_decode_types(schemas, columns, has_dictionary, &is_inspected);
        let by_dictionary = self.dictionary_columns(group, self.batch_rows, is_inspected);
        let mask = mask_other_leaves(columns, &by_dictionary);
        let levels = parquet_to_arrow_field_levels(columns, mask, Some(&fields)).map_err(unreadable_file)?;
        let row_group = MeasuredRowGroup { data: &self.data, metadata, group, chunks };
        let decoder = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &row_group, self.batch_rows, None);
        let readers = by_dictionary.into_iter().map(|column| {
            let (leaf, path) = (column.leaf, columns.column(column.leaf).path().string());
            Ok(DictionaryReader::measured(column, path, row_group.pages(leaf)?, &chunks[leaf]))
        });
        let readers = readers.collect::<std::result::Result<_, _>>();
        Ok((decoder.map_err(unreadable_file)?, readers.map_err(unreadable_file)?))
    }

    /// Gives each batch of a row group to `consume`. Returns the number of rows, which must be that of the footer.
    fn decode_group(
        &self,
        group: usize,
        (decoder, mut readers): GroupReaders,
        mut consume: impl FnMut(StructArray) -> Result<()>,
    ) -> Result<u64> {
        let metadata = self.footer.metadata();
        let mut seen = 0;
        for batch in decoder {
            let batch = batch.map_err(unreadable_pages)?;
            let batch = merge_columns(self.footer.schema().fields(), batch, &mut readers)
                .map_err(|fault| fault.in_group(group))?;
            seen += batch.len() as u64;
            require_no_extra_rows(metadata, group, seen)?;
            consume(batch)?;
        }
        require_group_rows(metadata, group, seen)?;
        readers.into_iter().try_for_each(DictionaryReader::finish).map_err(|fault| fault.in_group(group))?;
        Ok(seen)
    }

    /// Finds the columns of a row group that are read by their dictionary.
    fn dictionary_columns(
        &self,
        group: usize,
        batch_rows: usize,
        is_inspected: impl Fn(&Field, &ArrowField) -> bool,
    ) -> Vec<DictionaryColumn> {
        let schemas = (&self.table.wanted[..], &*self.shape, self.footer.schema().fields());
        let group = self.footer.metadata().row_group(group);
        let pages = (&self.data, self.footer.parquet_schema(), group);
        find_dictionary_columns(schemas, pages, batch_rows, is_inspected)
    }

    #[cfg(test)]
    pub fn dictionary_columns_by_group(
        &self,
        batch_rows: usize,
        is_inspected: impl Fn(&Field) -> bool,
    ) -> Vec<Vec<DictionaryColumn>> {
        let groups = 0..self.footer.metadata().num_row_groups();
        groups.map(|group| self.dictionary_columns(group, batch_rows, |field, _| is_inspected(field))).collect()
    }

    fn facts_to_json(&self, collected: &Collected) -> Value {
        let metadata = self.footer.metadata();
        json!({
            "rows": collected.rows,
            "row_groups": metadata.num_row_groups(),
            "split_offsets": find_split_offsets(metadata),
            "column_sizes": to_pairs(&sum_column_sizes(metadata)),
            "leaves": collected.leaves.iter().map(LeafFacts::to_json).collect::<Vec<_>>(),
            "buckets": collected.buckets.iter().map(BucketField::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Pairs of id and size.
fn to_pairs(sizes: &BTreeMap<i32, i64>) -> Vec<Value> {
    sizes.iter().map(|(id, size)| json!([id, size])).collect()
}

/// Whether a decimal of the file has another precision than the schema says. Such a decimal is decoded as Decimal128,
/// because the caller of `batches` casts it to the schema's precision.
fn is_widened(field: &Field, of_file: &ArrowField) -> bool {
    match (&field.slot.kind, of_file.data_type()) {
        (Type::Decimal { precision, .. }, DataType::Decimal128(given, _)) => given != precision,
        _ => false,
    }
}

/// The compressed bytes of each column with an id, over all row groups.
fn sum_column_sizes(metadata: &ParquetMetaData) -> BTreeMap<i32, i64> {
    let mut found = BTreeMap::new();
    for group in metadata.row_groups() {
        for column in group.columns() {
            let info = column.column_descr().self_type().get_basic_info();
            if info.has_id() {
                *found.entry(info.id()).or_insert(0) += column.compressed_size();
            }
        }
    }
    found
}

/// Where each row group begins, in ascending order. A row group begins at the dictionary of its first column, or at the
/// first data page of this column if it has no dictionary.
fn find_split_offsets(metadata: &ParquetMetaData) -> Vec<i64> {
    let groups = metadata.row_groups().iter().filter(|group| group.num_columns() > 0);
    let mut found: Vec<i64> = groups
        .map(|group| {
            let first = group.column(0);
            match first.dictionary_page_offset() {
                Some(dictionary) if dictionary > 0 => dictionary.min(first.data_page_offset()),
                _ => first.data_page_offset(),
            }
        })
        .collect();
    found.sort_unstable();
    found
}
