//! Bytes to values (1.2, 1.6). Binaries share the input's memory.

use std::sync::Arc;

use bytes::Bytes;
use partita_core::model::{Timestamp, Value};

use super::{DEPTH_MAX, DecodeError, VALUES_MAX, code};

/// Reads values one after another.
#[derive(Debug)]
pub struct Decoder<'a> {
    input: &'a Bytes,
    rest: &'a [u8],
    depth: usize,
    values_left: usize,
}

/// What stands before a value: its type, and a descriptor if it has one.
#[derive(Clone)]
struct Constructor {
    descriptor: Option<Box<(Value, Constructor)>>,
    /// How many values the descriptor is, inner ones counted: every element of an array has it again.
    descriptor_values: usize,
    code: u8,
}

impl<'a> Decoder<'a> {
    /// Begins at the start of `input`.
    pub fn new(input: &'a Bytes) -> Self {
        Self { input, rest: input, depth: 0, values_left: VALUES_MAX }
    }

    /// Begins at the start of `rest`, which lies within `input`, and makes no more than so many values.
    pub fn within(input: &'a Bytes, rest: &'a [u8], values_max: usize) -> Self {
        Self { input, rest, depth: 0, values_left: values_max }
    }

    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads on within these bytes of the input alone.
    #[inline]
    pub fn narrowed(&self, rest: &'a [u8]) -> Self {
        Self { input: self.input, rest, depth: self.depth, values_left: self.values_left }
    }

