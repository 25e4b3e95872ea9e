//! The fields of a composite type (1.4), read one after another without making values of them.

use bytes::Bytes;
use partita_core::model::Value;

use super::{DecodeError, Decoder, code};

/// The fields that are left. One past the end is absent, as is null; fields that the standard does not know are ignored.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    input: Decoder<'a>,
    left: usize,
}

impl<'a> Decoder<'a> {
    /// The fields of the next value, if it is a list.
    #[inline]
    pub(crate) fn fields(&mut self) -> Result<Fields<'a>, DecodeError> {
        let wide = match self.byte()? {
            code::LIST_0 => return Ok(Fields { input: self.narrowed(&[]), left: 0 }),
            code::LIST_8 => false,
            code::LIST_32 => true,
            _ => return Err(DecodeError::Expected("list")),
        };
        let content = self.variable(wide)?;
        let mut input = self.narrowed(content);
        let left = if wide { input.u32()? as usize } else { input.byte()?.into() };
        Ok(Fields { input, left })
    }
}

impl<'a> Fields<'a> {
    /// The code of the next field's type, if the field is there.
    #[inline]
    fn code(&mut self) -> Result<Option<u8>, DecodeError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(match self.input.byte()? {
            code::NULL => None,
            code => Some(code),
        })
    }

    /// Whether the next field is there; it is read next if so.
    fn is_there(&mut self) -> bool {
        match self.input.rest() {
            [code::NULL, ..] if self.left > 0 => {
                let _ = self.code();
                false
            }
            _ => self.left > 0,
        }
    }

    /// The next field as an unsigned number of any width.
    #[inline]
    pub(crate) fn unsigned(&mut self) -> Result<Option<u64>, DecodeError> {
        let Some(code) = self.code()? else { return Ok(None) };
        Ok(Some(match code {
            code::UINT_0 | code::ULONG_0 => 0,
            code::UINT_8 | code::ULONG_8 | code::UBYTE => self.input.byte()?.into(),
            code::UINT => self.input.u32()?.into(),
            code::USHORT => u16::from_be_bytes(self.input.array()?).into(),
            code::ULONG => u64::from_be_bytes(self.input.array()?),
            _ => return Err(DecodeError::Expected("unsigned number")),
        }))
    }

    /// The next field as a boolean.
    #[inline]
    pub(crate) fn boolean(&mut self) -> Result<Option<bool>, DecodeError> {
        let Some(code) = self.code()? else { return Ok(None) };
        match code {
            code::TRUE => Ok(Some(true)),
            code::FALSE => Ok(Some(false)),
            code::BOOLEAN => match self.input.byte()? {
                0 => Ok(Some(false)),
                1 => Ok(Some(true)),
                _ => Err(DecodeError::BadValue("boolean")),
            },
            _ => Err(DecodeError::Expected("boolean")),
        }
    }

    /// The next field's bytes, if it is a binary.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(code) = self.code()? else { return Ok(None) };
        match code {
            code::BINARY_8 | code::BINARY_32 => Ok(Some(self.input.variable(code == code::BINARY_32)?)),
            _ => Err(DecodeError::Expected("binary")),
        }
    }

    /// The next field, if it is a binary, shared with the input.
    pub(crate) fn binary(&mut self) -> Result<Option<Bytes>, DecodeError> {
        Ok(self.bytes()?.map(|bytes| self.input.share(bytes)))
    }

    /// The next field's text, if it is a string or a symbol: some peers mix them up.
    pub(crate) fn text(&mut self) -> Result<Option<&'a str>, DecodeError> {
        let Some(code) = self.code()? else { return Ok(None) };
        let wide = match code {
            code::STRING_8 | code::SYMBOL_8 => false,
            code::STRING_32 | code::SYMBOL_32 => true,
            _ => return Err(DecodeError::Expected("string or symbol")),
        };
        let text = std::str::from_utf8(self.input.variable(wide)?);
        Ok(Some(text.map_err(|_| DecodeError::BadValue("string"))?))
    }

    /// The next field, null if it is not there.
    pub(crate) fn value(&mut self) -> Result<Value, DecodeError> {
        if !self.is_there() {
            return Ok(Value::Null);
        }
        self.left -= 1;
        self.input.value()
    }

    /// The descriptor and fields of the next field, if it is composite.
    pub(crate) fn composite(&mut self) -> Result<Option<Composite<'a>>, DecodeError> {
        if !self.is_there() {
            return Ok(None);
        }
        let mut ahead = self.input.narrowed(self.input.rest());
        if let Ok(descriptor) = ahead.descriptor()
            && let Ok(fields) = ahead.fields()
        {
            self.left -= 1;
            self.input = ahead;
            return Ok(Some(Composite { descriptor, fields }));
        }
        Err(DecodeError::Expected("composite value"))
    }

    /// Looks at the descriptor of the next field, if it is one of the standard's.
    pub(crate) fn peek_descriptor(&self) -> Option<u64> {
        if self.left == 0 {
            return None;
        }
        self.input.narrowed(self.input.rest()).descriptor().ok()
    }
}

/// A described list.
#[derive(Debug)]
pub(crate) struct Composite<'a> {
    pub(crate) descriptor: u64,
    pub(crate) fields: Fields<'a>,
}
