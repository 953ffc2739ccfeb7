//! File modes in the syntax of chmod(1).

use std::str::FromStr;

use creamery_base::{Error, Result};

use crate::{FileType, Permissions};

const SET_IDS: u32 = 0o6000;
const ALL_BITS: u32 = 0o7777;
/// An octal number of at least this many digits also sets or clears set-user-id and set-group-id of directories.
const EXPLICIT_DIGITS: usize = 5;

/// A change of permission bits: an octal mode, or a list like `u=rwX,go-w`, as in chmod(1).
///
/// ```
/// use creamery::{FileType, Permissions};
/// use creamery::attributes::ModeChange;
/// let change: ModeChange = "u+s,go-w".parse()?;
/// let new = change.apply(Permissions::from_mode(0o775), FileType::File, 0o022);
/// assert_eq!(new.mode(), 0o4755);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModeChange(Vec<ModeStep>);

/// One step of a change; steps apply from left to right.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ModeStep {
    /// Bits that the step changes; without any named, all bits but those of the umask.
    who: Option<u32>,
    operator: Operator,
    what: ModeBits,
    /// Whether set-user-id and set-group-id of a directory may change. Otherwise they stay.
    reaches_set_ids: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ModeBits {
    Bits(u32),
    /// These bits, and execution where it makes sense: for directories, and for files with an execute bit.
    BitsAndSearch(u32),
    /// The bits that user (6), group (3) or others (0) have.
    CopyOf(u32),
}

impl ModeChange {
    /// Returns the permission bits of a file with `old` after the change. A change that names none of `ugoa` leaves the bits of `umask`
    /// alone.
    #[must_use]
    pub fn apply(&self, old: Permissions, kind: FileType, umask: u32) -> Permissions {
        let is_dir = kind.is_dir();
        let step = |mode: u32, step: &ModeStep| {
            let kept_ids = if is_dir && !step.reaches_set_ids { SET_IDS } else { 0 };
            let bits = match step.what {
                ModeBits::Bits(bits) => bits,
                ModeBits::BitsAndSearch(bits) if is_dir || mode & 0o111 != 0 => bits | 0o111,
                ModeBits::BitsAndSearch(bits) => bits,
                ModeBits::CopyOf(shift) => (mode >> shift & 7) * 0o111,
            };
            let bits = bits & step.who.unwrap_or(!umask) & !kept_ids;
            match step.operator {
                Operator::Add => mode | bits,
                Operator::Remove => mode & !bits,
                // A step without `ugoa` sets all bits, those of the umask to zero.
                Operator::Set => mode & (step.who.map_or(0, |who| !who) | kept_ids) | bits,
            }
        };
        Permissions::from_mode(self.0.iter().fold(old.mode(), step))
    }
}

fn invalid(text: &str) -> Error {
    Error::invalid(format!("invalid mode '{text}': expected one such as 644 or u=rwX,go-w"))
}

/// Reads an octal number at the beginning; returns it with the rest of the text.
fn octal(text: &str) -> Option<(u32, usize, &str)> {
    let digits = text.bytes().take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    let mode = u32::from_str_radix(&text[..digits], 8).ok().filter(|&mode| mode <= ALL_BITS)?;
    Some((mode, digits, &text[digits..]))
}

fn operator(c: char) -> Option<Operator> {
    match c {
        '+' => Some(Operator::Add),
        '-' => Some(Operator::Remove),
        '=' => Some(Operator::Set),
        _ => None,
    }
}

/// Reads the operand of an operator, up to the next operator; returns it with the rest of the text.
fn what(text: &str) -> Option<(ModeBits, bool, &str)> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let (bits, _, rest) = octal(text)?;
        return Some((ModeBits::Bits(bits), true, rest));
    }
    let end = text.find(|c| operator(c).is_some()).unwrap_or(text.len());
    let (letters, rest) = text.split_at(end);
    if let Some(shift) = match letters {
        "u" => Some(6),
        "g" => Some(3),
        "o" => Some(0),
        _ => None,
    } {
        return Some((ModeBits::CopyOf(shift), false, rest));
    }
    let (mut bits, mut searches) = (0, false);
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            's' => bits |= SET_IDS,
            't' => bits |= 0o1000,
            'X' => searches = true,
            _ => return None,
        }
    }
    let what = if searches { ModeBits::BitsAndSearch(bits) } else { ModeBits::Bits(bits) };
    Some((what, bits & SET_IDS != 0, rest))
}

