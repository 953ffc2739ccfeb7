//! An archive as the destination of copies.

use std::collections::HashMap;
use std::io::Write;
use std::ops::Range;

use creamery_base::{Error, ErrorKind, InodeId, PieceBuffer, Result, Timespec};
use tar::{EntryType, Header};

use super::keys::{BLOCK, SELINUX, SELINUX_KEY, XATTR_KEY};
use super::sparse::Map;
use super::{acl, pax};
use crate::fs::{Attributes, FileType};
use crate::salvage::Data;
use crate::sink::{Sink, Source};

/// Limits of the fields of a header; larger values go into the extended header.
const NAME_LEN: usize = 100;
const OCTAL_7_MAX: u64 = 0o777_7777;
const OCTAL_11_MAX: u64 = 0o777_7777_7777;
/// An archive ends at a multiple of this, bytes.
const RECORD: u64 = 20 * BLOCK as u64;
/// Bytes of one read.
const PIECE: u64 = 1 << 20;

/// Writes members one behind the other. Its directories are their names.
pub(super) struct TarSink<'a> {
    out: &'a mut dyn Write,
    written: u64,
    /// First names of files with several names.
    links: HashMap<InodeId, (Vec<u8>, u32)>,
    note: &'a dyn Fn(&str),
}

/// A member without its data.
struct WrittenMember<'a> {
    name: Vec<u8>,
    kind: EntryType,
    link: &'a [u8],
    size: u64,
    records: Vec<u8>,
}

/// Makes a write error end the whole archive, even if other errors are ignored; [`ended`] restores its kind.
fn writing(error: std::io::Error) -> Error {
    let path = std::path::Path::new("writing the archive");
    Error::from(error).with_kind(ErrorKind::Interrupted).on_host(path)
}

/// Restores the kind of a host error. The error of a caller that cancels has no host behind it.
pub(super) fn ended(error: Error) -> Error {
    match (error.kind(), error.host()) {
        (ErrorKind::Interrupted, Some(host)) => {
            let kind = Error::from(std::io::Error::from(host)).kind();
            error.with_kind(kind)
        }
        _ => error,
    }
}

impl<'a> TarSink<'a> {
    pub(super) fn new(out: &'a mut dyn Write, note: &'a dyn Fn(&str)) -> Self {
        Self { out, written: 0, links: HashMap::new(), note }
    }

