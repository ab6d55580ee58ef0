//! A Parquet file in memory: one pass gives its rows to a digester and the exact facts for its manifest entry.

use crate::as_stored::as_stored;
use crate::batches::{Batches, Projected, Stored};
use crate::bucket::{Bucket, buckets};
use crate::claims::{Claims, Watch, Watched, by_small_dictionary};
use crate::columns::{require_ids, require_types, require_variants};
use crate::digest::Digester;
use crate::error::{Fault, Result};
use crate::facts::{Leaf, leaves};
use crate::headers::{batch_rows, check_footer, require_elements, require_texts};
use crate::indexed::{Indexed, Reading, indexed, is_of, others, woven};
use crate::narrow::{leaves as leaves_read, place, present};
use crate::one_reading::{require_in_parts, require_one_reading};
use crate::published_annotations::require_plain_annotations;
use crate::published_arrow_schema::require_arrow_schema;
use crate::published_footer::{require_filterable, require_layout, require_no_geo_key};
use crate::published_names::require_table_names;
use crate::resolve::{Known, Shape, resolved, shape};
use crate::rewrite::{Name, Names, Rewriter, Rewritten};
use crate::schema::{Field, Type, parse_fields, parse_value};
use arrow_array::{Array, StructArray};
use arrow_schema::{ArrowError, DataType, Field as ArrowField};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels, parquet_to_arrow_schema_by_columns};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A file whose columns were held to a schema; no row was read yet.
pub struct ParquetFile {
    data: Bytes,
    footer: ArrowReaderMetadata,
    known: Known,
    shape: Arc<Shape>,
    /// Columns of which nobody but a digest looks at the values of a batch.
    stored: HashSet<i32>,
    buckets: Value,
    batch_rows: usize,
    rows_max: Option<u64>,
    /// The name of each struct field in published files, by id.
    names: Names,
    footer_published: bool,
    /// Whether batches come only of a file whose statistics, indexes and filters hold.
    claims_checked: bool,
    /// Where the first part begins in which others read the file.
    parts_from: usize,
}

impl ParquetFile {
    /// `request` names the schema with its field ids, the ids of columns that the table once had, the buckets to tell;
    /// every column by name, where a file without ids may be read by names; the most rows that it may have; as `stored` the
    /// columns that may come in batches as they are stored; as `footer_published` whether consumers read this footer; as
    /// `names` those that fields have in published files; as `claims_checked` whether engines choose rows by what the file
    /// says of them, though only batches are asked for; and as `parts_from` where the first part of it begins.
    pub fn open(data: Bytes, request: &str) -> Result<ParquetFile> {
        let value = parse_value(request)?;
        let known = Known {
            wanted: parse_fields(&value["schema"])?,
            dropped: ids(&value["dropped"]),
            needed: ids(&value["needed"]),
            named: if value["named"].is_null() { None } else { Some(parse_fields(&value["named"])?) },
        };
        // The Arrow schema that a writer may have put into the file is its word, not the file's: it is not looked at.
        check_footer(&data)?;
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let footer = ArrowReaderMetadata::load(&data, options).map_err(unreadable)?;
        let shape = Arc::new(shape(&known, footer.schema().fields())?);
        buckets(&known.wanted, &value["buckets"])?;
        let batch_rows = batch_rows(&data, footer.metadata())?;
        let (stored, buckets, rows_max) = (ids(&value["stored"]), value["buckets"].clone(), value["rows_max"].as_u64());
        let footer_published = value["footer_published"].as_bool().unwrap_or(true);
        let claims_checked = value["claims_checked"].as_bool().unwrap_or(false);
        let parts_from = value["parts_from"].as_u64().unwrap_or(0).try_into().unwrap_or(usize::MAX);
        let names = names(&value["names"]);
        Ok(ParquetFile {
            data,
            footer,
            known,
            shape,
            stored,
            buckets,
            batch_rows,
            rows_max,
            footer_published,
            claims_checked,
            parts_from,
            names,
        })
    }

