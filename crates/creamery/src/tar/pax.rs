//! Extended headers: records of `LENGTH KEY=VALUE`, each followed by a newline. Values are bytes and may contain
//! newlines, so the length delimits a record.

use creamery_base::{Error, ErrorKind, Result};

/// Appends a record.
pub(super) fn push(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // A space, the equals sign and the newline; then the digits of the length, which count themselves.
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    records.extend_from_slice(len.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn damaged() -> Error {
    Error::new(ErrorKind::InvalidData, "extended header: wrong record length")
}

/// Parses records, in order.
pub(super) fn records(mut bytes: &[u8]) -> Result<Vec<(&[u8], &[u8])>> {
    let mut found = Vec::new();
    // Zeros follow the last record.
    while bytes.first().is_some_and(|&byte| byte != 0) {
        let space = bytes.iter().take(20).position(|&byte| byte == b' ').ok_or_else(damaged)?;
        let len = number(&bytes[..space]).and_then(|len| usize::try_from(len).ok());
        let len = len.filter(|&len| len > space + 1 && len <= bytes.len()).ok_or_else(damaged)?;
        let (record, rest) = bytes.split_at(len);
        let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(damaged)?;
        let sign = record.iter().position(|&byte| byte == b'=').ok_or_else(damaged)?;
        found.push((&record[..sign], &record[sign + 1..]));
        bytes = rest;
    }
    Ok(found)
}

/// Parses a decimal number that consists of digits only.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Encodes the name of an attribute for a key: without characters that end a key.
pub(super) fn encode_name(name: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => encoded.extend_from_slice(b"%25"),
            b'=' => encoded.extend_from_slice(b"%3D"),
            _ => encoded.push(byte),
        }
    }
    encoded
}

/// Decodes the name of an attribute from a key.
pub(super) fn decode_name(mut name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    while let Some((&byte, rest)) = name.split_first() {
        let (byte, len) = match name.get(..3) {
            Some(b"%25") => (b'%', 3),
            Some(b"%3D") => (b'=', 3),
            _ => (byte, 1),
        };
        decoded.push(byte);
        name = if len == 1 { rest } else { &name[len..] };
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for len in (0..300).chain([980, 985, 990, 995, 9980, 9990]) {
            let value = vec![b'\n'; len];
            let mut bytes = Vec::new();
            push(&mut bytes, b"key", &value);
            push(&mut bytes, b"k=", b"v");
            let found = records(&bytes).expect("records");
            assert_eq!(found[0], (&b"key"[..], &value[..]), "{len}");
            assert_eq!(found[1], (&b"k"[..], &b"=v"[..]));
        }
        let mut bytes = Vec::new();
        push(&mut bytes, b"path", b"x");
        assert_eq!(bytes, b"9 path=x\n");
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for bytes in
            [&b"x"[..], b"5 a=b", b"99 a=b\n", b"0 a=b\n", b"2 a=b\n", b"6 ab=\0", b"4 ab\n", b"-6 a=b\n"]
        {
            assert!(records(bytes).is_err(), "{}", bytes.escape_ascii());
        }
        assert!(records(b"99999999999999999999999 a=b\n").is_err());
    }

    #[test]
    fn names_survive() {
        let name = b"user.a=b%3D%25%";
        assert_eq!(decode_name(&encode_name(name)), name);
    }
}
