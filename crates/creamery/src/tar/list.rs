//! Lists the content of an archive without unpacking it.

use std::io::Read;

use creamery_base::{Result, Timespec};
use tar::EntryType;

use super::packed;
use super::read::{Archive, ReadMember};
use crate::{FileType, Permissions};

/// A member of an archive.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::progress::NoProgress;
/// use creamery::tar::{list_tar, TarMember, TarOptions};
/// fs.write("/hello", "world")?;
/// let member = TarMember::new("/hello", "hello");
/// let mut archive = Vec::new();
/// fs.write_tar(&[member]).to(&mut archive)?;
/// list_tar(&archive[..], &mut |entry| {
///     assert_eq!((&entry.name[..], entry.size, entry.kind), (&b"hello"[..], 5, creamery::FileType::File));
///     Ok(())
/// })?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TarEntry {
    /// The name in the archive. It is not checked: it may lead anywhere.
    pub name: Vec<u8>,
    /// The type; a hard link is a regular file.
    pub kind: FileType,
    /// Whether the member is a hard link to the file in `link`.
    pub is_hard_link: bool,
    /// The target of a link; empty otherwise.
    pub link: Vec<u8>,
    /// Permission bits.
    pub permissions: Permissions,
    /// The number of the owner, which may be larger than a filesystem allows.
    pub uid: u64,
    /// The number of the group, which may be larger than a filesystem allows.
    pub gid: u64,
    /// Length of the file with its holes, bytes.
    pub size: u64,
    /// The time of the last change.
    pub mtime: Timespec,
    /// Major and minor number of a device, which may be larger than Linux allows.
    pub device: (u64, u64),
    /// Extended attributes, including ACLs in binary form.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TarEntry {
    fn of(member: ReadMember) -> Self {
        let kind = member.file_type();
        let ReadMember { facts, kind: entry, map } = member;
        let is_hard_link = entry == EntryType::Link;
        let leads = is_hard_link || entry == EntryType::Symlink;
        Self {
            kind,
            is_hard_link,
            link: if leads { facts.link } else { Vec::new() },
            permissions: Permissions::from_mode(facts.mode),
            uid: facts.uid,
            gid: facts.gid,
            size: map.size,
            mtime: facts.mtime,
            device: facts.device,
            xattrs: facts.xattrs,
            name: facts.name,
        }
    }
}

/// Reads an archive, which may be compressed with gzip or zstd, and calls `each` with every member, in order, until `each` fails.
///
/// # Errors
/// When the archive cannot be read on; `each` has got the members before. The errors of `each`.
pub fn list_tar(archive: impl Read, each: &mut dyn FnMut(TarEntry) -> Result<()>) -> Result<()> {
    let mut archive = Archive::new(packed::unpacked(Box::new(archive))?);
    while let Some(member) = archive.next()? {
        each(TarEntry::of(member))?;
    }
    Ok(())
}
