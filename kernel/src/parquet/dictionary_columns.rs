//! Columns of numbers whose pages all use a small dictionary. Their rows stay dictionary indices, so that each value is
//! encoded only once.

use crate::canonical::schema::{Field, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::count_leaves;
use crate::parquet::claims::pages::{MeasuredPages, SharedMeasure};
use crate::parquet::claims::row_indices::RowIndices;
use crate::parquet::decode_types::narrow_decimal;
use crate::parquet::format::pages::most_values_in_coded_page;
use crate::parquet::resolve::Shape;
use crate::parquet::source_indices::SourceIndices;
use arrow_array::{Array, ArrayRef, DictionaryArray, RecordBatch, StructArray, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Fields};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::basic::Type as Physical;
use parquet::column::page::PageReader;
use parquet::file::metadata::RowGroupMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use std::sync::Arc;

/// A `DictionaryReader` reads whole pages, while a decoder reads one batch at a time. So rows that were read are kept
/// until they are taken. All columns together keep at most this many rows.
const ROWS_KEPT_MAX: u64 = 16_777_216;

/// A column of the file that is read by its dictionary, that is, as indices of the dictionary.
#[derive(Debug, PartialEq)]
pub struct DictionaryColumn {
    /// The column's position among the columns of the file, or among those that are read (`StoredGroup`).
    pub at: usize,
    /// The column's position among the leaves.
    pub leaf: usize,
    /// The type of the dictionary's values.
    pub kind: DataType,
}

/// Finds the columns of a row group that may be read by their dictionary. `shape` says where the table's fields
/// (`wanted`) are in the `file`. `is_inspected` says whether anything but a digest reads a column's values; such a
/// column is not among the result.
pub fn find_dictionary_columns(
    (wanted, shape, file): (&[Field], &Shape, &Fields),
    (data, columns, group): (&Bytes, &SchemaDescriptor, &RowGroupMetaData),
    batch_rows: usize,
    is_inspected: impl Fn(&Field, &ArrowField) -> bool,
) -> Vec<DictionaryColumn> {
    let (mut found, mut kept) = (Vec::new(), 0);
    let Shape::Struct(children) = shape else { return found };
    for (field, child) in wanted.iter().zip(children) {
        let Some((at, Shape::AsIs)) = child.source else { continue };
        let leaf: usize = file[..at].iter().map(|field| count_leaves(field)).sum();
        if leaf >= columns.num_columns() || is_inspected(field, &file[at]) {
            continue;
        }
        let column = columns.column(leaf);
        let Some(kind) = choose_value_type(field, &file[at], &column) else { continue };
        let Some(width) = kind.primitive_width() else { continue };
        // A dictionary is encoded as a whole only for a batch with at least as many rows as the dictionary has values.
        let Some(largest) = most_values_in_coded_page(data, group.column(leaf), batch_rows.saturating_mul(width))
        else {
            continue;
        };
        kept += largest + batch_rows as u64;
        if kept > ROWS_KEPT_MAX {
            break;
        }
        found.push(DictionaryColumn { at, leaf, kind });
    }
    found
}

/// The type of the values as they are stored in the dictionary. Returns `None` for a column inside a struct or list,
/// and for types that have to be decoded.
fn choose_value_type(field: &Field, of_file: &ArrowField, column: &ColumnDescriptor) -> Option<DataType> {
    if column.max_rep_level() > 0 || column.max_def_level() > 1 || column.path().parts().len() != 1 {
        return None;
    }
    match (column.physical_type(), of_file.data_type()) {
        (Physical::INT32, DataType::Int32 | DataType::Date32)
        | (Physical::INT64, DataType::Int64 | DataType::Timestamp(_, _) | DataType::Time64(_))
        | (Physical::FLOAT, DataType::Float32)
        | (Physical::DOUBLE, DataType::Float64) => Some(of_file.data_type().clone()),
        (physical, _) => narrow_decimal(field, of_file, physical),
    }
}

/// The leaves that the decoder reads: all but those that are read by their dictionary.
pub fn mask_other_leaves(columns: &SchemaDescriptor, by_dictionary: &[DictionaryColumn]) -> ProjectionMask {
    let is_other = |leaf: &usize| by_dictionary.iter().all(|column| column.leaf != *leaf);
    ProjectionMask::leaves(columns, (0..columns.num_columns()).filter(is_other))
}

/// Whether a column of the file has exactly the type of the schema. Other types are cast, or refused, by the caller.
pub fn has_table_type(field: &Field, of_file: &ArrowField) -> bool {
    use arrow_schema::TimeUnit::Microsecond;
    match (&field.slot.kind, of_file.data_type()) {
        (Type::Decimal { precision, scale, .. }, DataType::Decimal128(given_precision, given_scale)) => {
            given_precision == precision && i32::from(*given_scale) == i32::from(*scale)
        }
        (Type::Int, DataType::Int32)
        | (Type::Long, DataType::Int64)
        | (Type::Float, DataType::Float32)
        | (Type::Double, DataType::Float64)
        | (Type::Date, DataType::Date32)
        | (Type::Time, DataType::Time64(Microsecond))
        | (Type::Timestamp, DataType::Timestamp(Microsecond, None))
        | (Type::TimestampTz, DataType::Timestamp(Microsecond, Some(_))) => true,
        _ => false,
    }
}

/// Reads a column as indices of its dictionary.
pub struct DictionaryReader {
    at: usize,
    kind: DataType,
    path: String,
    source: Source,
    /// The values of the dictionary, once they were read.
    values: Option<ArrayRef>,
}

/// The pages that the indices come from: those of a staged file, which are measured, or those of a source's file.
enum Source {
    Measured(MeasuredPages, SharedMeasure),
    Unmeasured(SourceIndices),
}

impl DictionaryReader {
    /// A reader for a column whose pages are measured.
    pub fn measured(
        column: DictionaryColumn,
        path: String,
        pages: MeasuredPages,
        measure: &SharedMeasure,
    ) -> DictionaryReader {
        // From now on the measure of each page records its rows' indices.
        measure.with(|chunk| chunk.row_indices = Some(Default::default()));
        let source = Source::Measured(pages, measure.clone());
        DictionaryReader { at: column.at, kind: column.kind, path, source, values: None }
    }

    /// A reader for a column of a source's file.
    pub fn unmeasured(column: &DictionaryColumn, path: String, pages: SourceIndices) -> DictionaryReader {
        let (kind, source) = (column.kind.clone(), Source::Unmeasured(pages));
        DictionaryReader { at: column.at, kind, path, source, values: None }
    }

    /// Reads the next rows. An error in a page is returned at once, even if only later rows are in the page.
    fn next(&mut self, rows: usize) -> Result<ArrayRef> {
        while self.rows_kept() < rows {
            if !self.next_page()? {
                let expected = format!("{rows} rows, as other columns have");
                return Err(Fault::new("parquet_rows_lie", &self.path, expected, self.rows_kept().to_string()));
            }
        }
        let keys = match &mut self.source {
            Source::Measured(_, measure) => {
                measure.with(|chunk| chunk.row_indices.as_mut().map(|kept| kept.take(rows)))
            }
            Source::Unmeasured(pages) => Some(pages.rows.take(rows)),
        };
        let values = match &self.values {
            Some(values) => values.clone(),
            None => self.values.insert(self.read_values()?).clone(),
        };
        let keys = keys.ok_or_else(|| self.unreadable("no indices"))?;
        Ok(Arc::new(DictionaryArray::try_new(keys, values).map_err(|error| self.unreadable(error))?))
    }

    /// The number of rows that were read and not yet taken.
    fn rows_kept(&self) -> usize {
        match &self.source {
            Source::Measured(_, measure) => measure.with(|chunk| chunk.row_indices.as_ref().map_or(0, RowIndices::len)),
            Source::Unmeasured(pages) => pages.rows.len(),
        }
    }

    /// Reads the next page, and returns whether there was one.
    fn next_page(&mut self) -> Result<bool> {
        let found = match &mut self.source {
            Source::Measured(pages, measure) => match pages.get_next_page() {
                // Measuring the page does not fail; it leaves its fault in the measure.
                Ok(page) => return measure.with(|chunk| chunk.fault.take().map_or(Ok(page.is_some()), Err)),
                Err(error) => Err(error.to_string()),
            },
            Source::Unmeasured(pages) => pages.next_page().ok_or_else(|| "different ones".to_owned()),
        };
        found.map_err(|got| self.unreadable(got))
    }

    fn read_values(&self) -> Result<ArrayRef> {
        let (count, values) = match &self.source {
            Source::Measured(_, measure) => measure.with(|chunk| {
                let dictionary = chunk.dictionary.as_ref();
                dictionary.map_or((0, Buffer::default()), |values| (values.len(), Buffer::from(values.bytes())))
            }),
            Source::Unmeasured(pages) => (pages.value_count(), Buffer::from(pages.dictionary())),
        };
        let built = ArrayData::builder(self.kind.clone()).len(count).add_buffer(values).build();
        Ok(make_array(built.map_err(|error: ArrowError| self.unreadable(error))?))
    }

    /// Reads the pages after the last row, because claims are compared with all pages.
    pub fn finish(mut self) -> Result<()> {
        while self.next_page()? {}
        Ok(())
    }

    /// Refuses rows after those that were taken.
    pub fn require_end(&mut self) -> Result<()> {
        while self.rows_kept() == 0 {
            if !self.next_page()? {
                return Ok(());
            }
        }
        Err(Fault::new("parquet_rows_lie", &self.path, "as many rows as other columns have", "more"))
    }

    fn unreadable(&self, got: impl ToString) -> Fault {
        Fault::new("parquet_unreadable", &self.path, "readable pages", got.to_string())
    }
}

/// Inserts the next rows of the dictionary columns into a batch of the decoder, in the order of the file.
pub fn merge_columns(file: &Fields, batch: RecordBatch, readers: &mut [DictionaryReader]) -> Result<StructArray> {
    if readers.is_empty() {
        return Ok(batch.into());
    }
    let (rows, mut rest) = (batch.num_rows(), batch.columns().iter());
    let mut fields = Vec::with_capacity(file.len());
    let mut arrays = Vec::with_capacity(file.len());
    for (at, field) in file.iter().enumerate() {
        let array = match readers.iter_mut().find(|reader| reader.at == at) {
            Some(reader) => Some(reader.next(rows)?),
            None => rest.next().cloned(),
        };
        let array = array.ok_or_else(|| invalid("fewer"))?;
        fields.push(field.as_ref().clone().with_data_type(array.data_type().clone()));
        arrays.push(array);
    }
    StructArray::try_new_with_length(fields.into(), arrays, None, rows).map_err(|error| invalid(&error.to_string()))
}

fn invalid(got: &str) -> Fault {
    Fault::new("parquet_invalid", "", "the columns of the file", got)
}
