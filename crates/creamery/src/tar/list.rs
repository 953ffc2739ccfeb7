//! What is in an archive, without unpacking it.

use std::io::Read;

use creamery_base::{Result, Timespec};
use tar::EntryType;

use super::packed;
use super::read::{Archive, Member};
use crate::{FileType, Permissions};

/// What an archive says of one of its members.
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
    /// Its name as the archive has it: nobody has looked where it leads to.
    pub name: Vec<u8>,
    /// What it is; another name of a file is one.
    pub kind: FileType,
    /// Whether it is another name of a file, which `link` names.
    pub is_hard_link: bool,
    /// Where a link leads to; empty for what is none.
    pub link: Vec<u8>,
    /// Permission bits.
    pub permissions: Permissions,
    /// The owner's number, which may be larger than there are any.
    pub uid: u64,
    /// The group's number, likewise.
    pub gid: u64,
    /// Bytes of the file, with its holes.
    pub size: u64,
    /// The time of the last change.
    pub mtime: Timespec,
    /// Major and minor number of a device, which may be larger than there are any.
    pub device: (u64, u64),
    /// Extended attributes, ACLs in numbers among them.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl TarEntry {
    fn of(member: Member) -> Self {
        let kind = member.file_type();
        let Member { facts, kind: entry, map } = member;
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

/// Reads an archive, which may be packed with gzip or zstd, and tells what is in it, in its order, until `each` fails.
///
/// # Errors
/// When it cannot be read on; what came before was told. What `each` answers with.
pub fn list_tar(archive: impl Read, each: &mut dyn FnMut(TarEntry) -> Result<()>) -> Result<()> {
    let mut archive = Archive::new(packed::unpacked(Box::new(archive))?);
    while let Some(member) = archive.next()? {
        each(TarEntry::of(member))?;
    }
    Ok(())
}
