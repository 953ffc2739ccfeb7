//! Escaping of names and other text from outside for display: bytes on a disk must not move a terminal's cursor, colour the
//! text that follows, or make up lines of their own.

use std::fmt;

/// Bytes for a message or a terminal. Control characters, characters that turn the direction of writing, and bytes that are not
/// UTF-8 appear as escapes; everything else appears unchanged.
///
/// ```
/// use creamery_base::Escaped;
/// assert_eq!(Escaped(b"a\x1b[2Jb\n\xff\xc3\xa4").to_string(), "a\\u{1b}[2Jb\\n\\xff\u{e4}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

/// Whether a terminal only draws a character: it is no control character and does not turn the direction of writing.
///
/// ```
/// assert!(creamery_base::is_drawn('\u{e4}') && !creamery_base::is_drawn('\n') && !creamery_base::is_drawn('\u{202e}'));
/// ```
#[must_use]
pub fn is_drawn(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns
}

fn write_escaped(out: &mut dyn fmt::Write, text: &str) -> fmt::Result {
    let mut rest = text;
    while let Some(at) = rest.find(|c| !is_drawn(c)) {
        let (drawn, after) = rest.split_at(at);
        let c = after.chars().next().expect("one was found");
        out.write_str(drawn)?;
        write!(out, "{}", c.escape_default())?;
        rest = &after[c.len_utf8()..];
    }
    out.write_str(rest)
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write_escaped(f, chunk.valid())?;
            chunk.invalid().iter().try_for_each(|byte| write!(f, "{}", byte.escape_ascii()))?;
        }
        Ok(())
    }
}

/// Writes text in the way of [`Escaped`].
pub(crate) struct Escaping<'a, 'b>(pub(crate) &'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write_escaped(self.0, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_stays_and_everything_else_is_escaped() {
        for (bytes, shown) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("gr\u{fc}n \u{1f9c0}".as_bytes(), "gr\u{fc}n \u{1f9c0}"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            (b"two\nlines\r\t", "two\\nlines\\r\\t"),
            (b"\x7f\xc2\x9b31m", "\\u{7f}\\u{9b}31m"),
            ("a\u{202e}txt.exe".as_bytes(), "a\\u{202e}txt.exe"),
            (b"\xff\xfe", "\\xff\\xfe"),
            (b"", ""),
        ] {
            assert_eq!(Escaped(bytes).to_string(), shown);
            // Text that is escaped already stays the same.
            assert_eq!(Escaped(shown.as_bytes()).to_string(), shown);
        }
    }
}