    /// Writes the end of the archive.
    pub(super) fn finish(mut self) -> Result<()> {
        let end = (self.written + 2 * BLOCK as u64).next_multiple_of(RECORD);
        self.zeros(end - self.written)?;
        self.out.flush().map_err(writing)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(writing)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> Result<()> {
        let zeros = [0; 4096];
        while count > 0 {
            let some = count.min(zeros.len() as u64);
            self.put(&zeros[..usize::try_from(some).expect("at most a buffer")])?;
            count -= some;
        }
        Ok(())
    }

    fn pad(&mut self) -> Result<()> {
        self.zeros(self.written.next_multiple_of(BLOCK as u64) - self.written)
    }

    fn member(&mut self, mut member: WrittenMember<'_>, source: &Source) -> Result<()> {
        let attributes = &source.attributes;
        // A hard link has the attributes of the first name.
        if member.kind != EntryType::Link {
            attribute_records(&mut member.records, source);
        }
        let WrittenMember { name, kind, link, size, records } = &mut member;
        let own = |records: &mut Vec<u8>, key: &str, value: &[u8], fits: bool| {
            if !fits {
                pax::push(records, key.as_bytes(), value);
            }
        };
        let (uid, gid, mtime) = (attributes.uid, attributes.gid, attributes.times.modification);
        own(records, "path", name, name.len() <= NAME_LEN);
        own(records, "linkpath", link, link.len() <= NAME_LEN);
        own(records, "size", size.to_string().as_bytes(), *size <= OCTAL_11_MAX);
        own(records, "uid", uid.to_string().as_bytes(), u64::from(uid) <= OCTAL_7_MAX);
        own(records, "gid", gid.to_string().as_bytes(), u64::from(gid) <= OCTAL_7_MAX);
        own(records, "mtime", time_text(mtime).as_bytes(), false);
        own(records, "atime", time_text(attributes.times.access).as_bytes(), false);
        let mut extended = header(b"PaxHeaders/", EntryType::XHeader, b"");
        extended.set_mode(0o644);
        extended.set_size(records.len() as u64);
        extended.set_mtime(0);
        extended.set_uid(0);
        extended.set_gid(0);
        extended.set_cksum();
        let mut own = header(name, *kind, link);
        own.set_mode(attributes.mode & 0o7777);
        own.set_size(if *size <= OCTAL_11_MAX { *size } else { 0 });
        own.set_mtime(u64::try_from(mtime.sec).unwrap_or(0).min(OCTAL_11_MAX));
        own.set_uid(if u64::from(uid) <= OCTAL_7_MAX { uid.into() } else { 0 });
        own.set_gid(if u64::from(gid) <= OCTAL_7_MAX { gid.into() } else { 0 });
        let device = attributes.device;
        own.set_device_major(device.major).and(own.set_device_minor(device.minor)).map_err(writing)?;
        own.set_cksum();
        let records = std::mem::take(records);
        self.put(extended.as_bytes())?;
        self.put(&records)?;
        self.pad()?;
        self.put(own.as_bytes())
    }

    fn remember(&mut self, name: &[u8], source: &Source) {
        let Attributes { id, nlink, kind, .. } = source.attributes;
        if nlink > 1 && kind != FileType::Directory {
            self.links.entry(id).or_insert_with(|| (name.to_vec(), nlink - 1));
        }
    }

    /// Writes the pieces of `map`, whole: zeros for unreadable or missing data.
    fn pieces(&mut self, map: &Map, data: &Data<'_>) -> Result<()> {
        let mut buffer = PieceBuffer::default();
        for piece in &map.pieces {
            let mut at = piece.start;
            while at < piece.end {
                data.salvage.go_on()?;
                let want = (piece.end - at).min(PIECE);
                let buffer = buffer.of(usize::try_from(want).expect("a piece fits in memory"));
                let count = match data.file.read_at(buffer, at) {
                    Err(error) if data.salvage.passes_damage() => {
                        data.lost(at..at + want, &error);
                        buffer.fill(0);
                        buffer.len()
                    }
                    count => count?,
                };
                if count == 0 {
                    self.zeros(piece.end - at)?;
                    break;
                }
                self.put(&buffer[..count])?;
                at += count as u64;
            }
        }
        Ok(())
    }
}

/// A header of ustar, with as much of both names as fits.
fn header(name: &[u8], kind: EntryType, link: &[u8]) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    let ustar = header.as_ustar_mut().expect("it was made as one");
    for (field, text) in [(&mut ustar.name, name), (&mut ustar.linkname, link)] {
        let len = text.len().min(NAME_LEN);
        field[..len].copy_from_slice(&text[..len]);
    }
    header
}

/// Formats seconds, with a fraction if there is one. A time before 1970 counts forwards from a whole second, and is written as a number.
fn time_text(time: Timespec) -> String {
    match (time.sec, time.nsec) {
        (sec, 0) => sec.to_string(),
        (0.., nsec) => format!("{}.{nsec:09}", time.sec),
        (sec, nsec) => format!("-{}.{:09}", -(i128::from(sec) + 1), 1_000_000_000 - nsec),
    }
}

/// Appends the records of extended attributes.
fn attribute_records(records: &mut Vec<u8>, source: &Source) {
    for (name, value) in &source.xattrs {
        let words = match &name[..] {
            acl::ACCESS => Some(&b"SCHILY.acl.access"[..]),
            acl::DEFAULT => Some(&b"SCHILY.acl.default"[..]),
            _ => None,
        };
        if let Some((key, text)) = words.zip(acl::to_text(value)) {
            pax::push(records, key, text.as_bytes());
        }
        if name == SELINUX {
            pax::push(records, SELINUX_KEY, value.strip_suffix(b"\0").unwrap_or(value));
        } else if !name.starts_with(b"btrfs.") {
            pax::push(records, &[XATTR_KEY, &pax::encode_name(name)].concat(), value);
        }
    }
}

