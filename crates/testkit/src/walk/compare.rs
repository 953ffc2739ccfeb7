//! Two walks beside each other.

use std::fmt::{self, Debug, Write as _};

use anyhow::{Result, bail};

use super::{Entry, Walk};

const TOLD_MAX: usize = 40;

/// Which of the attributes that legitimately differ are compared all the same, and which are not.
///
/// ```
/// use creamery_testkit::walk::Compare;
/// let with_births = Compare { btime: true, ..Compare::default() };
/// assert!(with_births.owners);
/// ```
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is the attribute it names")]
pub struct Compare {
    pub atime: bool,
    pub ctime: bool,
    pub btime: bool,
    pub mtime: bool,
    pub owners: bool,
    pub holes: bool,
    /// The root's own attributes: an image's root folder is not always made from the source's.
    pub root: bool,
    /// Xattrs with these prefixes are not compared.
    pub xattrs_not: &'static [&'static str],
}

impl Default for Compare {
    fn default() -> Self {
        Self {
            atime: false,
            ctime: false,
            btime: false,
            mtime: true,
            owners: true,
            holes: true,
            root: true,
            xattrs_not: &["security.selinux", "btrfs."],
        }
    }
}

/// What differs between `want` and `have`, a sentence each; none when they are the same.
#[must_use]
pub fn differences(want: &Walk, have: &Walk, compare: &Compare) -> Vec<String> {
    let mut told = Vec::new();
    for (path, entry) in want.entries() {
        match have.entry(path) {
            None => told.push(format!("{}: missing, it is a {}", Shown(path), entry.kind)),
            Some(_) if path == b"." && !compare.root => {}
            Some(other) => compare_entry(path, entry, other, compare, &mut told),
        }
    }
    for (path, entry) in have.entries().filter(|(path, _)| want.entry(path).is_none()) {
        told.push(format!("{}: not wanted, it is a {}", Shown(path), entry.kind));
    }
    told
}

/// Insists that two walks show the same tree.
///
/// # Errors
/// With the first differences in words.
pub fn expect_same(what: &str, want: &Walk, have: &Walk, compare: &Compare) -> Result<()> {
    let told = differences(want, have, compare);
    if told.is_empty() {
        return Ok(());
    }
    let mut text = format!("{what}: {} differences", told.len());
    for line in told.iter().take(TOLD_MAX) {
        let _ = write!(text, "\n    {line}");
    }
    bail!(text)
}

fn compare_entry(path: &[u8], want: &Entry, have: &Entry, compare: &Compare, told: &mut Vec<String>) {
    let mut check = |what: &str, want: &dyn Debug, have: &dyn Debug, same: bool| {
        if !same {
            told.push(format!("{}: {what} is {have:?}, want {want:?}", Shown(path)));
        }
    };
    macro_rules! field {
        ($name:ident, $if:expr) => {
            if $if {
                check(stringify!($name), &want.$name, &have.$name, want.$name == have.$name);
            }
        };
    }
    let folder = want.kind == "folder";
    field!(kind, true);
    check("mode", &Octal(want.mode), &Octal(have.mode), want.mode == have.mode);
    field!(uid, compare.owners);
    field!(gid, compare.owners);
    field!(rdev, want.kind.ends_with("device"));
    field!(size, !folder);
    field!(atime, compare.atime);
    field!(mtime, compare.mtime);
    field!(ctime, compare.ctime);
    field!(btime, compare.btime);
    field!(nlink, !folder);
    field!(data, compare.holes);
    if want.links != have.links {
        told.push(format!("{}: linked as {}, want {}", Shown(path), Names(&have.links), Names(&want.links)));
    }
    if want.target != have.target {
        told.push(format!(
            "{}: points to {}, want {}",
            Shown(path),
            Shown(&have.target),
            Shown(&want.target)
        ));
    }
    if want.content != have.content {
        told.push(format!("{}: content differs", Shown(path)));
    }
    compare_xattrs(path, want, have, compare, told);
}

fn compare_xattrs(path: &[u8], want: &Entry, have: &Entry, compare: &Compare, told: &mut Vec<String>) {
    let counts = |name: &[u8]| !compare.xattrs_not.iter().any(|prefix| name.starts_with(prefix.as_bytes()));
    for (name, value) in want.xattrs.iter().filter(|(name, _)| counts(name)) {
        match have.xattrs.get(name) {
            None => told.push(format!("{}: xattr {} missing", Shown(path), Shown(name))),
            Some(other) if other != value => told.push(format!(
                "{}: xattr {} is {}, want {}",
                Shown(path),
                Shown(name),
                Shown(other),
                Shown(value)
            )),
            Some(_) => {}
        }
    }
    for name in have.xattrs.keys().filter(|name| counts(name) && !want.xattrs.contains_key(*name)) {
        told.push(format!("{}: xattr {} not wanted", Shown(path), Shown(name)));
    }
}

struct Octal(u32);

impl Debug for Octal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// Bytes as a person can read them, shortened.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (head, cut) = if self.0.len() > 80 { (&self.0[..80], "...") } else { (self.0, "") };
        write!(f, "{}{cut}", head.escape_ascii())
    }
}

struct Names<'a>(&'a [Vec<u8>]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names", self.0.len())?;
        for name in self.0.iter().take(3) {
            write!(f, " {}", Shown(name))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Compare, differences};
    use crate::Scratch;
    use crate::walk::Walk;

    #[test]
    fn each_kind_of_difference_is_told() {
        let scratch = Scratch::new("compare").unwrap();
        let (one, two) = (scratch.dir("one").unwrap(), scratch.dir("two").unwrap());
        for dir in [&one, &two] {
            std::fs::write(dir.join("same"), b"same").unwrap();
            std::fs::write(dir.join("mode"), b"").unwrap();
            std::fs::write(dir.join("a"), b"").unwrap();
        }
        std::fs::write(one.join("gone"), b"").unwrap();
        std::fs::write(two.join("same"), b"not!").unwrap();
        std::fs::set_permissions(two.join("mode"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::set_permissions(one.join("mode"), std::fs::Permissions::from_mode(0o644)).unwrap();
        std::fs::hard_link(two.join("a"), two.join("b")).unwrap();
        let compare = Compare { mtime: false, root: false, ..Compare::default() };
        let told = differences(&Walk::take(&one).unwrap(), &Walk::take(&two).unwrap(), &compare);
        let expected = [
            "a: nlink is 2, want 1",
            "a: linked as 2 names a b, want 0 names",
            "gone: missing, it is a file",
            "mode: mode is 0600, want 0644",
            "same: content differs",
            "b: not wanted, it is a file",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_tree_equals_itself() {
        let scratch = Scratch::new("itself").unwrap();
        std::fs::write(scratch.file("file"), b"content").unwrap();
        std::os::unix::fs::symlink("file", scratch.file("link")).unwrap();
        let walk = Walk::take(scratch.path()).unwrap();
        let all = Compare { atime: true, ctime: true, btime: true, ..Compare::default() };
        assert_eq!(differences(&walk, &walk, &all), Vec::<String>::new());
        assert_eq!(walk.len(), 3);
    }
}