/// Reads `ugoa`, then operators with their operands.
fn clause(text: &str, steps: &mut Vec<ModeStep>) -> Option<()> {
    let end = text.find(|c| !matches!(c, 'u' | 'g' | 'o' | 'a')).unwrap_or(text.len());
    let (names, mut rest) = text.split_at(end);
    let bits = |name| match name {
        'u' => 0o4700,
        'g' => 0o2070,
        'o' => 0o1007,
        _ => ALL_BITS,
    };
    let who = names.chars().map(bits).reduce(|all, bits| all | bits);
    if rest.is_empty() {
        return None;
    }
    while let Some(first) = rest.chars().next() {
        let operator = operator(first)?;
        let (what, reaches_set_ids, behind) = what(&rest[1..])?;
        // A number stands alone: it has no `ugoa`, and nothing follows it.
        let is_number = rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if is_number && (who.is_some() || !behind.is_empty()) {
            return None;
        }
        let who = if is_number { Some(ALL_BITS) } else { who };
        steps.push(ModeStep { who, operator, what, reaches_set_ids });
        rest = behind;
    }
    Some(())
}

impl FromStr for ModeChange {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let (bits, digits, rest) = octal(text).ok_or_else(|| invalid(text))?;
            if !rest.is_empty() {
                return Err(invalid(text));
            }
            let reaches_set_ids = digits >= EXPLICIT_DIGITS || bits & SET_IDS != 0;
            let (who, operator, what) = (Some(ALL_BITS), Operator::Set, ModeBits::Bits(bits));
            let number = ModeStep { who, operator, what, reaches_set_ids: digits >= EXPLICIT_DIGITS };
            // Set-id bits that the number contains are set, the others stay.
            let ids = ModeStep { operator: Operator::Add, reaches_set_ids, ..number.clone() };
            return Ok(Self(vec![number, ids]));
        }
        let mut steps = Vec::new();
        text.split(',').try_for_each(|part| clause(part, &mut steps)).ok_or_else(|| invalid(text))?;
        Ok(Self(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_do_what_chmod_does_with_them() {
        let (file, dir) = (FileType::File, FileType::Directory);
        for (text, old, kind, new) in [
            ("644", 0o755, file, 0o644),
            ("4755", 0o600, file, 0o4755),
            ("0", 0o7777, file, 0),
            ("755", 0o2700, dir, 0o2755),
            ("00755", 0o2700, dir, 0o755),
            ("2755", 0o4700, dir, 0o6755),
            ("u+x", 0o644, file, 0o744),
            ("+x", 0o644, file, 0o755),
            ("+w", 0o444, file, 0o644),
            ("a+w", 0o444, file, 0o666),
            ("-w", 0o666, file, 0o466),
            ("=rw", 0o777, file, 0o644),
            ("go-rwx,u=rwX", 0o677, file, 0o600),
            ("u=rwX,go-rwx", 0o677, file, 0o700),
            ("a+X", 0o644, file, 0o644),
            ("a+X", 0o644, dir, 0o755),
            ("g=u", 0o750, file, 0o770),
            ("o=g-w", 0o770, file, 0o775),
            ("u=rwx", 0o4600, dir, 0o4700),
            ("u=rwxs,g-s", 0o2600, dir, 0o4700),
            ("u-s", 0o4755, file, 0o755),
            ("+t", 0o777, dir, 0o1777),
            ("=755", 0o2700, dir, 0o755),
            ("-4000", 0o4755, dir, 0o755),
            ("u=", 0o755, file, 0o055),
        ] {
            let change: ModeChange = text.parse().expect(text);
            let found = change.apply(Permissions::from_mode(old), kind, 0o022).mode();
            assert_eq!(found, new, "{text} of {old:o}: {found:o}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "77777", "u", "u+q", "u+rg", "rw", "a=r,", "u=7", "755x"] {
            assert!(text.parse::<ModeChange>().is_err(), "{text}");
        }
    }
}