/// The map of the readable data of a file.
fn map_of(data: &Data<'_>) -> Result<Map> {
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut push = |piece: Range<u64>| match pieces.last_mut() {
        Some(last) if last.end == piece.start => last.end = piece.end,
        _ if piece.is_empty() => {}
        _ => pieces.push(piece),
    };
    if data.salvage.passes_damage() {
        data.for_each_piece(|at, bytes| {
            push(at..at + bytes.len() as u64);
            Ok(())
        })?;
    } else {
        let mut at = 0;
        while at < data.size
            && let Some(start) = data.file.seek_data(at)?
        {
            let end = data.file.seek_hole(start)?.unwrap_or(data.size).min(data.size);
            push(start..end.max(start));
            at = end.max(start + 1);
        }
    }
    Ok(Map { pieces, size: data.size })
}

impl Sink for TarSink<'_> {
    type Dir = Vec<u8>;
    const KNOWS_NAMES: bool = false;
    const TAKES_EMPTY_LINKS: bool = true;

    fn enter(&mut self, parent: &Vec<u8>, name: &[u8], source: &Source) -> Result<Vec<u8>> {
        let name = [parent, name, b"/"].concat();
        let kind = EntryType::Directory;
        let member = WrittenMember { name: name.clone(), kind, link: b"", size: 0, records: Vec::new() };
        self.member(member, source)?;
        Ok(name)
    }

    fn leave(&mut self, _: Vec<u8>, _: &Source) -> Result<()> {
        Ok(())
    }

    fn file(&mut self, parent: &Vec<u8>, name: &[u8], source: &Source, data: &Data<'_>) -> Result<()> {
        let name = [parent, name].concat();
        let map = map_of(data)?;
        let (kind, link) = (EntryType::Regular, &b""[..]);
        if map.has_holes() {
            let text = map.to_text(BLOCK);
            let mut records = Vec::new();
            pax::push(&mut records, b"GNU.sparse.major", b"1");
            pax::push(&mut records, b"GNU.sparse.minor", b"0");
            pax::push(&mut records, b"GNU.sparse.name", &name);
            pax::push(&mut records, b"GNU.sparse.realsize", map.size.to_string().as_bytes());
            let size = text.len() as u64 + map.data();
            // A reader without support for holes gets the map with the data, under this name.
            let parts = [&parent[..], b"GNUSparseFile.0/", &name[parent.len()..]];
            self.member(WrittenMember { name: parts.concat(), kind, link, size, records }, source)?;
            self.put(&text)?;
        } else {
            let member =
                WrittenMember { name: name.clone(), kind, link, size: map.size, records: Vec::new() };
            self.member(member, source)?;
        }
        self.pieces(&map, data)?;
        self.remember(&name, source);
        self.pad()
    }

    fn node(&mut self, parent: &Vec<u8>, name: &[u8], source: &Source) -> Result<()> {
        let name = [parent, name].concat();
        let kind = match source.attributes.kind {
            FileType::Symlink => EntryType::Symlink,
            FileType::Fifo => EntryType::Fifo,
            FileType::CharDevice => EntryType::Char,
            FileType::BlockDevice => EntryType::Block,
            FileType::Socket => {
                (self.note)(&format!("{}: socket ignored", creamery_base::Escaped(&name)));
                return Ok(());
            }
            _ => return Err(Error::unsupported("unknown file type")),
        };
        let member =
            WrittenMember { name: name.clone(), kind, link: &source.target, size: 0, records: Vec::new() };
        self.member(member, source)?;
        self.remember(&name, source);
        Ok(())
    }

    fn link(&mut self, parent: &Vec<u8>, name: &[u8], source: &Source) -> Result<bool> {
        let Some((first, left)) = self.links.get_mut(&source.attributes.id) else { return Ok(false) };
        let first = first.clone();
        *left -= 1;
        if *left == 0 {
            self.links.remove(&source.attributes.id);
        }
        let name = [parent, name].concat();
        let member =
            WrittenMember { name, kind: EntryType::Link, link: &first, size: 0, records: Vec::new() };
        self.member(member, source)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_numbers() {
        for (sec, nsec, text) in [
            (0, 0, "0"),
            (5, 1, "5.000000001"),
            (-1, 0, "-1"),
            (-1, 500_000_000, "-0.500000000"),
            (-3, 250_000_000, "-2.750000000"),
            (i64::MIN, 1, "-9223372036854775807.999999999"),
        ] {
            assert_eq!(time_text(Timespec { sec, nsec }), text);
        }
    }
}