    /// The rows in the columns that are asked for and that the file has; nothing else of it is decoded.
    pub fn batches(&self) -> Result<Batches> {
        require_in_parts(&self.data, self.footer.metadata(), self.parts_from)?;
        if self.claims_checked {
            self.require_claims()?;
        }
        let columns = self.footer.parquet_schema();
        let read = leaves_read(&self.shape, self.footer.schema().fields());
        if read.len() != columns.num_columns() {
            let expected = format!("{} columns", columns.num_columns());
            return Err(Fault::new("parquet_invalid", "", expected, read.len().to_string()));
        }
        let mask = ProjectionMask::leaves(columns, (0..read.len()).filter(|at| read[*at]));
        let narrow = parquet_to_arrow_schema_by_columns(columns, mask.clone(), None).map_err(unreadable)?;
        let shape = Arc::new(present(shape(&self.known, narrow.fields())?));
        let groups = if self.stored.is_empty() { 0 } else { self.footer.metadata().num_row_groups() };
        let stored = (0..groups).map(|group| self.stored_in(group, &read)).collect();
        self.reading(Projected { mask, fields: narrow.fields().clone(), shape }, stored)
    }

    /// How the batches of a row group come.
    fn stored_in(&self, group: usize, read: &[bool]) -> Stored {
        let is_not_stored = |field: &Field| !field.slot.id.is_some_and(|id| self.stored.contains(&id));
        let types = as_stored(
            (&self.known.wanted, &self.shape, self.footer.schema().fields()),
            self.footer.parquet_schema(),
            |leaf| by_small_dictionary(&self.data, self.footer.metadata().row_group(group).column(leaf)),
            |field, of_file| is_not_stored(field) || is_promoted(field, of_file),
        );
        let looked_at = |field: &Field, of_file: &ArrowField| is_not_stored(field) || !is_of(field, of_file);
        let mut indexed = self.indexed(group, self.batch_rows, looked_at);
        indexed.iter_mut().for_each(|each| each.at = place(self.footer.schema().fields(), read, each.at));
        Stored { types, indexed }
    }

    /// The rows in every column of the schema, as `read` gives them to a digester.
    pub fn whole(&self) -> Result<Batches> {
        let (fields, shape) = (self.footer.schema().fields().clone(), self.shape.clone());
        self.reading(Projected { mask: ProjectionMask::all(), fields, shape }, Vec::new())
    }

    fn reading(&self, projected: Projected, stored: Vec<Stored>) -> Result<Batches> {
        Batches::new(self.data.clone(), self.footer.clone(), self.batch_rows, projected, stored)
    }

    /// Every row once, and every column: into the digester, and into the facts. What is read so is published, so it
    /// must be what any other reader sees.
    pub fn read(&self, digester: &mut Digester) -> Result<Value> {
        let (rows, leaves, buckets) = self.read_into(digester, None)?;
        Ok(self.facts(rows, &leaves, &buckets))
    }

    /// Reads the same, and tells how to make the file to publish: the staged page bodies under metadata of our own. The
    /// facts say as `published` what its manifest entry has to say of that file.
    pub fn read_and_rewrite(&self, digester: &mut Digester) -> Result<(Value, Rewritten)> {
        let root = self.footer.parquet_schema().root_schema();
        let metadata = self.footer.metadata();
        let mut rewriter = Rewriter::new(&self.data, metadata, &self.known.wanted, &self.shape, root, &self.names)?;
        let (rows, leaves, buckets) = self.read_into(digester, Some(&mut rewriter))?;
        let made = rewriter.finish()?;
        let mut facts = self.facts(rows, &leaves, &buckets);
        facts["published"] = json!({
            "size": made.size,
            "split_offsets": made.split_offsets,
            "column_sizes": pairs(&made.column_sizes),
        });
        Ok((facts, made))
    }

