//! The plan of a digest, and the types of columns. A plan is read from JSON. The schema in this JSON has the form of
//! spec/digest.md section 1.

use crate::error::{Fault, Result};
use crate::hash::element::Construction;
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

pub const ROW_SIZE_MAX_BYTES: usize = 268_435_456;
pub const NESTING_DEPTH_MAX: usize = 64;

/// How values are encoded (spec/canonical.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Values are encoded as they are stored.
    Stored,
    /// Values that engines may write differently are encoded in one form.
    Portable,
}

/// A type of spec/canonical.md section 1.
///
/// - `Decimal`: `declared` is the scale that portable mode writes.
/// - `Fixed`: the number is the number of bytes of a value.
/// - `Map`: the slots are those of key and value, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Decimal { precision: u8, scale: u8, declared: Option<u8> },
    Date,
    Time,
    TimeNs,
    Timestamp,
    TimestampTz,
    TimestampNs,
    TimestampTzNs,
    String,
    Uuid,
    Fixed(i32),
    Binary,
    Geometry,
    Geography,
    Unknown,
    Variant,
    Struct(Vec<Field>),
    List(Box<Slot>),
    Map(Box<Slot>, Box<Slot>),
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Type::Boolean => "boolean",
            Type::Int => "int",
            Type::Long => "long",
            Type::Float => "float",
            Type::Double => "double",
            Type::Decimal { precision, scale, declared: None } => return write!(f, "decimal({precision},{scale})"),
            Type::Decimal { precision, scale, declared: Some(d) } => {
                return write!(f, "decimal({precision},{scale})@{d}");
            }
            Type::Date => "date",
            Type::Time => "time",
            Type::TimeNs => "time_ns",
            Type::Timestamp => "timestamp",
            Type::TimestampTz => "timestamptz",
            Type::TimestampNs => "timestamp_ns",
            Type::TimestampTzNs => "timestamptz_ns",
            Type::String => "string",
            Type::Uuid => "uuid",
            Type::Fixed(length) => return write!(f, "fixed({length})"),
            Type::Binary => "binary",
            Type::Geometry => "geometry",
            Type::Geography => "geography",
            Type::Unknown => "unknown",
            Type::Variant => "variant",
            Type::Struct(_) => "struct",
            Type::List(_) => "list",
            Type::Map(_, _) => "map",
        };
        f.write_str(name)
    }
}

/// The type of a field, list element, map key or map value, and whether a value is required there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub kind: Type,
    pub required: bool,
    /// The Iceberg field id, if the schema has ids.
    pub id: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub slot: Slot,
}

/// What is hashed and how. The fields are sorted by name, and so are the columns of each projection.
#[derive(Clone, Debug)]
pub struct Plan {
    pub fields: Vec<Field>,
    pub mode: Mode,
    pub construction: Construction,
    /// Each projection lists positions in `fields`.
    pub projections: Vec<Vec<usize>>,
}

impl Plan {
    /// Refuses JSON that is not a plan, and projections with unknown columns or with types that the mode does not
    /// allow.
    pub fn parse(json: &str) -> Result<Plan> {
        let value = parse_value(json)?;
        let fields = parse_fields(&value["schema"])?;
        let mode = match value["mode"].as_str() {
            Some("stored") => Mode::Stored,
            Some("portable") => Mode::Portable,
            _ => return Err(invalid("stored or portable as mode", &value["mode"].to_string())),
        };
        let construction = match value["construction"].as_str() {
            Some("hmac-sha256") => Construction::HmacSha256,
            Some("blake3") => Construction::Blake3,
            _ => return Err(invalid("a known construction", &value["construction"].to_string())),
        };
        let projections = as_array(&value["projections"])?
            .iter()
            .map(|names| parse_projection(names, &fields, mode))
            .collect::<Result<Vec<_>>>()?;
        Ok(Plan { fields, mode, construction, projections })
    }
}

/// Parses JSON without the parser's limit on depth, because the JSON of 64 nested types exceeds it. The Python
/// code that writes this JSON limits the nesting of types.
pub fn parse_value(json: &str) -> Result<Value> {
    let mut parser = serde_json::Deserializer::from_str(json);
    parser.disable_recursion_limit();
    Value::deserialize(&mut parser).map_err(|error| invalid("a plan or request as JSON", &error.to_string()))
}

/// Parses the fields of a schema, and sorts them by name.
pub fn parse_fields(schema: &Value) -> Result<Vec<Field>> {
    match parse_type(schema, 0)? {
        Type::Struct(fields) => Ok(fields),
        _ => Err(invalid("a struct as schema", &schema.to_string())),
    }
}

fn parse_projection(names: &Value, fields: &[Field], mode: Mode) -> Result<Vec<usize>> {
    let mut positions = Vec::new();
    for name in as_array(names)? {
        let name = name.as_str().ok_or_else(|| invalid("a column name", &name.to_string()))?;
        let position = fields
            .iter()
            .position(|field| field.name == name)
            .ok_or_else(|| Fault::new("projection_column_unknown", name, "a column of the schema", name))?;
        require_mode(name, &fields[position].slot.kind, mode)?;
        positions.push(position);
    }
    if positions.is_empty() {
        return Err(Fault::new("projection_empty", "", "at least one column", "none"));
    }
    positions.sort_unstable();
    Ok(positions)
}

