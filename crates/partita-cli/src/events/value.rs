//! AMQP's values as JSON and back. JSON has fewer types: where its own does not say which one is meant, a type name does.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use partita_core::model::{Timestamp, Value};
use serde_json::{Value as Json, json};

/// A value and the name of its type, unless JSON's own type says it: null, booleans, strings, integers (long) and other
/// numbers (double).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Typed {
    pub(crate) json: Json,
    pub(crate) kind: Option<&'static str>,
}

impl Typed {
    pub(crate) fn of(value: &Value) -> Self {
        let (json, kind) = match value {
            Value::Null => (Json::Null, None),
            Value::Boolean(flag) => (json!(flag), None),
            Value::String(text) => (json!(&**text), None),
            Value::Long(number) => (json!(number), None),
            Value::Double(number) if number.is_finite() => (json!(number), None),
            Value::Double(number) => (json!(number.to_string()), Some("double")),
            Value::Float(number) if number.is_finite() => (json!(number), Some("float")),
            Value::Float(number) => (json!(number.to_string()), Some("float")),
            Value::Ubyte(number) => (json!(number), Some("ubyte")),
            Value::Ushort(number) => (json!(number), Some("ushort")),
            Value::Uint(number) => (json!(number), Some("uint")),
            Value::Ulong(number) => (json!(number), Some("ulong")),
            Value::Byte(number) => (json!(number), Some("byte")),
            Value::Short(number) => (json!(number), Some("short")),
            Value::Int(number) => (json!(number), Some("int")),
            Value::Decimal32(bytes) => (json!(hex(bytes)), Some("decimal32")),
            Value::Decimal64(bytes) => (json!(hex(bytes)), Some("decimal64")),
            Value::Decimal128(bytes) => (json!(hex(bytes)), Some("decimal128")),
            Value::Char(letter) => (json!(letter), Some("char")),
            Value::Timestamp(time) => (timestamp(*time), Some("timestamp")),
            Value::Uuid(bits) => (json!(uuid(*bits)), Some("uuid")),
            Value::Binary(bytes) => (json!(STANDARD.encode(bytes)), Some("binary")),
            Value::Symbol(text) => (json!(&**text), Some("symbol")),
            Value::List(values) => (values.iter().map(nested).collect(), Some("list")),
            Value::Array(values) => (values.iter().map(nested).collect(), Some("array")),
            Value::Map(pairs) => {
                (pairs.iter().map(|(key, value)| json!([nested(key), nested(value)])).collect(), Some("map"))
            }
            Value::Described(descriptor, value) => {
                (json!([nested(descriptor), nested(value)]), Some("described"))
            }
            other => (json!(format!("{other:?}")), Some("unknown")),
        };
        Self { json, kind }
    }

    /// The name of the type, for people.
    pub(crate) fn name(value: &Value) -> &'static str {
        match value {
            Value::Null => "null",
            Value::Boolean(_) => "boolean",
            Value::String(_) => "string",
            Value::Long(_) => "long",
            Value::Double(_) => "double",
            other => Self::of(other).kind.unwrap_or("unknown"),
        }
    }

    /// The value as text: a string as it is, all else as JSON.
    pub(crate) fn text(value: &Value) -> String {
        match Self::of(value).json {
            Json::String(text) => text,
            other => other.to_string(),
        }
    }

    /// The value that JSON of a type stands for; without a type, the one that JSON's own type says.
    pub(crate) fn parse(json: &Json, kind: Option<&str>) -> Result<Value, String> {
        let Some(kind) = kind else { return natural(json) };
        parse(json, kind).unwrap_or_else(|| Err(format!("{json} is no {kind}")))
    }
}

/// A value within another: as it is, or with its type beside it.
fn nested(value: &Value) -> Json {
    let Typed { json, kind } = Typed::of(value);
    match kind {
        None => json,
        Some(kind) => json!({"type": kind, "value": json}),
    }
}

fn natural(json: &Json) -> Result<Value, String> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Boolean(*flag),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => Value::Long(number),
            (None, Some(number), _) => Value::Ulong(number),
            (None, None, Some(number)) => Value::Double(number),
            (None, None, None) => return Err(format!("{number} is too large a number")),
        },
        Json::Object(_) => {
            let kind = json["type"].as_str();
            let kind = kind.ok_or("a value that is an object says its \"type\" and its \"value\"")?;
            return Typed::parse(&json["value"], Some(kind));
        }
        Json::Array(_) => return Err("a value that is a list needs the type list or array".to_owned()),
    })
}