    fn read_into(
        &self,
        digester: &mut Digester,
        mut rewriter: Option<&mut Rewriter<'_>>,
    ) -> Result<(u64, Vec<Leaf>, Vec<Bucket>)> {
        require_types("", &self.known.wanted, &self.shape, self.footer.schema().fields())?;
        require_one_reading(&self.data, self.footer.metadata())?;
        let root = self.footer.parquet_schema().root_schema();
        require_ids(root, self.footer.schema().fields())?;
        require_variants("", &self.known.wanted, &self.shape, root)?;
        require_most(self.footer.metadata(), self.rows_max)?;
        require_elements(self.footer.metadata())?;
        let claims = Claims::of(&self.data, self.footer.metadata())?;
        if self.footer_published {
            self.require_published_footer(&claims)?;
        }
        let mut leaves = leaves(&self.known.wanted, &self.shape, self.footer.schema().fields());
        let mut buckets = buckets(&self.known.wanted, &self.buckets)?;
        let (mut rows, mut texts) = (0, 0_u64);
        for group in 0..self.footer.metadata().num_row_groups() {
            let watched = claims.watch(group)?;
            let mut sorted = claims.sorting(group)?;
            let looked_at = |field: &Field, of_file: &ArrowField| {
                sorted.is_by(of_file.name()) || buckets.iter().any(|each| each.is_of(&field.name))
            };
            let watching = self.watching(group, &watched, looked_at)?;
            let seen = self.decode(group, watching, |batch| {
                require_texts(self.footer.metadata(), texts.saturating_add(claims.texts(&watched)))?;
                sorted.add(&batch).map_err(|fault| fault.in_group(group))?;
                let batch = resolved(&self.shape, &batch)?;
                digester.update(&batch)?;
                // What no projection has is published all the same.
                digester.check_rest(&batch)?;
                leaves.iter_mut().for_each(|leaf| leaf.add(&batch));
                buckets.iter_mut().try_for_each(|bucket| bucket.add(&batch))
            })?;
            claims.judge(group, &watched)?;
            if let Some(rewriter) = &mut rewriter {
                rewriter.add_group(group, &watched)?;
            }
            leaves.iter_mut().try_for_each(|leaf| leaf.join(&watched))?;
            texts = texts.saturating_add(claims.texts(&watched));
            rows += seen;
        }
        require_rows(self.footer.metadata(), rows)?;
        Ok((rows, leaves, buckets))
    }

    /// Holds what the file says of its values to the values; no row is given to anybody.
    fn require_claims(&self) -> Result<()> {
        let metadata = self.footer.metadata();
        require_one_reading(&self.data, metadata)?;
        require_elements(metadata)?;
        let claims = Claims::of(&self.data, metadata)?;
        for group in 0..metadata.num_row_groups() {
            let watched = claims.watch(group)?;
            let watching = self.watching(group, &watched, |_, _| false)?;
            self.decode(group, watching, |_| Ok(()))?;
            claims.judge(group, &watched)?;
        }
        Ok(())
    }

    /// Refuses what an engine reads differently in a footer that consumers read as the producer wrote it.
    fn require_published_footer(&self, claims: &Claims<'_>) -> Result<()> {
        let metadata = self.footer.metadata();
        let root = self.footer.parquet_schema().root_schema();
        require_table_names(&self.known.wanted, root)?;
        require_plain_annotations(&self.known.wanted, root)?;
        require_layout(&self.data, metadata)?;
        require_filterable(&self.known.wanted, metadata)?;
        require_no_geo_key(metadata)?;
        require_arrow_schema(metadata, self.footer.schema().fields())?;
        claims.require_widths()?;
        claims.require_counts()?;
        claims.require_first_pages_with_values()?;
        claims.require_all_or_no_ends()
    }

