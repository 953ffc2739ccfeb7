//! Owners by name, from an image's own /etc/passwd and /etc/group.

use std::path::Path;

use creamery_base::{Error, ErrorKind, Result};

use crate::Filesystem;

/// The longest table that is read, bytes.
const TABLE_LEN_MAX: u64 = 16 << 20;

/// A file of users or groups.
#[derive(Clone, Copy)]
struct Table {
    path: &'static str,
    what: &'static str,
}

const USERS: Table = Table { path: "/etc/passwd", what: "user" };
const GROUPS: Table = Table { path: "/etc/group", what: "group" };

/// An owner and a group; `None` leaves the old one.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::attributes::Owner;
/// fs.create_dir("/etc")?;
/// fs.write("/etc/passwd", "ada:x:1000:100::/home/ada:/bin/sh\n")?;
/// assert_eq!(Owner::parse("ada:7", &fs)?, Owner { uid: Some(1000), gid: Some(7) });
/// assert!(Owner::parse("bob", &fs).is_err());
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The new owner.
    pub uid: Option<u32>,
    /// The new group.
    pub gid: Option<u32>,
}

impl Owner {
    /// Parses `USER`, `USER:GROUP`, `USER:` (with the login group of the user) or `:GROUP`. Each is a number, or a name in
    /// the /etc/passwd and /etc/group of `fs`.
    ///
    /// # Errors
    /// When the name or its table does not exist.
    pub fn parse(text: &str, fs: &Filesystem) -> Result<Self> {
        let (user, group) = match text.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (text, None),
        };
        let named = |name: &str, table: Table| -> Result<Option<u32>> {
            if name.is_empty() { Ok(None) } else { fs.number_of(name, table).map(Some) }
        };
        let (uid, mut gid) = (named(user, USERS)?, named(group.unwrap_or_default(), GROUPS)?);
        if group == Some("") && !user.is_empty() {
            gid = Some(fs.login_group(user)?);
        }
        if (uid, gid) == (None, None) && text != ":" {
            return Err(Error::invalid(format!(
                "invalid owner '{text}': expected USER, USER:GROUP or :GROUP"
            )));
        }
        Ok(Self { uid, gid })
    }
}

/// The fields of a line, which are separated by colons.
fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|&byte| byte == b':').collect()
}

fn number(field: Option<&&[u8]>) -> Option<u32> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

impl Filesystem {
    fn number_of(&self, name: &str, table: Table) -> Result<u32> {
        // As in chown(1): with a plus sign the text is always a number.
        let digits = name.strip_prefix('+').unwrap_or(name);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let name = digits;
            let number = name.parse().ok().filter(|&number| number != u32::MAX);
            let too_large = || {
                Error::invalid(format!("invalid {} id {name}: expected less than {}", table.what, u32::MAX))
            };
            return number.ok_or_else(too_large);
        }
        self.find(name, table, 2)
    }

    /// The group number behind a user's number.
    fn login_group(&self, user: &str) -> Result<u32> {
        if user.bytes().all(|byte| byte.is_ascii_digit()) {
            let what = format!("'{user}:' needs a user name for the login group, found an id");
            return Err(Error::invalid(what));
        }
        self.find(user, USERS, 3)
    }

    /// The number in field `field` of the line that begins with `name`.
    fn find(&self, name: &str, table: Table, field: usize) -> Result<u32> {
        let Table { path, what } = table;
        let bytes = match self.open(Path::new(path)) {
            Ok(file) if file.metadata()?.len() > TABLE_LEN_MAX => {
                return Err(Error::invalid(format!("{path} exceeds {TABLE_LEN_MAX} bytes")));
            }
            Ok(_) => self.read(path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let text = format!("{what} '{name}': the image has no {path}, expected an id");
                return Err(Error::new(ErrorKind::NotFound, text));
            }
            Err(error) => return Err(error),
        };
        let is_named = |fields: &Vec<&[u8]>| fields.first() == Some(&name.as_bytes());
        let line = bytes.split(|&byte| byte == b'\n').map(fields).find(is_named);
        let unknown = || Error::new(ErrorKind::NotFound, format!("{what} '{name}' in the image's {path}"));
        number(line.ok_or_else(unknown)?.get(field))
            .ok_or_else(|| Error::invalid(format!("the image's {path} has no id for '{name}'")))
    }
}
