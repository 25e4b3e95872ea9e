//! The elements of an array: one constructor for all, so one width that fits all.

use partita_core::model::Value;

use super::encode::{deeper, encode_at};
use super::{EncodeError, code};

/// Appends the common constructor and the elements' contents.
pub(super) fn elements(values: &[Value], out: &mut Vec<u8>, depth: usize) -> Result<(), EncodeError> {
    let Some(first) = values.first() else {
        // An array of nothing has a type all the same.
        out.push(code::NULL);
        return Ok(());
    };
    if let Value::Described(descriptor, _) = first {
        let depth = deeper(depth)?;
        out.push(code::DESCRIBED);
        encode_at(descriptor, out, depth)?;
        let inner = values.iter().map(|value| match value {
            Value::Described(other, inner) if other == descriptor => Ok((**inner).clone()),
            _ => Err(EncodeError::MixedArray),
        });
        return elements(&inner.collect::<Result<Vec<_>, _>>()?, out, depth);
    }
    if values.iter().any(|value| std::mem::discriminant(value) != std::mem::discriminant(first)) {
        return Err(EncodeError::MixedArray);
    }
    let code = common_code(values, first)?;
    out.push(code);
    values.iter().try_for_each(|value| content(value, code, out, depth))
}

fn common_code(values: &[Value], first: &Value) -> Result<u8, EncodeError> {
    let short =
        |fits: &dyn Fn(&Value) -> bool, narrow, wide| if values.iter().all(fits) { narrow } else { wide };
    let len_fits = |value: &Value| match value {
        Value::Binary(bytes) => bytes.len() <= 255,
        Value::String(text) | Value::Symbol(text) => text.len() <= 255,
        _ => false,
    };
    let number_fits = |value: &Value| match value {
        Value::Uint(n) => *n <= 255,
        Value::Ulong(n) => *n <= 255,
        Value::Int(n) => i8::try_from(*n).is_ok(),
        Value::Long(n) => i8::try_from(*n).is_ok(),
        _ => false,
    };
    Ok(match first {
        Value::Null => code::NULL,
        Value::Boolean(_) => code::BOOLEAN,
        Value::Ubyte(_) => code::UBYTE,
        Value::Ushort(_) => code::USHORT,
        Value::Uint(_) => short(&number_fits, code::UINT_8, code::UINT),
        Value::Ulong(_) => short(&number_fits, code::ULONG_8, code::ULONG),
        Value::Byte(_) => code::BYTE,
        Value::Short(_) => code::SHORT,
        Value::Int(_) => short(&number_fits, code::INT_8, code::INT),
        Value::Long(_) => short(&number_fits, code::LONG_8, code::LONG),
        Value::Float(_) => code::FLOAT,
        Value::Double(_) => code::DOUBLE,
        Value::Decimal32(_) => code::DECIMAL_32,
        Value::Decimal64(_) => code::DECIMAL_64,
        Value::Decimal128(_) => code::DECIMAL_128,
        Value::Char(_) => code::CHAR,
        Value::Timestamp(_) => code::TIMESTAMP,
        Value::Uuid(_) => code::UUID,
        Value::Binary(_) => short(&len_fits, code::BINARY_8, code::BINARY_32),
        Value::String(_) => short(&len_fits, code::STRING_8, code::STRING_32),
        Value::Symbol(_) => short(&len_fits, code::SYMBOL_8, code::SYMBOL_32),
        Value::List(_) => code::LIST_32,
        Value::Map(_) => code::MAP_32,
        Value::Array(_) => code::ARRAY_32,
        _ => return Err(EncodeError::Unknown),
    })
}

/// Appends one element as `code` says.
fn content(value: &Value, code: u8, out: &mut Vec<u8>, depth: usize) -> Result<(), EncodeError> {
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
    match (value, code) {
        (Value::Null, _) => {}
        (Value::Boolean(b), _) => put(&[u8::from(*b)]),
        (Value::Uint(n), code::UINT_8) => put(&[*n as u8]),
        (Value::Uint(n), _) => put(&n.to_be_bytes()),
        (Value::Ulong(n), code::ULONG_8) => put(&[*n as u8]),
        (Value::Ulong(n), _) => put(&n.to_be_bytes()),
        (Value::Int(n), code::INT) => put(&n.to_be_bytes()),
        (Value::Long(n), code::LONG) => put(&n.to_be_bytes()),
        (Value::Binary(bytes), code) => variable(bytes, code == code::BINARY_32, out)?,
        (Value::String(text), code) => variable(text.as_bytes(), code == code::STRING_32, out)?,
        (Value::Symbol(text), _) if !text.is_ascii() => return Err(EncodeError::BadSymbol),
        (Value::Symbol(text), code) => variable(text.as_bytes(), code == code::SYMBOL_32, out)?,
        (Value::List(values), _) => wide(values.len(), out, |out| {
            let depth = deeper(depth)?;
            values.iter().try_for_each(|value| encode_at(value, out, depth))
        })?,
        (Value::Map(pairs), _) => wide(pairs.len() * 2, out, |out| {
            let depth = deeper(depth)?;
            for (key, value) in pairs {
                encode_at(key, out, depth)?;
                encode_at(value, out, depth)?;
            }
            Ok(())
        })?,
        (Value::Array(values), _) => {
            let depth = deeper(depth)?;
            wide(values.len(), out, |out| elements(values, out, depth))?;
        }
        // The rest have one width, and a number that fits a byte is written in one: the code and the content.
        (value, _) => {
            let at = out.len();
            encode_at(value, out, depth)?;
            out.remove(at);
        }
    }
    Ok(())
}

fn variable(bytes: &[u8], wide: bool, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLarge)?;
    let len = len.to_be_bytes();
    out.extend_from_slice(if wide { &len } else { &len[3..] });
    out.extend_from_slice(bytes);
    Ok(())
}

fn wide(
    count: usize,
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let head = out.len();
    out.extend([0; 8]);
    content(out)?;
    let size = u32::try_from(out.len() - head - 4).map_err(|_| EncodeError::TooLarge)?;
    let count = u32::try_from(count).map_err(|_| EncodeError::TooLarge)?;
    out[head..head + 4].copy_from_slice(&size.to_be_bytes());
    out[head + 4..head + 8].copy_from_slice(&count.to_be_bytes());
    Ok(())
}