    /// The rows of one row group, whose pages are measured on the way: a decoder, and the columns that it does not decode.
    fn watching(
        &self,
        group: usize,
        chunks: &[Watch],
        looked_at: impl Fn(&Field, &ArrowField) -> bool,
    ) -> Result<(ParquetRecordBatchReader, Vec<Reading>)> {
        let (columns, metadata) = (self.footer.parquet_schema(), self.footer.metadata());
        let schemas = (&self.known.wanted[..], &*self.shape, self.footer.schema().fields());
        let by_dictionary = |leaf| by_small_dictionary(&self.data, metadata.row_group(group).column(leaf));
        let fields = as_stored(schemas, columns, by_dictionary, &looked_at);
        let indexed = self.indexed(group, self.batch_rows, looked_at);
        let mask = others(columns, &indexed);
        let levels = parquet_to_arrow_field_levels(columns, mask, Some(&fields)).map_err(unreadable)?;
        let pages = Watched { data: &self.data, metadata, group, chunks };
        let decoder = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &pages, self.batch_rows, None);
        let readings = indexed.into_iter().map(|each| {
            let (leaf, path) = (each.leaf, columns.column(each.leaf).path().string());
            Ok(Reading::claimed(each, path, pages.pages(leaf)?, &chunks[leaf]))
        });
        Ok((decoder.map_err(unreadable)?, readings.collect::<std::result::Result<_, _>>().map_err(unreadable)?))
    }

    /// Gives the batches of a row group, each checked against the footer's counts, and tells how many rows they have.
    fn decode(
        &self,
        group: usize,
        (decoder, mut readings): (ParquetRecordBatchReader, Vec<Reading>),
        mut each: impl FnMut(StructArray) -> Result<()>,
    ) -> Result<u64> {
        let metadata = self.footer.metadata();
        let mut seen = 0;
        for batch in decoder {
            let batch = batch.map_err(pages_unreadable)?;
            let batch =
                woven(self.footer.schema().fields(), batch, &mut readings).map_err(|fault| fault.in_group(group))?;
            seen += batch.len() as u64;
            require_no_more(metadata, group, seen)?;
            each(batch)?;
        }
        require_group_rows(metadata, group, seen)?;
        readings.into_iter().try_for_each(Reading::finish).map_err(|fault| fault.in_group(group))?;
        Ok(seen)
    }

    fn indexed(
        &self,
        group: usize,
        batch_rows: usize,
        looked_at: impl Fn(&Field, &ArrowField) -> bool,
    ) -> Vec<Indexed> {
        let schemas = (&self.known.wanted[..], &*self.shape, self.footer.schema().fields());
        let group = self.footer.metadata().row_group(group);
        indexed(schemas, (&self.data, self.footer.parquet_schema(), group), batch_rows, looked_at)
    }

    #[cfg(test)]
    pub fn each_indexed(&self, batch_rows: usize, looked_at: impl Fn(&Field) -> bool) -> Vec<Vec<Indexed>> {
        let groups = 0..self.footer.metadata().num_row_groups();
        groups.map(|group| self.indexed(group, batch_rows, |field, _| looked_at(field))).collect()
    }

    fn facts(&self, rows: u64, leaves: &[Leaf], buckets: &[Bucket]) -> Value {
        let metadata = self.footer.metadata();
        json!({
            "rows": rows,
            "row_groups": metadata.num_row_groups(),
            "split_offsets": split_offsets(metadata),
            "column_sizes": pairs(&column_sizes(metadata)),
            "leaves": leaves.iter().map(Leaf::to_json).collect::<Vec<_>>(),
            "buckets": buckets.iter().map(Bucket::to_json).collect::<Vec<_>>(),
        })
    }
}

fn pairs(sizes: &BTreeMap<i32, i64>) -> Vec<Value> {
    sizes.iter().map(|(id, size)| json!([id, size])).collect()
}

/// Refuses a file that says itself that it has more rows than somebody knows of: a few bytes can stand for any number.
fn require_most(footer: &ParquetMetaData, most: Option<u64>) -> Result<()> {
    let groups = footer.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
    let rows = groups.fold(0, u64::saturating_add);
    match most {
        Some(most) if rows > most => {
            let (expected, got) = (format!("{rows} rows, as the file says"), format!("{most} in the manifest"));
            Err(Fault::new("record_count_lies", "", expected, got))
        }
        _ => Ok(()),
    }
}

/// Rows beyond those that the footer tells are not waited for.
pub(crate) fn require_no_more(footer: &ParquetMetaData, group: usize, seen: u64) -> Result<()> {
    let claimed = u64::try_from(footer.row_group(group).num_rows()).unwrap_or(0);
    if seen > claimed { require_group_rows(footer, group, seen) } else { Ok(()) }
}

pub(crate) fn require_group_rows(footer: &ParquetMetaData, group: usize, seen: u64) -> Result<()> {
    let claimed = footer.row_group(group).num_rows();
    if u64::try_from(claimed) == Ok(seen) {
        return Ok(());
    }
    let (expected, got) = (format!("{seen} rows, as the pages hold"), format!("{claimed} in a row group's footer"));
    Err(Fault::new("parquet_rows_lie", "", expected, got).in_group(group))
}

/// Footer and pages must agree: readers that count by the footer and readers that scan see the same.
pub(crate) fn require_rows(footer: &ParquetMetaData, seen: u64) -> Result<()> {
    let groups: i64 = footer.row_groups().iter().map(|group| group.num_rows()).sum();
    let claimed = footer.file_metadata().num_rows();
    if u64::try_from(claimed) != Ok(seen) || groups != claimed {
        let expected = format!("{seen} rows, as the pages hold");
        return Err(Fault::new("parquet_rows_lie", "", expected, format!("{claimed} and {groups} in the footer")));
    }
    Ok(())
}