    /// Bytes of the input, shared.
    pub(super) fn share(&self, bytes: &'a [u8]) -> Bytes {
        self.input.slice_ref(bytes)
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next value.
    pub fn value(&mut self) -> Result<Value, DecodeError> {
        let constructor = self.constructor()?;
        self.content(&constructor)
    }

    /// Steps over the next value, of which only the length is looked at.
    pub fn skip(&mut self) -> Result<(), DecodeError> {
        let mut constructors = 1_usize;
        while constructors > 0 {
            constructors -= 1;
            let code = self.byte()?;
            // The high half of a code says how long the value is.
            match code >> 4 {
                _ if code == code::DESCRIBED => constructors += 2,
                0x4 => {}
                width @ 0x5..=0x9 => {
                    self.take(1 << (width - 5))?;
                }
                0xa | 0xc | 0xe => {
                    self.variable(false)?;
                }
                0xb | 0xd | 0xf => {
                    self.variable(true)?;
                }
                _ => return Err(DecodeError::UnknownCode(code)),
            }
        }
        Ok(())
    }

    /// The descriptor of the next value where it is an unsigned number, as those of the standard are.
    #[inline]
    pub fn descriptor(&mut self) -> Result<u64, DecodeError> {
        // The usual form, before the general one.
        if let [code::DESCRIBED, code::ULONG_8, number, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok((*number).into());
        }
        if self.byte()? != code::DESCRIBED {
            return Err(DecodeError::Expected("described value"));
        }
        match self.value()? {
            Value::Ulong(number) => Ok(number),
            // The standard gives each of its descriptors a name, too.
            Value::Symbol(name) => crate::message::descriptor_of(&name)
                .or_else(|| crate::performative::descriptor_of(&name))
                .ok_or(DecodeError::Expected("known descriptor")),
            _ => Err(DecodeError::Expected("descriptor")),
        }
    }

    /// The next value's bytes, if it is a binary, shared with the input.
    pub fn binary(&mut self) -> Result<Bytes, DecodeError> {
        let len = match self.byte()? {
            code::BINARY_8 => self.byte()?.into(),
            code::BINARY_32 => self.u32()? as usize,
            _ => return Err(DecodeError::Expected("binary")),
        };
        let bytes = self.take(len)?;
        Ok(self.input.slice_ref(bytes))
    }

    /// The fields of the next value, if it is a list.
    pub fn list(&mut self) -> Result<Vec<Value>, DecodeError> {
        match self.value()? {
            Value::List(values) => Ok(values),
            _ => Err(DecodeError::Expected("list")),
        }
    }

    /// The pairs of the next value, if it is a map or null.
    pub fn map(&mut self) -> Result<Vec<(Value, Value)>, DecodeError> {
        match self.value()? {
            Value::Map(pairs) => Ok(pairs),
            Value::Null => Ok(Vec::new()),
            _ => Err(DecodeError::Expected("map")),
        }
    }

    fn constructor(&mut self) -> Result<Constructor, DecodeError> {
        let code = self.byte()?;
        if code != code::DESCRIBED {
            return Ok(Constructor { descriptor: None, descriptor_values: 0, code });
        }
        self.deeper(|this| {
            let before = this.values_left;
            let descriptor = this.value()?;
            let descriptor_values = before - this.values_left;
            let inner = this.constructor()?;
            Ok(Constructor {
                code: inner.code,
                descriptor_values,
                descriptor: Some(Box::new((descriptor, inner))),
            })
        })
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn content(&mut self, constructor: &Constructor) -> Result<Value, DecodeError> {
        let values = 1 + constructor.descriptor_values;
        self.values_left = self.values_left.checked_sub(values).ok_or(DecodeError::TooMany)?;
        match constructor.descriptor.as_deref() {
            None => self.primitive(constructor.code),
            Some((descriptor, inner)) => self.deeper(|this| {
                let value = this.content(inner)?;
                Ok(Value::Described(Box::new(descriptor.clone()), Box::new(value)))
            }),
        }
    }

    fn primitive(&mut self, code: u8) -> Result<Value, DecodeError> {
        Ok(match code {
            code::NULL => Value::Null,
            code::TRUE => Value::Boolean(true),
            code::FALSE => Value::Boolean(false),
            code::BOOLEAN => match self.byte()? {
                0 => Value::Boolean(false),
                1 => Value::Boolean(true),
                _ => return Err(DecodeError::BadValue("boolean")),
            },
            code::UBYTE => Value::Ubyte(self.byte()?),
            code::USHORT => Value::Ushort(u16::from_be_bytes(self.array()?)),
            code::UINT_0 => Value::Uint(0),
            code::UINT_8 => Value::Uint(self.byte()?.into()),
            code::UINT => Value::Uint(self.u32()?),
            code::ULONG_0 => Value::Ulong(0),
            code::ULONG_8 => Value::Ulong(self.byte()?.into()),
            code::ULONG => Value::Ulong(u64::from_be_bytes(self.array()?)),
            code::BYTE => Value::Byte(self.byte()?.cast_signed()),
            code::SHORT => Value::Short(i16::from_be_bytes(self.array()?)),
            code::INT_8 => Value::Int(self.byte()?.cast_signed().into()),
            code::INT => Value::Int(i32::from_be_bytes(self.array()?)),
            code::LONG_8 => Value::Long(self.byte()?.cast_signed().into()),
            code::LONG => Value::Long(i64::from_be_bytes(self.array()?)),
            code::FLOAT => Value::Float(f32::from_be_bytes(self.array()?)),
            code::DOUBLE => Value::Double(f64::from_be_bytes(self.array()?)),
            code::DECIMAL_32 => Value::Decimal32(self.array()?),
            code::DECIMAL_64 => Value::Decimal64(self.array()?),
            code::DECIMAL_128 => Value::Decimal128(self.array()?),
            code::CHAR => match char::from_u32(self.u32()?) {
                Some(c) => Value::Char(c),
                None => return Err(DecodeError::BadValue("char")),
            },
            code::TIMESTAMP => Value::Timestamp(Timestamp(i64::from_be_bytes(self.array()?))),
            code::UUID => Value::Uuid(u128::from_be_bytes(self.array()?)),
            code::BINARY_8 | code::BINARY_32 => {
                let bytes = self.variable(code == code::BINARY_32)?;
                Value::Binary(self.input.slice_ref(bytes))
            }
            code::STRING_8 | code::STRING_32 => {
                let text = std::str::from_utf8(self.variable(code == code::STRING_32)?);
                Value::String(Arc::from(text.map_err(|_| DecodeError::BadValue("string"))?))
            }
            code::SYMBOL_8 | code::SYMBOL_32 => {
                let text = std::str::from_utf8(self.variable(code == code::SYMBOL_32)?).ok();
                let text = text.filter(|text| text.is_ascii()).ok_or(DecodeError::BadValue("symbol"))?;
                Value::Symbol(Arc::from(text))
            }
            code::LIST_0 => Value::List(Vec::new()),
            code::LIST_8 | code::LIST_32 => self.compound("list", code == code::LIST_32, |this, count| {
                Ok(Value::List(this.run(count, Self::value)?))
            })?,
            code::MAP_8 | code::MAP_32 => self.compound("map", code == code::MAP_32, |this, count| {
                if !count.is_multiple_of(2) {
                    return Err(DecodeError::BadSize("map"));
                }
                Ok(Value::Map(this.run(count / 2, |this| Ok((this.value()?, this.value()?)))?))
            })?,
            code::ARRAY_8 | code::ARRAY_32 => {
                self.compound("array", code == code::ARRAY_32, |this, count| {
                    let constructor = this.constructor()?;
                    Ok(Value::Array(this.run(count, |this| this.content(&constructor))?))
                })?
            }
            other => return Err(DecodeError::UnknownCode(other)),
        })
    }

    /// A list, map or array: within its size, which must be used up.
    fn compound(
        &mut self,
        what: &'static str,
        wide: bool,
        read: impl FnOnce(&mut Self, usize) -> Result<Value, DecodeError>,
    ) -> Result<Value, DecodeError> {
        let content = self.variable(wide)?;
        let after = std::mem::replace(&mut self.rest, content);
        let count = if wide { self.u32()? as usize } else { self.byte()?.into() };
        let value = self.deeper(|this| read(this, count))?;
        if !self.rest.is_empty() {
            return Err(DecodeError::BadSize(what));
        }
        self.rest = after;
        Ok(value)
    }

    fn run<T>(
        &mut self,
        count: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        // A count is only a claim: elements come from bytes, but for those that have none, which are few in earnest.
        let mut out = Vec::with_capacity(count.min(self.rest.len()).min(1 << 12));
        for _ in 0..count {
            out.push(read(self)?);
        }
        Ok(out)
    }

    /// The content of a value of variable width, behind its length of four bytes or of one.
    #[inline]
    pub fn variable(&mut self, wide: bool) -> Result<&'a [u8], DecodeError> {
        let len = if wide { self.u32()? as usize } else { self.byte()?.into() };
        #[cfg(partita_planted_length)]
        if wide {
            let (taken, rest) = self.rest.split_at(len);
            self.rest = rest;
            return Ok(taken);
        }
        self.take(len)
    }

    /// The next bytes, so many.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// The next byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }
}
