//! Binds Arrow arrays to target types: decides how the values of an array are read as values of the target type. Only
//! the casts in the closed list of spec/canonical.md section 7 are allowed.

use crate::canonical::column::*;
use crate::canonical::floats::Floats;
use crate::canonical::schema::{Field, Mode, Plan, Slot, Type};
use crate::canonical::text::*;
use crate::error::{Fault, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Field as ArrowField, TimeUnit};

const MICROS_A_DAY: i64 = 86_400_000_000;
const NANOS_A_DAY: i64 = 1000 * MICROS_A_DAY;

/// Binds the batch's columns to the plan's fields, and returns them in the order of the fields. A field that no
/// projection has is `None`. Refuses unexpected, duplicate and missing columns, and types that may not be cast.
pub fn bind_batch(plan: &Plan, batch: &StructArray) -> Result<Vec<Option<Column>>> {
    // By position in `plan.fields`: the position of the column in the batch.
    let mut batch_positions = vec![None; plan.fields.len()];
    for (batch_position, field) in batch.fields().iter().enumerate() {
        let name = field.name();
        let Some(position) = plan.fields.iter().position(|f| f.name == *name) else {
            return Err(Fault::new("column_unexpected", name, "columns of the target schema", name));
        };
        if batch_positions[position].replace(batch_position).is_some() {
            return Err(Fault::new("column_duplicate", name, "distinct columns", format!("{name:?} twice")));
        }
    }
    let mut columns: Vec<Option<Column>> = plan.fields.iter().map(|_| None).collect();
    for position in plan.projections.iter().flatten().copied() {
        let Field { name, slot } = &plan.fields[position];
        let at = batch_positions[position]
            .ok_or_else(|| Fault::new("column_missing", name, "every projected column", "a batch without it"))?;
        // Two projections may share a column.
        if columns[position].is_none() {
            let place = Place { path: name.clone(), null_code: null_code_of(slot), mode: plan.mode, depth: 1 };
            columns[position] = Some(bind(place, batch.column(at).clone(), &batch.fields()[at], &slot.kind)?);
        }
    }
    Ok(columns)
}

fn null_code_of(slot: &Slot) -> Option<&'static str> {
    slot.required.then_some("null_in_required")
}

/// The position of a column in the schema, and what its values must satisfy there.
#[derive(Clone)]
struct Place {
    /// The names of the column and of those around it, joined by points.
    path: String,
    /// The error code of a null, if nulls are refused.
    null_code: Option<&'static str>,
    mode: Mode,
    /// The nesting depth; a column of the table has depth 1.
    depth: usize,
}

impl Place {
    fn inside(&self, name: &str, null_code: Option<&'static str>) -> Place {
        Place { path: format!("{}.{name}", self.path), null_code, mode: self.mode, depth: self.depth + 1 }
    }

    fn unsupported(&self, got: impl Into<String>) -> Fault {
        Fault::new("arrow_type_unsupported", &self.path, "an Arrow type of spec/canonical.md section 7.1", got)
    }

    /// The error for a source type that may not be cast to the target type.
    fn refused(&self, source: &DataType, target: &Type) -> Fault {
        Fault::new(
            "cast_refused",
            &self.path,
            if self.null_code.is_some() { format!("{target}, required") } else { target.to_string() },
            source.to_string(),
        )
    }
}

