//! The codes of the primitive types (1.6).

#![allow(missing_docs)] // The names are those of the types and their widths in the standard.

pub const DESCRIBED: u8 = 0x00;
pub const NULL: u8 = 0x40;
pub const TRUE: u8 = 0x41;
pub const FALSE: u8 = 0x42;
pub const UINT_0: u8 = 0x43;
pub const ULONG_0: u8 = 0x44;
pub const LIST_0: u8 = 0x45;
pub const UBYTE: u8 = 0x50;
pub const BYTE: u8 = 0x51;
pub const UINT_8: u8 = 0x52;
pub const ULONG_8: u8 = 0x53;
pub const INT_8: u8 = 0x54;
pub const LONG_8: u8 = 0x55;
pub const BOOLEAN: u8 = 0x56;
pub const USHORT: u8 = 0x60;
pub const SHORT: u8 = 0x61;
pub const UINT: u8 = 0x70;
pub const INT: u8 = 0x71;
pub const FLOAT: u8 = 0x72;
pub const CHAR: u8 = 0x73;
pub const DECIMAL_32: u8 = 0x74;
pub const ULONG: u8 = 0x80;
pub const LONG: u8 = 0x81;
pub const DOUBLE: u8 = 0x82;
pub const TIMESTAMP: u8 = 0x83;
pub const DECIMAL_64: u8 = 0x84;
pub const DECIMAL_128: u8 = 0x94;
pub const UUID: u8 = 0x98;
pub const BINARY_8: u8 = 0xa0;
pub const STRING_8: u8 = 0xa1;
pub const SYMBOL_8: u8 = 0xa3;
pub const BINARY_32: u8 = 0xb0;
pub const STRING_32: u8 = 0xb1;
pub const SYMBOL_32: u8 = 0xb3;
pub const LIST_8: u8 = 0xc0;
pub const MAP_8: u8 = 0xc1;
pub const LIST_32: u8 = 0xd0;
pub const MAP_32: u8 = 0xd1;
pub const ARRAY_8: u8 = 0xe0;
pub const ARRAY_32: u8 = 0xf0;
