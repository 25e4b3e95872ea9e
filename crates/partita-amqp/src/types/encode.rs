//! Values to bytes, in the shortest form of each.

use partita_core::model::Value;

use super::{DEPTH_MAX, EncodeError, array, code};

/// Appends a value. `out` is of no use after an error.
pub fn encode(value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode_at(value, out, 0)
}

/// Appends a list of these values, as composite types are written.
pub fn encode_list(values: &[Value], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    list(values, out, 0)
}

pub(super) fn encode_at(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<(), EncodeError> {
    let mut put = |code: u8, bytes: &[u8]| {
        out.push(code);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Null => put(code::NULL, &[]),
        Value::Boolean(true) => put(code::TRUE, &[]),
        Value::Boolean(false) => put(code::FALSE, &[]),
        Value::Ubyte(n) => put(code::UBYTE, &[*n]),
        Value::Ushort(n) => put(code::USHORT, &n.to_be_bytes()),
        Value::Uint(0) => put(code::UINT_0, &[]),
        Value::Uint(n) => match u8::try_from(*n) {
            Ok(n) => put(code::UINT_8, &[n]),
            Err(_) => put(code::UINT, &n.to_be_bytes()),
        },
        Value::Ulong(0) => put(code::ULONG_0, &[]),
        Value::Ulong(n) => match u8::try_from(*n) {
            Ok(n) => put(code::ULONG_8, &[n]),
            Err(_) => put(code::ULONG, &n.to_be_bytes()),
        },
        Value::Byte(n) => put(code::BYTE, &n.to_be_bytes()),
        Value::Short(n) => put(code::SHORT, &n.to_be_bytes()),
        Value::Int(n) => match i8::try_from(*n) {
            Ok(n) => put(code::INT_8, &n.to_be_bytes()),
            Err(_) => put(code::INT, &n.to_be_bytes()),
        },
        Value::Long(n) => match i8::try_from(*n) {
            Ok(n) => put(code::LONG_8, &n.to_be_bytes()),
            Err(_) => put(code::LONG, &n.to_be_bytes()),
        },
        Value::Float(n) => put(code::FLOAT, &n.to_be_bytes()),
        Value::Double(n) => put(code::DOUBLE, &n.to_be_bytes()),
        Value::Decimal32(bytes) => put(code::DECIMAL_32, bytes),
        Value::Decimal64(bytes) => put(code::DECIMAL_64, bytes),
        Value::Decimal128(bytes) => put(code::DECIMAL_128, bytes),
        Value::Char(c) => put(code::CHAR, &u32::from(*c).to_be_bytes()),
        Value::Timestamp(time) => put(code::TIMESTAMP, &time.0.to_be_bytes()),
        Value::Uuid(bits) => put(code::UUID, &bits.to_be_bytes()),
        Value::Binary(bytes) => binary(bytes, out)?,
        Value::String(string) => text(string, out)?,
        Value::Symbol(text) => symbol(text, out)?,
        Value::List(values) => list(values, out, depth)?,
        Value::Map(pairs) => compound((code::MAP_8, code::MAP_32), pairs.len() * 2, out, |out| {
            let depth = deeper(depth)?;
            for (key, value) in pairs {
                encode_at(key, out, depth)?;
                encode_at(value, out, depth)?;
            }
            Ok(())
        })?,
        Value::Array(values) => {
            let depth = deeper(depth)?;
            compound((code::ARRAY_8, code::ARRAY_32), values.len(), out, |out| {
                array::elements(values, out, depth)
            })?;
        }
        Value::Described(descriptor, value) => {
            let depth = deeper(depth)?;
            out.push(code::DESCRIBED);
            encode_at(descriptor, out, depth)?;
            encode_at(value, out, depth)?;
        }
        _ => return Err(EncodeError::Unknown),
    }
    Ok(())
}

pub(super) fn deeper(depth: usize) -> Result<usize, EncodeError> {
    if depth == DEPTH_MAX { Err(EncodeError::TooDeep) } else { Ok(depth + 1) }
}

fn list(values: &[Value], out: &mut Vec<u8>, depth: usize) -> Result<(), EncodeError> {
    if values.is_empty() {
        out.push(code::LIST_0);
        return Ok(());
    }
    let depth = deeper(depth)?;
    compound((code::LIST_8, code::LIST_32), values.len(), out, |out| {
        values.iter().try_for_each(|value| encode_at(value, out, depth))
    })
}

/// Appends a binary.
pub fn binary(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    variable(code::BINARY_8, code::BINARY_32, bytes, out)
}

/// Appends a string.
pub fn text(text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    variable(code::STRING_8, code::STRING_32, text.as_bytes(), out)
}

/// Appends a symbol.
pub fn symbol(text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !text.is_ascii() {
        return Err(EncodeError::BadSymbol);
    }
    variable(code::SYMBOL_8, code::SYMBOL_32, text.as_bytes(), out)
}

/// Appends a descriptor of the standard, which all fit the small form.
pub fn smallulong_descriptor(number: u8, out: &mut Vec<u8>) {
    out.extend([code::DESCRIBED, code::ULONG_8, number]);
}

fn variable(narrow: u8, wide: u8, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match u8::try_from(bytes.len()) {
        Ok(len) => out.extend([narrow, len]),
        Err(_) => {
            out.push(wide);
            out.extend(u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge)?.to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// Appends what has a size and a count before its content: written behind a long head first, and moved up if a short
/// one will do.
pub(crate) fn compound(
    (narrow, wide): (u8, u8),
    count: usize,
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let head = out.len();
    out.extend([wide, 0, 0, 0, 0, 0, 0, 0, 0]);
    content(out)?;
    sized((narrow, wide), count, head, out)
}

/// Fills in the head of nine bytes at `head`, or a head of three.
fn sized((narrow, wide): (u8, u8), count: usize, head: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let body = head + 9;
    let len = out.len() - body;
    if let (Ok(size), Ok(count)) = (u8::try_from(len + 1), u8::try_from(count)) {
        out.copy_within(body.., head + 3);
        out.truncate(head + 3 + len);
        out[head..head + 3].copy_from_slice(&[narrow, size, count]);
        return Ok(());
    }
    let size = u32::try_from(len + 4).map_err(|_| EncodeError::TooLarge)?;
    let count = u32::try_from(count).map_err(|_| EncodeError::TooLarge)?;
    out[head] = wide;
    out[head + 1..head + 5].copy_from_slice(&size.to_be_bytes());
    out[body - 4..body].copy_from_slice(&count.to_be_bytes());
    Ok(())
}