/// None if the JSON does not fit the type.
fn parse(json: &Json, kind: &str) -> Option<Result<Value, String>> {
    let text = json.as_str();
    let float = || match text {
        Some(text) => text.parse::<f64>().ok(),
        None => json.as_f64(),
    };
    let list =
        || -> Option<Result<Vec<Value>, String>> { Some(json.as_array()?.iter().map(natural).collect()) };
    let pair = |json: &Json| -> Result<(Value, Value), String> {
        match json.as_array().map(Vec::as_slice) {
            Some([key, value]) => Ok((natural(key)?, natural(value)?)),
            _ => Err(format!("{json} is no pair")),
        }
    };
    Some(Ok(match kind {
        "null" => json.is_null().then_some(Value::Null)?,
        "boolean" => Value::Boolean(json.as_bool()?),
        "string" => Value::from(text?),
        "long" => Value::Long(json.as_i64()?),
        "double" => Value::Double(float()?),
        "float" => Value::Float(float()? as f32),
        "ubyte" => Value::Ubyte(json.as_u64()?.try_into().ok()?),
        "ushort" => Value::Ushort(json.as_u64()?.try_into().ok()?),
        "uint" => Value::Uint(json.as_u64()?.try_into().ok()?),
        "ulong" => Value::Ulong(json.as_u64()?),
        "byte" => Value::Byte(json.as_i64()?.try_into().ok()?),
        "short" => Value::Short(json.as_i64()?.try_into().ok()?),
        "int" => Value::Int(json.as_i64()?.try_into().ok()?),
        "decimal32" => Value::Decimal32(unhex(text?)?),
        "decimal64" => Value::Decimal64(unhex(text?)?),
        "decimal128" => Value::Decimal128(unhex(text?)?),
        "char" => {
            let mut letters = text?.chars();
            let letter = letters.next()?;
            letters.next().is_none().then_some(Value::Char(letter))?
        }
        "timestamp" => Value::Timestamp(match text {
            Some(text) => Timestamp::parse_rfc3339(text)?,
            None => Timestamp(json.as_i64()?),
        }),
        "uuid" => {
            let digits = text?.replace('-', "");
            (digits.len() == 32).then_some(())?;
            Value::Uuid(u128::from_str_radix(&digits, 16).ok()?)
        }
        "binary" => Value::Binary(STANDARD.decode(text?).ok()?.into()),
        "symbol" => Value::Symbol(Arc::from(text?)),
        "list" => return Some(list()?.map(Value::List)),
        "array" => return Some(list()?.map(Value::Array)),
        "map" => {
            let pairs: Result<Vec<_>, String> = json.as_array()?.iter().map(pair).collect();
            return Some(pairs.map(Value::Map));
        }
        "described" => {
            return Some(
                pair(json).map(|(descriptor, value)| Value::Described(Box::new(descriptor), Box::new(value))),
            );
        }
        _ => return Some(Err(format!("there is no type {kind}"))),
    }))
}

/// A time that a year of four digits can say, or its milliseconds.
fn timestamp(time: Timestamp) -> Json {
    let text = time.to_string();
    if Timestamp::parse_rfc3339(&text) == Some(time) { json!(text) } else { json!(time.0) }
}

fn uuid(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (text.len() == 2 * N && text.is_ascii()).then_some(())?;
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Text that cannot move a terminal's cursor or change its colours.
pub(crate) fn escaped(text: &str, out: &mut String) {
    for letter in text.chars() {
        match letter {
            '\t' => out.push('\t'),
            letter if crate::output::steers(letter) => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back_from_its_json() {
        let scalars = vec![
            Value::Null,
            Value::from(true),
            Value::from("text"),
            Value::Long(-5),
            Value::Double(1.0),
            Value::Double(f64::INFINITY),
            Value::Float(0.1),
            Value::Ubyte(255),
            Value::Ushort(65_535),
            Value::Uint(7),
            Value::Ulong(u64::MAX),
            Value::Byte(-128),
            Value::Short(-7),
            Value::Int(7),
            Value::Decimal32([1, 2, 3, 0xff]),
            Value::Decimal64([7; 8]),
            Value::Decimal128([9; 16]),
            Value::Char('é'),
            Value::Timestamp(Timestamp(1_234)),
            Value::Timestamp(Timestamp(i64::MAX)),
            Value::Uuid(u128::MAX / 3),
            Value::Binary(vec![0, 255, 7].into()),
            Value::Symbol("sym".into()),
        ];
        let pairs = scalars.iter().map(|value| (Value::from("key"), value.clone())).collect();
        let compound = [
            Value::List(scalars.clone()),
            Value::Map(pairs),
            Value::Array(vec![Value::Int(1), Value::Int(2)]),
            Value::Described(Box::new(Value::Ulong(1)), Box::new(Value::List(vec![Value::Null]))),
        ];
        for value in scalars.iter().chain(&compound) {
            let Typed { json, kind } = Typed::of(value);
            let line = json.to_string();
            let json: Json = serde_json::from_str(&line).unwrap();
            assert_eq!(Typed::parse(&json, kind).as_ref(), Ok(value), "{line}");
            assert_eq!(Typed::parse(&nested(value), None).as_ref(), Ok(value), "{line}, within another");
        }
    }

    #[test]
    fn what_does_not_fit_its_type_is_said() {
        for (json, kind, said) in [
            (json!(300), Some("ubyte"), "300 is no ubyte"),
            (json!("x"), Some("uuid"), "\"x\" is no uuid"),
            (json!(1), Some("colour"), "there is no type colour"),
            (json!([1]), None, "a value that is a list needs the type list or array"),
        ] {
            assert_eq!(Typed::parse(&json, kind), Err(said.to_owned()));
        }
    }

    #[test]
    fn a_terminal_is_not_steered_by_events() {
        let mut out = String::new();
        escaped("a\tb\x1b[31mc\r\u{9b}d é", &mut out);
        assert_eq!(out, "a\tb\\u{1b}[31mc\\r\\u{9b}d é");
    }
}
