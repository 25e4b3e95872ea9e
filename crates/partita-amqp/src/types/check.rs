//! Values checked where they lie: the same rules as decoding, and nothing is made of them.

use super::{DEPTH_MAX, DecodeError, VALUES_MAX, code};

/// Goes over values one after another. What it lets pass decodes.
#[derive(Clone, Debug)]
pub struct Checker<'a> {
    rest: &'a [u8],
    depth: usize,
    values_left: usize,
}

/// What stands before a value: how many descriptors, and its type.
#[derive(Clone, Copy)]
struct Constructor {
    descriptors: usize,
    /// How many values the descriptors are, inner ones counted: every element of an array has them again.
    descriptor_values: usize,
    code: u8,
}

impl<'a> Checker<'a> {
    /// Begins at the start of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self::with_values_max(input, VALUES_MAX)
    }

    /// The same with a limit of its own, for who goes over many inputs and bounds their sum.
    pub fn with_values_max(input: &'a [u8], values_max: usize) -> Self {
        Self { rest: input, depth: 0, values_left: values_max.min(VALUES_MAX) }
    }

    /// How many more values it goes over.
    pub fn values_left(&self) -> usize {
        self.values_left
    }

    /// Whether all was looked at.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// What was not looked at yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The bytes of the next value.
    pub fn value(&mut self) -> Result<&'a [u8], DecodeError> {
        let before = self.rest;
        let constructor = self.constructor()?;
        self.content(constructor)?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// The descriptor of the next value, as [`Decoder::descriptor`](super::Decoder::descriptor) reads it.
    pub fn descriptor(&mut self) -> Result<u64, DecodeError> {
        // Almost always.
        if let [code::DESCRIBED, code::ULONG_8, number, rest @ ..] = self.rest {
            self.values_left = self.values_left.checked_sub(1).ok_or(DecodeError::TooMany)?;
            self.rest = rest;
            return Ok((*number).into());
        }
        if self.byte()? != code::DESCRIBED {
            return Err(DecodeError::Expected("described value"));
        }
        let value = self.value()?;
        match value {
            [code::ULONG_0] => Ok(0),
            [code::ULONG_8, number] => Ok((*number).into()),
            [code::ULONG, bytes @ ..] => Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))),
            [code::SYMBOL_8 | code::SYMBOL_32, ..] => {
                let known = text_of(value).and_then(crate::message::descriptor_of);
                known.ok_or(DecodeError::Expected("known descriptor"))
            }
            _ => Err(DecodeError::Expected("descriptor")),
        }
    }

    /// The content of the next value, if it is a binary.
    pub fn binary(&mut self) -> Result<&'a [u8], DecodeError> {
        match self.byte()? {
            code::BINARY_8 => self.variable(false),
            code::BINARY_32 => self.variable(true),
            _ => Err(DecodeError::Expected("binary")),
        }
    }

    /// The bytes of the next value, if it is a list.
    pub fn list(&mut self) -> Result<&'a [u8], DecodeError> {
        match self.value()? {
            value @ [code::LIST_0 | code::LIST_8 | code::LIST_32, ..] => Ok(value),
            _ => Err(DecodeError::Expected("list")),
        }
    }

    /// The same, with null for an empty one.
    pub fn binary_or_null(&mut self) -> Result<&'a [u8], DecodeError> {
        if self.rest.first() == Some(&code::NULL) {
            self.value()?;
            return Ok(&[]);
        }
        self.binary()
    }

    /// The bytes of the next value, if it is a list or null.
    pub fn list_or_null(&mut self) -> Result<&'a [u8], DecodeError> {
        match self.rest.first() {
            Some(&code::NULL) => self.value(),
            _ => self.list(),
        }
    }

    /// The pairs of the next value, if it is a map or null.
    pub fn map(&mut self) -> Result<RawMap<'a>, DecodeError> {
        match self.value()? {
            [code::NULL] => Ok(RawMap { count: 0, content: &[] }),
            [code::MAP_8, _, count, content @ ..] => Ok(RawMap { count: (*count).into(), content }),
            [code::MAP_32, _, _, _, _, a, b, c, d, content @ ..] => {
                Ok(RawMap { count: u32::from_be_bytes([*a, *b, *c, *d]), content })
            }
            _ => Err(DecodeError::Expected("map")),
        }
    }

    fn constructor(&mut self) -> Result<Constructor, DecodeError> {
        let code = self.byte()?;
        if code != code::DESCRIBED {
            return Ok(Constructor { descriptors: 0, descriptor_values: 0, code });
        }
        self.deeper(|this| {
            let before = this.values_left;
            this.value()?;
            let own = before - this.values_left;
            let inner = this.constructor()?;
            let descriptor_values = own + inner.descriptor_values;
            Ok(Constructor { descriptors: inner.descriptors + 1, descriptor_values, code: inner.code })
        })
    }

    fn deeper<T>(
        &mut self,
        look: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        self.depth += 1;
        let result = look(self);
        self.depth -= 1;
        result
    }

    fn content(&mut self, constructor: Constructor) -> Result<(), DecodeError> {
        let Constructor { descriptors, descriptor_values, code } = constructor;
        let values = 1 + descriptor_values;
        self.values_left = self.values_left.checked_sub(values).ok_or(DecodeError::TooMany)?;
        match descriptors.checked_sub(1) {
            None => self.primitive(code),
            Some(descriptors) => {
                self.deeper(|this| this.content(Constructor { descriptors, descriptor_values: 0, code }))
            }
        }
    }

    fn primitive(&mut self, code: u8) -> Result<(), DecodeError> {
        let fixed = match code {
            code::NULL | code::TRUE | code::FALSE | code::UINT_0 | code::ULONG_0 | code::LIST_0 => 0,
            code::UBYTE | code::BYTE | code::UINT_8 | code::ULONG_8 | code::INT_8 | code::LONG_8 => 1,
            code::USHORT | code::SHORT => 2,
            code::UINT | code::INT | code::FLOAT | code::DECIMAL_32 => 4,
            code::ULONG | code::LONG | code::DOUBLE | code::TIMESTAMP | code::DECIMAL_64 => 8,
            code::DECIMAL_128 | code::UUID => 16,
            other => return self.varied(other),
        };
        self.take(fixed).map(|_| ())
    }

    fn varied(&mut self, code: u8) -> Result<(), DecodeError> {
        match code {
            code::BOOLEAN if self.byte()? > 1 => return Err(DecodeError::BadValue("boolean")),
            code::BOOLEAN => {}
            code::CHAR => {
                char::from_u32(self.u32()?).ok_or(DecodeError::BadValue("char"))?;
            }
            code::BINARY_8 | code::BINARY_32 => {
                self.variable(code == code::BINARY_32)?;
            }
            code::STRING_8 | code::STRING_32 => {
                let text = self.variable(code == code::STRING_32)?;
                std::str::from_utf8(text).map_err(|_| DecodeError::BadValue("string"))?;
            }
            code::SYMBOL_8 | code::SYMBOL_32 => {
                if !self.variable(code == code::SYMBOL_32)?.is_ascii() {
                    return Err(DecodeError::BadValue("symbol"));
                }
            }
            code::LIST_8 | code::LIST_32 => self.compound("list", code == code::LIST_32, |this, count| {
                (0..count).try_for_each(|_| this.value().map(|_| ()))
            })?,
            code::MAP_8 | code::MAP_32 => self.compound("map", code == code::MAP_32, |this, count| {
                if !count.is_multiple_of(2) {
                    return Err(DecodeError::BadSize("map"));
                }
                (0..count).try_for_each(|_| this.value().map(|_| ()))
            })?,
            code::ARRAY_8 | code::ARRAY_32 => {
                self.compound("array", code == code::ARRAY_32, |this, count| {
                    let constructor = this.constructor()?;
                    (0..count).try_for_each(|_| this.content(constructor))
                })?;
            }
            other => return Err(DecodeError::UnknownCode(other)),
        }
        Ok(())
    }

    /// A list, map or array: within its size, which must be used up.
    fn compound(
        &mut self,
        what: &'static str,
        wide: bool,
        look: impl FnOnce(&mut Self, usize) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let content = self.variable(wide)?;
        let after = std::mem::replace(&mut self.rest, content);
        let count = if wide { self.u32()? as usize } else { self.byte()?.into() };
        self.deeper(|this| look(this, count))?;
        if !self.rest.is_empty() {
            return Err(DecodeError::BadSize(what));
        }
        self.rest = after;
        Ok(())
    }

    fn variable(&mut self, wide: bool) -> Result<&'a [u8], DecodeError> {
        let len = if wide { self.u32()? as usize } else { self.byte()?.into() };
        self.take(len)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*bytes))
    }
}

/// The pairs of a map that was checked, still encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawMap<'a> {
    /// How many values there are: keys and what they hold, each counted.
    pub count: u32,
    /// The bytes of all of them.
    pub content: &'a [u8],
}

impl<'a> RawMap<'a> {
    /// The bytes of each key and its value, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = Checker::new(self.content);
        std::iter::from_fn(move || rest.value().ok().zip(rest.value().ok()))
    }
}

/// The text of an encoded string or symbol.
pub fn text_of(value: &[u8]) -> Option<&str> {
    let text = match value {
        [code::STRING_8 | code::SYMBOL_8, _, text @ ..] => text,
        [code::STRING_32 | code::SYMBOL_32, _, _, _, _, text @ ..] => text,
        _ => return None,
    };
    std::str::from_utf8(text).ok()
}