/// Binds an array to the target type, and its child arrays to the types inside the target type. `field` is the Arrow
/// field of the array. It names the extension type of the array, if the array has one.
fn bind(place: Place, array: ArrayRef, field: &ArrowField, target: &Type) -> Result<Column> {
    let extension = field.metadata().get("ARROW:extension:name").map(String::as_str);
    let (len, nulls) = (array.len(), array.nulls().filter(|nulls| nulls.null_count() > 0).cloned());
    let values = match array.data_type() {
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let keys =
                to_integers(dictionary.keys()).ok_or_else(|| place.unsupported(array.data_type().to_string()))?;
            let values = Box::new(bind(place.clone(), dictionary.values().clone(), field, target)?);
            Values::Dictionary { keys, values }
        }
        DataType::RunEndEncoded(_, _) => bind_runs(&place, &array, field, target)?,
        DataType::Null if extension.is_some() => {
            return Err(place.unsupported(format!("extension {} over null", extension.unwrap_or_default())));
        }
        DataType::Null => match target {
            Type::Unknown => Values::Nulls,
            _ if place.null_code.is_none() => Values::Nulls,
            _ => return Err(place.refused(array.data_type(), target)),
        },
        source => {
            require_known_type(&place, source, extension)?;
            let bound = match target {
                Type::Struct(fields) if extension.is_none() => bind_struct(&place, &array, fields)?,
                Type::List(element) if extension.is_none() => bind_list(&place, &array, element)?,
                Type::Map(key, value) if extension.is_none() => bind_map(&place, &array, key, value)?,
                Type::Variant => match bind_variant(&place, &array)? {
                    None if extension.is_some() => return Err(place.unsupported(format!("a variant over {source}"))),
                    bound => bound,
                },
                Type::Uuid if matches!(extension, None | Some("arrow.uuid")) => bind_scalar(&place, &array, target),
                _ if extension.is_none() => bind_scalar(&place, &array, target),
                _ => None,
            };
            bound.ok_or_else(|| place.refused(source, target))?
        }
    };
    Ok(Column { path: place.path, null_code: place.null_code, nulls, len, values })
}

/// Refuses Arrow types that no target type accepts.
fn require_known_type(place: &Place, source: &DataType, extension: Option<&str>) -> Result<()> {
    let variant_storage = matches!(source, DataType::Struct(_));
    match (extension, source) {
        (Some("arrow.uuid"), DataType::FixedSizeBinary(16)) => return Ok(()),
        (Some("arrow.parquet.variant" | "parquet.variant"), _) if variant_storage => return Ok(()),
        (Some(name), _) => return Err(place.unsupported(format!("extension {name} over {source}"))),
        (None, _) => {}
    }
    let legal = match source {
        DataType::Interval(_) | DataType::Duration(_) | DataType::Union(_, _) => false,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => u8::try_from(*scale).is_ok_and(|scale| scale <= *precision),
        DataType::FixedSizeBinary(width) => *width >= 1,
        _ => true,
    };
    if legal { Ok(()) } else { Err(place.unsupported(source.to_string())) }
}

/// Converts an array of integers of any width. Returns `None` for other types.
fn to_integers(array: &dyn Array) -> Option<Integers> {
    Some(match array.data_type() {
        DataType::Int8 => Integers::I8(array.as_primitive::<Int8Type>().values().clone()),
        DataType::Int16 => Integers::I16(array.as_primitive::<Int16Type>().values().clone()),
        DataType::Int32 => Integers::I32(array.as_primitive::<Int32Type>().values().clone()),
        DataType::Int64 => Integers::I64(array.as_primitive::<Int64Type>().values().clone()),
        DataType::UInt8 => Integers::U8(array.as_primitive::<UInt8Type>().values().clone()),
        DataType::UInt16 => Integers::U16(array.as_primitive::<UInt16Type>().values().clone()),
        DataType::UInt32 => Integers::U32(array.as_primitive::<UInt32Type>().values().clone()),
        DataType::UInt64 => Integers::U64(array.as_primitive::<UInt64Type>().values().clone()),
        _ => return None,
    })
}

/// Binds a scalar column. Returns `None` if the source type may not be cast to the target.
fn bind_scalar(place: &Place, array: &ArrayRef, target: &Type) -> Option<Values> {
    use DataType as D;
    let source = array.data_type();
    Some(match (target, source) {
        (Type::Boolean, D::Boolean) => Values::Boolean(array.as_boolean().values().clone()),
        (Type::Int, D::Int8 | D::Int16 | D::Int32 | D::UInt8 | D::UInt16)
        | (Type::Long, D::Int8 | D::Int16 | D::Int32 | D::UInt8 | D::UInt16 | D::Int64 | D::UInt32) => {
            Values::Integers { tag: TAG_INTEGER, values: to_integers(array)?, conversion: Conversion::None }
        }
        (Type::Float, D::Float16 | D::Float32) | (Type::Double, D::Float16 | D::Float32 | D::Float64) => {
            bind_floats(array, *target == Type::Double)?
        }
        (Type::Decimal { .. }, _) => Values::Decimals(bind_decimals(array, target)?),
        (Type::Date | Type::Timestamp | Type::TimestampNs, D::Date32 | D::Date64) => bind_dates(array, target)?,
        (Type::Time | Type::TimeNs, D::Time32(_) | D::Time64(_)) => bind_times(array, target)?,
        (Type::Timestamp | Type::TimestampTz | Type::TimestampNs | Type::TimestampTzNs, D::Timestamp(unit, zone)) => {
            bind_timestamps(array, target, *unit, zone.is_some())?
        }
        (Type::String, D::Utf8 | D::LargeUtf8 | D::Utf8View) => {
            Values::Bytes { tag: TAG_STRING, values: bind_byte_strings(array)?, text: Some(place.mode) }
        }
        (Type::Uuid, D::FixedSizeBinary(16)) => {
            Values::Bytes { tag: TAG_UUID, values: bind_byte_strings(array)?, text: None }
        }
        (Type::Fixed(length), D::FixedSizeBinary(width)) if length == width => {
            Values::Bytes { tag: TAG_FIXED, values: bind_byte_strings(array)?, text: None }
        }
        (Type::Binary | Type::Geometry | Type::Geography, D::Binary | D::LargeBinary | D::BinaryView) => {
            let tag = match target {
                Type::Binary => TAG_BINARY,
                Type::Geometry => TAG_GEOMETRY,
                _ => TAG_GEOGRAPHY,
            };
            Values::Bytes { tag, values: bind_byte_strings(array)?, text: None }
        }
        _ => return None,
    })
}