/// Whether a decimal has fewer digits than the schema says: whoever widens it looks at every value.
fn is_promoted(field: &Field, of_file: &ArrowField) -> bool {
    match (&field.slot.kind, of_file.data_type()) {
        (Type::Decimal { precision, .. }, DataType::Decimal128(given, _)) => given != precision,
        _ => false,
    }
}

/// Pairs of an id and a name, in the table's order.
fn names(listed: &Value) -> Names {
    let pairs = listed.as_array().into_iter().flatten().enumerate();
    let read = pairs.filter_map(|(position, pair)| {
        let id = i32::try_from(pair[0].as_i64()?).ok()?;
        Some((id, Name { position, text: pair[1].as_str()?.to_owned() }))
    });
    read.collect()
}

fn ids(listed: &Value) -> HashSet<i32> {
    listed.as_array().into_iter().flatten().filter_map(|id| i32::try_from(id.as_i64()?).ok()).collect()
}

fn column_sizes(metadata: &ParquetMetaData) -> BTreeMap<i32, i64> {
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

/// Where each row group begins: at its first column's dictionary, where it has one; in order.
fn split_offsets(metadata: &ParquetMetaData) -> Vec<i64> {
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

pub(crate) fn unreadable(error: ParquetError) -> Fault {
    Fault::new("parquet_unreadable", "", "a Parquet file", error.to_string())
}

pub(crate) fn pages_unreadable(error: ArrowError) -> Fault {
    Fault::new("parquet_unreadable", "", "readable pages", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Plan;
    use crate::sha256::Path;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
    use arrow_schema::{DataType, Field as ArrowField, Schema};
    use parquet::arrow::ArrowWriter;
    use std::collections::HashMap;

    const SCHEMA: &str = r#"{"type":"struct","fields":[{"id":1,"name":"id","required":true,"type":"long"},
        {"id":2,"name":"town","required":false,"type":"string"}]}"#;

    fn file(columns: Vec<(&str, i32, ArrayRef)>) -> Bytes {
        let fields: Vec<ArrowField> = columns
            .iter()
            .map(|(name, id, array)| {
                let metadata = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
                ArrowField::new(*name, array.data_type().clone(), true).with_metadata(metadata)
            })
            .collect();
        let batch = RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns.into_iter().map(|(_, _, array)| array).collect(),
        )
        .unwrap();
        let mut data = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut data, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        data.into()
    }

    fn ids() -> ArrayRef {
        Arc::new(Int64Array::from(vec![3, 1, 2]))
    }

    fn read(data: Bytes, more: &str) -> Result<Value> {
        let plan = format!(
            r#"{{"schema":{SCHEMA},"mode":"stored","construction":"hmac-sha256","projections":[["id","town"]]}}"#
        );
        let mut digester = Digester::new(Plan::parse(&plan)?, &[[7; 32]], Path::available()[0]);
        ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}{more}}}"#))?.read(&mut digester)
    }

    #[test]
    fn facts_are_those_of_the_rows() {
        let towns: ArrayRef = Arc::new(StringArray::from(vec![Some("b"), None, Some("a")]));
        let facts = read(file(vec![("id", 1, ids()), ("town", 2, towns)]), r#","buckets":[[1,1],[2,8]]"#).unwrap();
        assert_eq!(facts["rows"], 3);
        assert_eq!(facts["split_offsets"], json!([4]));
        assert_eq!(facts["leaves"][0]["lower"], "0100000000000000");
        assert_eq!(facts["leaves"][0]["upper"], "0300000000000000");
        assert_eq!((&facts["leaves"][1]["nulls"], &facts["leaves"][1]["upper"]), (&json!(1), &json!("62")));
        assert_eq!(facts["buckets"][0], json!([0]));
        assert_eq!(facts["buckets"][1].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_column_that_is_not_there_is_null_and_not_present() {
        let facts = read(file(vec![("id", 1, ids())]), r#","buckets":[[2,8]]"#).unwrap();
        let town = &facts["leaves"][1];
        assert_eq!((&town["present"], &town["nulls"], &town["lower"]), (&json!(false), &json!(3), &Value::Null));
        assert_eq!(facts["buckets"][0], json!([null]));
    }

    #[test]
    fn a_column_that_is_needed_must_be_there() {
        assert_eq!(read(file(vec![("id", 1, ids())]), r#","needed":[2]"#).unwrap_err().code, "field_default_missing");
    }

    #[test]
    fn ids_beside_the_schema_must_be_those_of_dropped_columns() {
        let data = file(vec![("id", 1, ids()), ("old", 9, ids())]);
        assert_eq!(read(data.clone(), "").unwrap_err().code, "field_id_unknown");
        assert!(read(data, r#","dropped":[9]"#).is_ok());
    }

    #[test]
    fn a_column_of_icebergs_own_is_read_over_where_it_is_listed_and_refused_where_it_is_not() {
        let data = file(vec![("id", 1, ids()), ("_row_id", 2_147_483_540, ids())]);
        assert_eq!(read(data.clone(), "").unwrap_err().code, "field_id_reserved");
        assert_eq!(read(data.clone(), r#","dropped":[2147483539]"#).unwrap_err().code, "field_id_reserved");
        assert!(read(data, r#","dropped":[2147483540]"#).is_ok());
        let twice = file(vec![("id", 1, ids()), ("a", 2_147_483_540, ids()), ("b", 2_147_483_540, ids())]);
        assert_eq!(read(twice, r#","dropped":[2147483540]"#).unwrap_err().code, "field_id_twice");
    }

    fn first(data: Bytes, request: Value) -> Result<StructArray> {
        ParquetFile::open(data, &request.to_string())?.batches()?.next().unwrap()
    }

    fn columns(names: &[(&str, i32, &str)]) -> Value {
        let listed: Vec<Value> = names
            .iter()
            .map(|(name, id, kind)| json!({"id": id, "name": name, "required": false, "type": kind}))
            .collect();
        json!({"type": "struct", "fields": listed})
    }

    #[test]
    fn a_column_that_is_not_asked_for_is_not_decoded_unless_the_file_is_digested() {
        let towns: ArrayRef = Arc::new(StringArray::from(vec!["secret town"; 3]));
        let plain = file(vec![("old", 9, towns), ("id", 1, ids())]);
        let mut data = plain.to_vec();
        let at = data.windows(6).position(|each| each == b"secret").unwrap();
        data[at - 4] = 0xff; // the length of a value: it leaves its page
        let request = json!({"schema": columns(&[("id", 1, "long")]), "dropped": [9]});
        assert_eq!(first(data.clone().into(), request).unwrap().column(0).as_ref(), ids().as_ref());
        assert_eq!(read(data.into(), r#","dropped":[9]"#).unwrap_err().code, "parquet_unreadable");
    }

    #[test]
    fn what_the_file_lacks_is_left_out_and_a_column_of_nulls_is_not() {
        let nulls: ArrayRef = Arc::new(arrow_array::NullArray::new(3));
        let data = file(vec![("id", 1, ids()), ("none", 2, nulls)]);
        let request = json!({"schema": columns(&[("id", 1, "long"), ("gone", 3, "int"), ("none", 2, "int")])});
        let batch = first(data, request).unwrap();
        assert_eq!(batch.column_names(), ["id", "none"]);
        assert_eq!(batch.column(1).data_type(), &DataType::Null);
    }

    #[test]
    fn rows_are_those_of_the_pages_where_no_column_is_asked_for() {
        let batch = first(file(vec![("id", 1, ids())]), json!({"schema": columns(&[]), "dropped": [1]})).unwrap();
        assert_eq!((arrow_array::Array::len(&batch), batch.num_columns()), (3, 0));
    }

    #[test]
    fn a_column_of_another_type_is_refused() {
        let data = file(vec![("id", 1, ids()), ("town", 2, ids())]);
        assert_eq!(read(data, "").unwrap_err().code, "cast_refused");
    }

    #[test]
    fn a_batch_of_long_values_has_few_rows() {
        let long = "x".repeat(10_000_000);
        let towns: ArrayRef = Arc::new(StringArray::from(vec![&long[..]; 3]));
        let data = file(vec![("id", 1, ids()), ("town", 2, towns)]);
        let opened = ParquetFile::open(data, &format!(r#"{{"schema":{SCHEMA}}}"#)).unwrap();
        assert_eq!(opened.batch_rows, 6);
        assert_eq!(opened.footer.schema().field(0).data_type(), &DataType::Int64);
    }
}
