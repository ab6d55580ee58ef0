//! Writes Thrift's compact protocol: numbers in their shortest form, and fields in ascending order.

/// Wire types of the compact protocol. The value of a boolean field is its wire type.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;
/// Up to this difference to the previous field's id, the header byte of a field has the difference. Above it, the id
/// follows the header byte.
const SHORT_STEP: i16 = 15;
/// Lists with fewer elements have their length in the header byte.
const SHORT_LIST: usize = 15;

/// Appends one struct to `out`.
pub fn write_struct(out: &mut Vec<u8>, write: impl FnOnce(&mut Fields<'_>)) {
    let mut fields = Fields { out, last: 0 };
    write(&mut fields);
    fields.out.push(0);
}

/// The fields of a struct that is being written; ids must ascend.
pub struct Fields<'a> {
    out: &'a mut Vec<u8>,
    /// The id of the last field.
    last: i16,
}

impl Fields<'_> {
    pub fn flag(&mut self, id: i16, value: bool) {
        self.header(id, if value { TRUE } else { FALSE });
    }

    pub fn byte(&mut self, id: i16, value: u8) {
        self.header(id, BYTE);
        self.out.push(value);
    }

    pub fn short(&mut self, id: i16, value: i16) {
        self.header(id, I16);
        write_varint(self.out, zigzag(value.into()));
    }

    pub fn int(&mut self, id: i16, value: i32) {
        self.header(id, I32);
        write_varint(self.out, zigzag(value.into()));
    }

    pub fn long(&mut self, id: i16, value: i64) {
        self.header(id, I64);
        write_varint(self.out, zigzag(value));
    }

    pub fn binary(&mut self, id: i16, value: &[u8]) {
        self.header(id, BINARY);
        write_bytes(self.out, value);
    }

    pub fn nested(&mut self, id: i16, write: impl FnOnce(&mut Fields<'_>)) {
        self.header(id, STRUCT);
        write_struct(self.out, write);
    }

    pub fn ints(&mut self, id: i16, values: &[i32]) {
        self.list(id, I32, values.len());
        values.iter().for_each(|value| write_varint(self.out, zigzag((*value).into())));
    }

    pub fn longs(&mut self, id: i16, values: &[i64]) {
        self.list(id, I64, values.len());
        values.iter().for_each(|value| write_varint(self.out, zigzag(*value)));
    }

    pub fn flags(&mut self, id: i16, values: &[bool]) {
        self.list(id, TRUE, values.len());
        self.out.extend(values.iter().map(|value| if *value { TRUE } else { FALSE }));
    }

    pub fn binaries<'b>(&mut self, id: i16, values: impl ExactSizeIterator<Item = &'b [u8]>) {
        self.list(id, BINARY, values.len());
        values.for_each(|value| write_bytes(self.out, value));
    }

    pub fn structs<T>(&mut self, id: i16, values: &[T], mut write: impl FnMut(&T, &mut Fields<'_>)) {
        self.list(id, STRUCT, values.len());
        values.iter().for_each(|value| write_struct(self.out, |fields| write(value, fields)));
    }

    fn list(&mut self, id: i16, kind: u8, length: usize) {
        self.header(id, LIST);
        if length < SHORT_LIST {
            self.out.push((length as u8) << 4 | kind);
        } else {
            self.out.push(0xf0 | kind);
            write_varint(self.out, length as u64);
        }
    }

    fn header(&mut self, id: i16, kind: u8) {
        let step = id - self.last;
        assert!(step > 0, "fields are written in order");
        if step <= SHORT_STEP {
            self.out.push((step as u8) << 4 | kind);
        } else {
            self.out.push(kind);
            write_varint(self.out, zigzag(id.into()));
        }
        self.last = id;
    }
}

fn write_bytes(out: &mut Vec<u8>, value: &[u8]) {
    write_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::format::thrift::Scan;

    #[test]
    fn a_written_struct_is_read_back() {
        let mut out = Vec::new();
        let numbers = [0, -1, 63, 64, i64::MAX, i64::MIN];
        write_struct(&mut out, |fields| {
            fields.int(1, -7);
            fields.binary(4, b"text");
            fields.longs(5, &numbers);
            fields.nested(6, |inner| inner.flag(2, true));
            fields.longs(7, &[1; 300]);
            fields.int(23, 9);
            fields.int(38, 8);
        });
        let mut seen = Vec::new();
        let mut scan = Scan::new(&out, 0);
        scan.each_field(|scan, id, _| {
            match id {
                1 | 23 | 38 => seen.push(scan.integer()?),
                4 => assert_eq!(scan.binary()?, b"text"),
                5 | 7 => {
                    for _ in 0..scan.list_length()? {
                        seen.push(scan.integer()?);
                    }
                }
                _ => return Some(false),
            }
            Some(true)
        })
        .unwrap();
        assert_eq!(scan.at, out.len());
        assert_eq!(seen, [&[-7][..], &numbers, &[1; 300], &[9, 8]].concat());
    }
}