fn bind_floats(array: &ArrayRef, double: bool) -> Option<Values> {
    let values = match array.data_type() {
        DataType::Float16 => {
            let bits = array.as_primitive::<Float16Type>().values().inner().clone().into();
            if double { Floats::F16To64(bits) } else { Floats::F16To32(bits) }
        }
        DataType::Float32 => {
            let bits = array.as_primitive::<Float32Type>().values().inner().clone().into();
            if double { Floats::F32To64(bits) } else { Floats::F32(bits) }
        }
        DataType::Float64 => Floats::F64(array.as_primitive::<Float64Type>().values().inner().clone().into()),
        _ => return None,
    };
    Some(Values::Floats { tag: if double { TAG_DOUBLE } else { TAG_FLOAT }, values })
}

fn bind_decimals(array: &ArrayRef, target: &Type) -> Option<Decimals> {
    let Type::Decimal { precision, scale, declared } = target else {
        return None;
    };
    let (values, from_precision, from_scale) = match array.data_type() {
        DataType::Decimal32(p, s) => (Unscaled::I32(array.as_primitive::<Decimal32Type>().values().clone()), *p, *s),
        DataType::Decimal64(p, s) => (Unscaled::I64(array.as_primitive::<Decimal64Type>().values().clone()), *p, *s),
        DataType::Decimal128(p, s) => (Unscaled::I128(array.as_primitive::<Decimal128Type>().values().clone()), *p, *s),
        DataType::Decimal256(p, s) => (Unscaled::I256(array.as_primitive::<Decimal256Type>().values().clone()), *p, *s),
        // Every u64 fits decimal(20,0).
        DataType::UInt64 => (Unscaled::U64(array.as_primitive::<UInt64Type>().values().clone()), 20, 0),
        _ => return None,
    };
    let from_scale = u8::try_from(from_scale).ok()?;
    let written_scale = match declared {
        Some(declared) => *declared,
        None if from_scale == *scale && from_precision <= *precision => *scale,
        None => return None,
    };
    Some(Decimals { values, precision: *precision, scale: from_scale, written_scale })
}

/// Binds dates to dates, or to timestamps at midnight.
fn bind_dates(array: &ArrayRef, target: &Type) -> Option<Values> {
    let (tag, units) = match target {
        Type::Date => (TAG_DATE, 1),
        Type::Timestamp => (TAG_TIMESTAMP, MICROS_A_DAY),
        _ => (TAG_TIMESTAMP_NS, NANOS_A_DAY),
    };
    let (values, conversion) = match array.data_type() {
        DataType::Date32 => {
            (Integers::I32(array.as_primitive::<Date32Type>().values().clone()), Conversion::Multiply(units))
        }
        _ => (Integers::I64(array.as_primitive::<Date64Type>().values().clone()), Conversion::WholeDays(units)),
    };
    let conversion = if conversion == Conversion::Multiply(1) { Conversion::None } else { conversion };
    Some(Values::Integers { tag, values, conversion })
}

