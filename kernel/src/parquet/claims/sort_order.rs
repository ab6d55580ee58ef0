//! Checks that the rows of a row group are sorted as the row group declares.

use crate::error::Result;
use crate::parquet::claims::compare::{ClaimPlace, UNVERIFIED, compare_values};
use crate::parquet::claims::metadata::Sorting;
use crate::parquet::ordered_value::OrderedValue;
use crate::parquet::scalars::{find_column, read_numbers};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::DataType;
use parquet::schema::types::SchemaDescriptor;
use std::cmp::Ordering;
use std::collections::HashSet;

pub const CODE: &str = "parquet_sorting_lies";

/// The columns by which a row group declares to be sorted, and the last row so far.
pub struct SortOrder {
    by: Vec<SortColumn>,
    /// The values of the last row in these columns.
    last: Option<Vec<Option<OrderedValue>>>,
}

struct SortColumn {
    /// The names on the path to the column.
    names: Vec<String>,
    descending: bool,
    nulls_first: bool,
}

impl SortOrder {
    /// Refuses unknown and repeated columns, and columns inside lists and maps.
    pub fn new(declared: &[Sorting], schema: &SchemaDescriptor) -> Result<SortOrder> {
        let place = ClaimPlace { code: CODE, column: "", page: None };
        let (mut by, mut seen) = (Vec::new(), HashSet::new());
        for sorting in declared {
            let at = usize::try_from(sorting.column).ok().filter(|at| *at < schema.num_columns());
            let Some(column) = at.map(|at| schema.column(at)) else {
                return Err(place.fault("sorting_columns", "a column of the file", sorting.column));
            };
            if column.max_rep_level() > 0 {
                let place = ClaimPlace { code: UNVERIFIED, column: &column.path().string(), page: None };
                return Err(place.fault("sorting_columns", "columns outside lists and maps", "one inside"));
            }
            if !seen.insert(sorting.column) {
                let place = ClaimPlace { column: &column.path().string(), ..place };
                return Err(place.fault("sorting_columns", "each column once", "one twice"));
            }
            let names = column.path().parts().to_vec();
            by.push(SortColumn { names, descending: sorting.descending, nulls_first: sorting.nulls_first });
        }
        Ok(SortOrder { by, last: None })
    }

    /// Whether the declared order uses this column of the file, or a column inside it.
    pub fn includes(&self, name: &str) -> bool {
        self.by.iter().any(|column| column.names.first().is_some_and(|first| first == name))
    }

    /// Adds the next rows, as the file has them. Refuses rows out of order.
    pub fn add(&mut self, batch: &StructArray) -> Result<()> {
        if self.by.is_empty() {
            return Ok(());
        }
        let columns: Vec<_> = self.by.iter().map(|column| find_column(batch, &column.names)).collect();
        for row in 0..batch.len() {
            let mut next = Vec::with_capacity(columns.len());
            for (column, by) in columns.iter().zip(&self.by) {
                let place = ClaimPlace { code: UNVERIFIED, column: &by.names.join("."), page: None };
                let unordered =
                    || place.fault("sorting_columns", "columns of types that have an order", "a different one");
                let (array, nulls) = column.as_ref().ok_or_else(unordered)?;
                next.push(read_value(array, nulls.as_ref(), row).ok_or_else(unordered)?);
            }
            if let Some(last) = &self.last
                && self.compare_rows(last, &next).is_gt()
            {
                let column = self.by[0].names.join(".");
                let place = ClaimPlace { code: CODE, column: &column, page: None };
                return Err(place.fault("sorting_columns", "rows in the declared order", "different ones"));
            }
            self.last = Some(next);
        }
        Ok(())
    }

    /// Compares two rows by the declared columns.
    fn compare_rows(&self, a: &[Option<OrderedValue>], b: &[Option<OrderedValue>]) -> Ordering {
        let pairs = a.iter().zip(b).zip(&self.by).map(|((a, b), column)| match (a, b) {
            (Some(a), Some(b)) if column.descending => compare_values(b, a),
            (Some(a), Some(b)) => compare_values(a, b),
            (None, None) => Ordering::Equal,
            (None, Some(_)) if column.nulls_first => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) if column.nulls_first => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
        });
        pairs.fold(Ordering::Equal, Ordering::then)
    }
}

/// The value of a row; the inner `None` is null. The outer `None` means that values of this type have no order here.
fn read_value(array: &ArrayRef, nulls: Option<&NullBuffer>, row: usize) -> Option<Option<OrderedValue>> {
    if array.data_type() == &DataType::Null || nulls.is_some_and(|nulls| nulls.is_null(row)) {
        return Some(None);
    }
    Some(Some(match array.data_type() {
        DataType::Float32 => OrderedValue::Float(array.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => OrderedValue::Double(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => OrderedValue::Bytes(array.as_string::<i32>().value(row).into()),
        DataType::Binary => OrderedValue::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::FixedSizeBinary(_) => OrderedValue::Bytes(array.as_fixed_size_binary().value(row).to_vec()),
        DataType::Decimal128(_, _) => {
            OrderedValue::Decimal(i256::from_i128(array.as_primitive::<Decimal128Type>().value(row)))
        }
        DataType::Decimal256(_, _) => OrderedValue::Decimal(array.as_primitive::<Decimal256Type>().value(row)),
        _ => OrderedValue::Integer(read_numbers(array)?.value(row)),
    }))
}
