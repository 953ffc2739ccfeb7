//! Names of members in the quoting style `escape` of GNU tar, on a terminal and elsewhere.

use std::fmt::{self, Write};

use creamery_base::is_drawn;

/// Shows a name on one line, from which its bytes can be recovered: a backslash is doubled, and unprintable characters and bytes that are
/// not UTF-8 are escapes as in C.
#[derive(Clone, Copy)]
pub(super) struct TarQuoted<'a>(pub(super) &'a [u8]);

impl fmt::Display for TarQuoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octal = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
        };
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\\' => f.write_str("\\\\")?,
                    '\x07' => f.write_str("\\a")?,
                    '\x08' => f.write_str("\\b")?,
                    '\t' => f.write_str("\\t")?,
                    '\n' => f.write_str("\\n")?,
                    '\x0b' => f.write_str("\\v")?,
                    '\x0c' => f.write_str("\\f")?,
                    '\r' => f.write_str("\\r")?,
                    c if is_drawn(c) => f.write_char(c)?,
                    c => octal(f, c.encode_utf8(&mut [0; 4]).as_bytes())?,
                }
            }
            octal(f, chunk.invalid())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_line_with_the_escapes_of_gnu_tar() {
        for (name, shown) in [
            (&b"plain name"[..], "plain name"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            (b"a\nb\tc\\d", "a\\nb\\tc\\\\d"),
            (b"\x01\x07\x08\x0b\x0c\r\x1b[31m\x7f", "\\001\\a\\b\\v\\f\\r\\033[31m\\177"),
            (b"\xff\xc3", "\\377\\303"),
            (b"\xc2\x85", "\\302\\205"),
            ("\u{202e}".as_bytes(), "\\342\\200\\256"),
        ] {
            assert_eq!(TarQuoted(name).to_string(), shown);
        }
    }
}