fn bind_times(array: &ArrayRef, target: &Type) -> Option<Values> {
    let (values, factor) = match array.data_type() {
        DataType::Time32(TimeUnit::Second) => {
            (Integers::I32(array.as_primitive::<Time32SecondType>().values().clone()), 1_000_000)
        }
        DataType::Time32(TimeUnit::Millisecond) => {
            (Integers::I32(array.as_primitive::<Time32MillisecondType>().values().clone()), 1_000)
        }
        DataType::Time64(TimeUnit::Microsecond) => {
            (Integers::I64(array.as_primitive::<Time64MicrosecondType>().values().clone()), 1)
        }
        DataType::Time64(TimeUnit::Nanosecond) if *target == Type::TimeNs => {
            let values = Integers::I64(array.as_primitive::<Time64NanosecondType>().values().clone());
            let conversion = Conversion::TimeOfDay { factor: 1, below: NANOS_A_DAY };
            return Some(Values::Integers { tag: TAG_TIME_NS, values, conversion });
        }
        _ => return None,
    };
    let conversion = Conversion::TimeOfDay { factor, below: MICROS_A_DAY };
    (*target == Type::Time).then_some(Values::Integers { tag: TAG_TIME, values, conversion })
}

fn bind_timestamps(array: &ArrayRef, target: &Type, unit: TimeUnit, zoned: bool) -> Option<Values> {
    let (tag, target_zoned, target_nanos) = match target {
        Type::Timestamp => (TAG_TIMESTAMP, false, false),
        Type::TimestampTz => (TAG_TIMESTAMPTZ, true, false),
        Type::TimestampNs => (TAG_TIMESTAMP_NS, false, true),
        _ => (TAG_TIMESTAMPTZ_NS, true, true),
    };
    if target_zoned != zoned || target_nanos != (unit == TimeUnit::Nanosecond) {
        return None;
    }
    let (values, conversion) = match unit {
        TimeUnit::Second => {
            (array.as_primitive::<TimestampSecondType>().values().clone(), Conversion::Multiply(1_000_000))
        }
        TimeUnit::Millisecond => {
            (array.as_primitive::<TimestampMillisecondType>().values().clone(), Conversion::Multiply(1_000))
        }
        TimeUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().values().clone(), Conversion::None),
        TimeUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().values().clone(), Conversion::None),
    };
    Some(Values::Integers { tag, values: Integers::I64(values), conversion })
}

fn bind_byte_strings(array: &ArrayRef) -> Option<ByteStrings> {
    macro_rules! offsets {
        ($layout:ident, $array:expr) => {{
            let array = $array;
            ByteStrings::$layout { offsets: array.offsets().inner().clone(), data: array.values().clone() }
        }};
    }
    Some(match array.data_type() {
        DataType::Utf8 => offsets!(Offsets32, array.as_string::<i32>()),
        DataType::LargeUtf8 => offsets!(Offsets64, array.as_string::<i64>()),
        DataType::Binary => offsets!(Offsets32, array.as_binary::<i32>()),
        DataType::LargeBinary => offsets!(Offsets64, array.as_binary::<i64>()),
        DataType::Utf8View => {
            let array = array.as_string_view();
            ByteStrings::Views { views: array.views().clone(), buffers: array.data_buffers().to_vec() }
        }
        DataType::BinaryView => {
            let array = array.as_binary_view();
            ByteStrings::Views { views: array.views().clone(), buffers: array.data_buffers().to_vec() }
        }
        DataType::FixedSizeBinary(width) => {
            let data = array.as_fixed_size_binary().values().clone();
            ByteStrings::Fixed { width: usize::try_from(*width).ok()?, data }
        }
        _ => return None,
    })
}

fn bind_struct(place: &Place, array: &ArrayRef, fields: &[Field]) -> Result<Option<Values>> {
    let Some(source) = array.as_struct_opt() else {
        return Ok(None);
    };
    for (at, name) in source.column_names().into_iter().enumerate() {
        if !fields.iter().any(|field| field.name == name) {
            let path = format!("{}.{name}", place.path);
            return Err(Fault::new("column_unexpected", &path, "the target's fields", name));
        }
        if source.column_names()[..at].contains(&name) {
            return Err(Fault::new("column_duplicate", &place.path, "distinct fields", format!("{name:?} twice")));
        }
    }
    let mut bound = Vec::with_capacity(fields.len());
    for Field { name, slot } in fields {
        let Some((at, field)) = source.fields().find(name) else {
            let path = format!("{}.{name}", place.path);
            return Err(Fault::new("column_missing", &path, "every field of the target", "a struct without it"));
        };
        bound.push(bind(place.inside(name, null_code_of(slot)), source.column(at).clone(), field, &slot.kind)?);
    }
    Ok(Some(Values::Struct(bound)))
}

