//! Shell patterns over bytes, like fnmatch(3) without flags: `*` and `?` match slashes and leading dots, too.

use std::str::FromStr;

use creamery::{Error, Result};

pub use crate::expand::expand;

/// A pattern like `*.conf`: `*` matches any bytes, `?` one byte, `[a-c]`, `[!a-c]` and `[[:digit:]]` one byte of a set, and `\` makes
/// the next byte literal.
///
/// ```
/// let pattern: creamery_tools::glob::Glob = "*.[ch]".parse()?;
/// assert!(pattern.matches(b"main.c") && !pattern.matches(b"main.cc"));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Glob(Vec<Token>);

/// The first and the last byte of a range.
type Range = (u8, u8);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Anything,
    AnyByte,
    Byte(u8),
    /// Ranges, and whether the set is negated.
    OneOf(Vec<Range>, bool),
}

impl Token {
    fn takes(&self, byte: u8) -> bool {
        match self {
            Self::Anything => false,
            Self::AnyByte => true,
            Self::Byte(own) => *own == byte,
            Self::OneOf(ranges, negated) => {
                ranges.iter().any(|&(first, last)| (first..=last).contains(&byte)) != *negated
            }
        }
    }
}

/// The bytes of each class, as in the C locale.
const CLASSES: &[(&[u8], &[Range])] = &[
    (b"alnum", &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')]),
    (b"alpha", &[(b'A', b'Z'), (b'a', b'z')]),
    (b"blank", &[(b' ', b' '), (b'\t', b'\t')]),
    (b"cntrl", &[(0, 31), (127, 127)]),
    (b"digit", &[(b'0', b'9')]),
    (b"graph", &[(b'!', b'~')]),
    (b"lower", &[(b'a', b'z')]),
    (b"print", &[(b' ', b'~')]),
    (b"punct", &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')]),
    (b"space", &[(b' ', b' '), (b'\t', b'\r')]),
    (b"upper", &[(b'A', b'Z')]),
    (b"xdigit", &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')]),
];

/// Parses a class like `[:digit:]` in brackets; returns it with the rest of the text.
fn class_of(text: &[u8]) -> Option<(&'static [Range], &[u8])> {
    let rest = text.strip_prefix(b"[:")?;
    let (name, ranges) = CLASSES.iter().find(|(name, _)| rest.starts_with(name))?;
    Some((ranges, rest[name.len()..].strip_prefix(b":]")?))
}

/// Parses the text behind a `[`; returns the set with the text behind its `]`. `None` without a `]`: then the bracket is an ordinary byte.
fn one_of(text: &[u8]) -> Option<(Token, &[u8])> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let mut at = usize::from(negated);
    let first = at;
    let mut ranges = Vec::new();
    loop {
        let byte = *text.get(at)?;
        if byte == b']' && at > first {
            return Some((Token::OneOf(ranges, negated), &text[at + 1..]));
        }
        if let Some((class, behind)) = class_of(&text[at..]) {
            ranges.extend_from_slice(class);
            at = text.len() - behind.len();
            continue;
        }
        let escaped = byte == b'\\';
        let start = if escaped { *text.get(at + 1)? } else { byte };
        at += 1 + usize::from(escaped);
        match (text.get(at), text.get(at + 1)) {
            (Some(b'-'), Some(&end)) if end != b']' => {
                ranges.push((start, end));
                at += 2;
            }
            _ => ranges.push((start, start)),
        }
    }
}

impl Glob {
    /// Makes a pattern from bytes, which need not be UTF-8.
    #[must_use]
    pub fn new(mut pattern: &[u8]) -> Self {
        let mut tokens = Vec::new();
        while let Some((&byte, mut rest)) = pattern.split_first() {
            let token = match byte {
                b'*' => Token::Anything,
                b'?' => Token::AnyByte,
                b'[' => match one_of(rest) {
                    Some((token, behind)) => {
                        rest = behind;
                        token
                    }
                    None => Token::Byte(byte),
                },
                b'\\' => match rest.split_first() {
                    Some((&escaped, behind)) => {
                        rest = behind;
                        Token::Byte(escaped)
                    }
                    None => Token::Byte(byte),
                },
                _ => Token::Byte(byte),
            };
            tokens.push(token);
            pattern = rest;
        }
        Self(tokens)
    }

    /// Whether `text` has a character with a special meaning in patterns.
    ///
    /// ```
    /// assert!(creamery_tools::glob::Glob::is_pattern(b"*.conf") && !creamery_tools::glob::Glob::is_pattern(b"conf"));
    /// ```
    #[must_use]
    pub fn is_pattern(text: &[u8]) -> bool {
        text.iter().any(|byte| b"*?[".contains(byte))
    }

    /// Whether the pattern matches all of `text`.
    #[must_use]
    pub fn matches(&self, text: &[u8]) -> bool {
        let (mut token, mut byte) = (0, 0);
        // The position to try with one byte more for the last `*`: earlier ones need no second try.
        let mut again: Option<(usize, usize)> = None;
        loop {
            match self.0.get(token) {
                Some(Token::Anything) => {
                    again = Some((token + 1, byte));
                    token += 1;
                    continue;
                }
                Some(one) if text.get(byte).is_some_and(|&byte| one.takes(byte)) => {
                    (token, byte) = (token + 1, byte + 1);
                    continue;
                }
                None if byte == text.len() => return true,
                _ => {}
            }
            match again {
                Some((after, from)) if from < text.len() => {
                    again = Some((after, from + 1));
                    (token, byte) = (after, from + 1);
                }
                _ => return false,
            }
        }
    }
}

impl FromStr for Glob {
    type Err = Error;

    fn from_str(pattern: &str) -> Result<Self> {
        Ok(Self::new(pattern.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_says() {
        for (pattern, text, matches) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*ab", "aab", true),
            ("?", "", false),
            ("?", "/", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a\\", "a\\", true),
            ("[\\]]", "]", true),
            ("f[[:digit:]]", "f1", true),
            ("f[![:digit:]_]", "f1", false),
            ("f[![:digit:]_]", "fx", true),
            ("[[:nosuch:]]", ":]", true),
        ] {
            assert_eq!(Glob::new(pattern.as_bytes()).matches(text.as_bytes()), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time_that_matters() {
        let pattern = Glob::new(&b"*a".repeat(200));
        assert!(!pattern.matches(&[b'a'; 199]));
        assert!(!pattern.matches(&[b"a".repeat(10_000), b"b".to_vec()].concat()));
    }
}