/// Refuses types that the mode does not allow, before any row is read.
fn require_mode(path: &str, kind: &Type, mode: Mode) -> Result<()> {
    match kind {
        Type::Float | Type::Double | Type::Geometry | Type::Geography if mode == Mode::Portable => {
            Err(Fault::new("portable_float", path, "a decimal with a declared scale", "a type of binary floats"))
        }
        Type::Decimal { declared, .. } if declared.is_some() != (mode == Mode::Portable) => {
            let expected = "a declared scale in portable mode, and none in stored mode";
            Err(Fault::new("portable_scale_undeclared", path, expected, "the opposite"))
        }
        Type::Struct(fields) => {
            fields.iter().try_for_each(|f| require_mode(&format!("{path}.{}", f.name), &f.slot.kind, mode))
        }
        Type::List(element) => require_mode(&format!("{path}.element"), &element.kind, mode),
        Type::Map(key, value) => {
            require_mode(&format!("{path}.key"), &key.kind, mode)?;
            require_mode(&format!("{path}.value"), &value.kind, mode)
        }
        _ => Ok(()),
    }
}

fn invalid(expected: &str, got: &str) -> Fault {
    Fault::new("schema_invalid", "", expected, got)
}

fn as_array(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().ok_or_else(|| invalid("an array", &value.to_string()))
}

fn parse_type(value: &Value, depth: usize) -> Result<Type> {
    if depth > NESTING_DEPTH_MAX {
        return Err(Fault::new("nesting_too_deep", "", format!("at most {NESTING_DEPTH_MAX} levels"), "more"));
    }
    if let Some(name) = value.as_str() {
        return parse_name(name);
    }
    match value["type"].as_str() {
        Some("geometry") => Ok(Type::Geometry),
        Some("geography") => Ok(Type::Geography),
        Some("struct") => {
            let mut fields = as_array(&value["fields"])?
                .iter()
                .map(|field| {
                    let name = field["name"].as_str().ok_or_else(|| invalid("a field name", &field.to_string()))?;
                    Ok(Field { name: name.to_owned(), slot: parse_slot(field, depth + 1)? })
                })
                .collect::<Result<Vec<_>>>()?;
            fields.sort_by(|a, b| a.name.cmp(&b.name));
            match fields.windows(2).find(|pair| pair[0].name == pair[1].name) {
                Some(pair) => Err(invalid("distinct field names", &format!("{:?} twice", pair[0].name))),
                None => Ok(Type::Struct(fields)),
            }
        }
        Some("list") => Ok(Type::List(Box::new(parse_slot(&value["element"], depth + 1)?))),
        Some("map") => Ok(Type::Map(
            Box::new(parse_slot(&value["key"], depth + 1)?),
            Box::new(parse_slot(&value["value"], depth + 1)?),
        )),
        _ => Err(invalid("a type", &value.to_string())),
    }
}

fn parse_slot(value: &Value, depth: usize) -> Result<Slot> {
    let required = value["required"].as_bool().ok_or_else(|| invalid("required true or false", &value.to_string()))?;
    let id = match &value["id"] {
        Value::Null => None,
        given => Some(
            given
                .as_i64()
                .and_then(|id| i32::try_from(id).ok())
                .ok_or_else(|| invalid("a field id", &given.to_string()))?,
        ),
    };
    Ok(Slot { kind: parse_type(&value["type"], depth)?, required, id })
}

fn parse_name(name: &str) -> Result<Type> {
    Ok(match name {
        "boolean" => Type::Boolean,
        "int" => Type::Int,
        "long" => Type::Long,
        "float" => Type::Float,
        "double" => Type::Double,
        "date" => Type::Date,
        "time" => Type::Time,
        "time_ns" => Type::TimeNs,
        "timestamp" => Type::Timestamp,
        "timestamptz" => Type::TimestampTz,
        "timestamp_ns" => Type::TimestampNs,
        "timestamptz_ns" => Type::TimestampTzNs,
        "string" => Type::String,
        "uuid" => Type::Uuid,
        "binary" => Type::Binary,
        "unknown" => Type::Unknown,
        "variant" => Type::Variant,
        _ => return parse_parameters(name).ok_or_else(|| Fault::new("schema_type_unknown", "", "a known type", name)),
    })
}

/// Parses `decimal(P,S)`, `decimal(P,S)@D` and `fixed(L)`.
fn parse_parameters(name: &str) -> Option<Type> {
    if let Some(length) = name.strip_prefix("fixed(").and_then(|rest| rest.strip_suffix(')')) {
        return length.parse().ok().filter(|length| *length >= 1).map(Type::Fixed);
    }
    let (numbers, declared) = name.strip_prefix("decimal(")?.split_once(')')?;
    let (precision, scale) = numbers.split_once(',')?;
    let (precision, scale) = (precision.parse::<u8>().ok()?, scale.parse::<u8>().ok()?);
    let declared = match declared.strip_prefix('@') {
        Some(digits) => Some(digits.parse::<u8>().ok()?),
        None if declared.is_empty() => None,
        None => return None,
    };
    let legal = (1..=76).contains(&precision) && scale <= precision && declared.is_none_or(|d| d <= precision);
    legal.then_some(Type::Decimal { precision, scale, declared })
}
