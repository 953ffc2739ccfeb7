//! Converts ACLs between the text of archives (`user:1000:r-x`) and the extended attribute of a filesystem.

use crate::Filesystem;
use crate::attributes::Owner;

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;
const NO_ID: u32 = u32::MAX;

/// Tags, their words, and whether a name follows.
const TAGS: [(u16, &str, bool); 6] = [
    (0x01, "user", false),
    (0x02, "user", true),
    (0x04, "group", false),
    (0x08, "group", true),
    (0x10, "mask", false),
    (0x20, "other", false),
];

/// The text of an attribute, with numbers for names; `None` when it is damaged.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let entries = value.strip_prefix(&VERSION.to_le_bytes())?;
    let mut text = String::new();
    let mut entries = entries.chunks_exact(ENTRY_LEN);
    for entry in &mut entries {
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let (tag, bits) = (half(0), half(2));
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let &(_, word, is_named) = TAGS.iter().find(|known| known.0 == tag)?;
        let letter = |bit: u16, letter| if bits & bit != 0 { letter } else { '-' };
        let who = if is_named { id.to_string() } else { String::new() };
        text += &format!("{word}:{who}:{}{}{}\n", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'));
    }
    entries.remainder().is_empty().then_some(text)
}

/// The attribute for a text, which may name users and groups that `fs` knows; `None` when the text is invalid.
pub(super) fn from_text(text: &[u8], fs: &Filesystem) -> Option<Vec<u8>> {
    let mut entries = Vec::new();
    for line in std::str::from_utf8(text).ok()?.split(['\n', ',']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split(':').collect();
        let (word, who, bits) = match fields[..] {
            [word, who, bits] => (word, who, bits),
            // From star: the number comes last.
            [word, _, bits, number] => (word, number, bits),
            // From some programs, for mask and other.
            [word, bits] => (word, "", bits),
            _ => return None,
        };
        let word = match word {
            "u" => "user",
            "g" => "group",
            "m" => "mask",
            "o" => "other",
            word => word,
        };
        let &(tag, ..) = TAGS.iter().find(|known| known.1 == word && known.2 != who.is_empty())?;
        let id = if who.is_empty() { NO_ID } else { number(who, word, fs)? };
        entries.push((tag, id, bits_of(bits)?));
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, bits) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&bits.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Some(value)
}

fn number(who: &str, word: &str, fs: &Filesystem) -> Option<u32> {
    if word == "user" {
        return Owner::parse(who, fs).ok()?.uid;
    }
    Owner::parse(&format!(":{who}"), fs).ok()?.gid
}

fn bits_of(text: &str) -> Option<u16> {
    text.chars().try_fold(0, |bits, letter| {
        Some(match letter {
            'r' => bits | 4,
            'w' => bits | 2,
            'x' => bits | 1,
            '-' => bits,
            _ => return None,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    #[test]
    fn words_and_attribute_say_the_same() {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("disk.img");
        Image::make(&image).size(256 << 20).run().expect("it is made");
        let fs = Image::open(&image).expect("it opens");
        let text = "user::rwx\nuser:1000:r--\ngroup::r-x\ngroup:7:--x\nmask::r-x\nother::---\n";
        let value = from_text(text.as_bytes(), &fs).expect("it is one");
        assert_eq!(value.len(), 4 + 6 * ENTRY_LEN);
        assert_eq!(to_text(&value).as_deref(), Some(text));
        let of_star = "user::rwx,user:ada:r--:1000,group::r-x,group:milk:--x:7,mask::r-x,other::---";
        assert_eq!(from_text(of_star.as_bytes(), &fs), Some(value.clone()));
        for bad in ["user", "user::rwq", "who::rwx", "user:ada:r--", "mask:5:rwx", "a:b:c:d:e"] {
            assert_eq!(from_text(bad.as_bytes(), &fs), None, "{bad}");
        }
        for bad in [&value[..value.len() - 1], &value[1..], &[][..]] {
            assert_eq!(to_text(bad), None);
        }
    }
}