fn bind_list(place: &Place, array: &ArrayRef, slot: &Slot) -> Result<Option<Values>> {
    let (ranges, children, field) = match array.data_type() {
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            (Ranges::Offsets32(list.offsets().inner().clone()), list.values(), field)
        }
        DataType::LargeList(field) => {
            let list = array.as_list::<i64>();
            (Ranges::Offsets64(list.offsets().inner().clone()), list.values(), field)
        }
        DataType::ListView(field) => {
            let list = array.as_list_view::<i32>();
            (Ranges::Views32 { offsets: list.offsets().clone(), sizes: list.sizes().clone() }, list.values(), field)
        }
        DataType::LargeListView(field) => {
            let list = array.as_list_view::<i64>();
            (Ranges::Views64 { offsets: list.offsets().clone(), sizes: list.sizes().clone() }, list.values(), field)
        }
        DataType::FixedSizeList(field, width) => {
            let width = usize::try_from(*width).map_err(|_| place.unsupported(array.data_type().to_string()))?;
            (Ranges::Fixed(width), array.as_fixed_size_list().values(), field)
        }
        _ => return Ok(None),
    };
    let element = bind(place.inside("element", null_code_of(slot)), children.clone(), field, &slot.kind)?;
    Ok(Some(Values::List { ranges, element: Box::new(element) }))
}

fn bind_map(place: &Place, array: &ArrayRef, key: &Slot, value: &Slot) -> Result<Option<Values>> {
    let Some(map) = array.as_map_opt() else {
        return Ok(None);
    };
    let fields = map.entries().fields();
    let keys = bind(place.inside("key", Some("map_key_null")), map.keys().clone(), &fields[0], &key.kind)?;
    let values = bind(place.inside("value", null_code_of(value)), map.values().clone(), &fields[1], &value.kind)?;
    let ranges = Ranges::Offsets32(map.offsets().inner().clone());
    Ok(Some(Values::Map { ranges, key: Box::new(keys), value: Box::new(values) }))
}

/// Binds a struct of `metadata` and `value`. Returns `None` for an array of another form; refuses a shredded variant.
fn bind_variant(place: &Place, array: &ArrayRef) -> Result<Option<Values>> {
    let Some(source) = array.as_struct_opt() else {
        return Ok(None);
    };
    if source.column_by_name("typed_value").is_some() {
        let expected = "a variant of metadata and value alone";
        return Err(Fault::new("variant_shredded", &place.path, expected, "typed_value beside them"));
    }
    let part = |name: &str| -> Option<Column> {
        // `bind` accepts an array of nulls for any optional type, but a part of a variant must be binary.
        let (at, field) = source.fields().find(name).filter(|(_, field)| *field.data_type() != DataType::Null)?;
        bind(place.inside(name, None), source.column(at).clone(), field, &Type::Binary).ok()
    };
    Ok(match (part("metadata"), part("value"), source.num_columns()) {
        (Some(metadata), Some(value), 2) => Some(Values::Variant {
            metadata: Box::new(metadata),
            value: Box::new(value),
            mode: place.mode,
            depth: place.depth,
        }),
        _ => None,
    })
}

fn bind_runs(place: &Place, array: &ArrayRef, field: &ArrowField, target: &Type) -> Result<Values> {
    macro_rules! runs {
        ($kind:ty, $layout:ident) => {
            if let Some(runs) = array.as_run_opt::<$kind>() {
                let ends = runs.run_ends().inner().clone();
                if !ends.is_sorted_by(|a, b| a < b) || ends.first().is_some_and(|first| *first <= 0) {
                    let got = "an array that contradicts itself";
                    return Err(Fault::new("arrow_invalid", &place.path, "ascending run ends", got));
                }
                let ends = Integers::$layout(ends);
                let values = Box::new(bind(place.clone(), runs.values().clone(), field, target)?);
                return Ok(Values::RunEnds { ends, offset: runs.run_ends().offset(), values });
            }
        };
    }
    runs!(Int16Type, I16);
    runs!(Int32Type, I32);
    runs!(Int64Type, I64);
    Err(place.unsupported(array.data_type().to_string()))
}
