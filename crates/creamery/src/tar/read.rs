//! Reads an archive, member by member, from an untrusted stream: no allocation is as large as an unchecked number, and each header
//! has a limit.

use std::io::Read;

use creamery_base::{Error, ErrorKind, Result};
use creamery_mkfs::Measure;
use tar::{EntryType, GnuExtSparseHeader, Header};

use super::facts::MemberHeader;
use super::keys::BLOCK;
use super::pax::{self, number};
use super::sparse::{self, Lines, Map, PIECES_MAX};
use crate::FileType;

/// Bytes of an extended header, or of a long name. Attributes of a file have 64 KiB in all on Linux.
const EXTENDED_MAX: u64 = 4 << 20;
/// Keys in global headers: each member must look at all of them.
const GLOBAL_MAX: usize = 256;
/// Bytes that are read behind the end at most, so that the writer of a pipe does not get EPIPE.
const BEHIND_MAX: u64 = 1 << 20;

/// A list of a directory's content, which GNU tar puts into incremental archives in place of the directory.
const GNU_DIRECTORY: u8 = b'D';
/// The label of a whole archive.
const GNU_LABEL: u8 = b'V';
/// The rest of a file that begins in another archive.
const GNU_CONTINUED: u8 = b'M';

/// A member.
pub(super) struct ReadMember {
    pub(super) facts: MemberHeader,
    pub(super) kind: EntryType,
    /// The map of the data in the file.
    pub(super) map: Map,
}

impl ReadMember {
    /// The type of the member. An old archive marks directories only by their names; by POSIX a member of an unknown type is a file.
    pub(super) fn file_type(&self) -> FileType {
        match self.kind {
            EntryType::Directory => FileType::Directory,
            EntryType::Symlink => FileType::Symlink,
            EntryType::Char => FileType::CharDevice,
            EntryType::Block => FileType::BlockDevice,
            EntryType::Fifo => FileType::Fifo,
            EntryType::Regular if self.facts.name.ends_with(b"/") => FileType::Directory,
            _ => FileType::File,
        }
    }

    /// Adds the space that the member needs in a filesystem.
    pub(super) fn measure(&self, measure: &mut Measure) {
        measure.entry(self.facts.name.len());
        for (name, value) in &self.facts.xattrs {
            measure.xattr(name, value);
        }
        // The target of a link.
        measure.items(self.facts.link.len() as u64);
        for piece in &self.map.pieces {
            measure.data(piece.end - piece.start);
        }
    }
}

/// The holes that extended headers describe.
#[derive(Default)]
struct Sparse {
    version: (u64, u64),
    size: Option<u64>,
    name: Option<Vec<u8>>,
    pairs: Vec<(u64, u64)>,
    offset: Option<u64>,
    is_there: bool,
}

pub(super) struct Archive<R> {
    input: R,
    /// Data of the current member that is still to come, and the padding of its last block.
    left: u64,
    padding: u64,
    /// Records of global headers, the later ones last, and the total length of these headers.
    global: Vec<(Vec<u8>, Vec<u8>)>,
    global_len: u64,
    is_begun: bool,
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// A read error belongs to the host.
fn reading(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged("the archive ends within a member"),
        // The decompressor reports invalid data.
        std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => damaged(&error.to_string()),
        _ => Error::from(error).on_host(std::path::Path::new("reading the archive")),
    }
}

impl<R: Read> Archive<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0, global: Vec::new(), global_len: 0, is_begun: false }
    }

    /// Reads a block; `None` at the end.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(damaged("the archive ends within a block")),
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(error)),
            }
        }
        Ok(Some(block))
    }

    fn header(&mut self) -> Result<Option<Header>> {
        let Some(block) = self.block()? else {
            // The writer of a pipe may have failed.
            return if self.is_begun { Ok(None) } else { Err(damaged("not a tar archive: it is empty")) };
        };
        if block.iter().all(|&byte| byte == 0) {
            std::io::copy(&mut self.input.by_ref().take(BEHIND_MAX), &mut std::io::sink())
                .map_err(reading)?;
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let sum = block[..148].iter().chain(&[b' '; 8]).chain(&block[156..]);
        let sum: u32 = sum.map(|&byte| u32::from(byte)).sum();
        if header.cksum().ok() != Some(sum) {
            let what = if self.is_begun { "header checksum mismatch" } else { "not a tar archive" };
            return Err(damaged(what));
        }
        self.is_begun = true;
        Ok(Some(header))
    }

    /// Skips the rest of the current member.
    fn skip(&mut self) -> Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let skipped = std::io::copy(&mut self.input.by_ref().take(rest), &mut std::io::sink());
        let skipped = skipped.map_err(reading)?;
        if skipped < rest {
            return Err(damaged("the archive ends within a member"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    fn begin_data(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// Reads data of the current member; 0 at its end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        if want == 0 {
            return Ok(0);
        }
        loop {
            match self.input.read(&mut out[..want]) {
                Ok(0) => return Err(damaged("the archive ends within a member")),
                Ok(count) => {
                    self.left -= count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(error)),
            }
        }
    }

    /// Reads all data of a member that describes the next one.
    fn extended(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > EXTENDED_MAX {
            return Err(damaged(&format!(
                "an extended header of {size} bytes; {EXTENDED_MAX} are read at most"
            )));
        }
        self.begin_data(size);
        let mut bytes = Vec::new();
        self.input.by_ref().take(size).read_to_end(&mut bytes).map_err(reading)?;
        if (bytes.len() as u64) < size {
            return Err(damaged("the archive ends within an extended header"));
        }
        self.left = 0;
        self.skip()?;
        Ok(bytes)
    }

    /// Reads the next member; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<ReadMember>> {
        self.skip()?;
        let (mut records, mut long_name, mut long_link) = (Vec::new(), None, None);
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let size = match header.entry_size() {
                Err(_) if header.as_old().size.iter().all(|byte| matches!(byte, b' ' | 0)) => 0,
                size => size.map_err(|_| damaged("invalid size in a header"))?,
            };
            match header.entry_type() {
                kind if kind.as_byte() == GNU_LABEL => {
                    self.begin_data(size);
                    self.skip()?;
                }
                kind if kind.as_byte() == GNU_CONTINUED => {
                    return Err(Error::unsupported("multi-volume archive"));
                }
                EntryType::XHeader => records = self.extended(size)?,
                EntryType::XGlobalHeader => {
                    // Later headers add to earlier ones, so the sizes of all count.
                    let more = self.extended(size)?;
                    self.global_len = self.global_len.saturating_add(size);
                    if self.global_len > EXTENDED_MAX {
                        return Err(damaged("too many global headers"));
                    }
                    for (key, value) in pax::records(&more)? {
                        self.set_global(key, value)?;
                    }
                }
                EntryType::GNULongName => long_name = Some(text(self.extended(size)?)),
                EntryType::GNULongLink => long_link = Some(text(self.extended(size)?)),
                kind => {
                    let mut facts = MemberHeader::of(&header);
                    facts.size = size;
                    facts.name = long_name.unwrap_or(facts.name);
                    facts.link = long_link.unwrap_or(facts.link);
                    return self.member(&header, kind, facts, &records).map(Some);
                }
            }
        }
    }

    /// Records a key for all following members.
    fn set_global(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some((_, known)) = self.global.iter_mut().find(|(known, _)| known == key) {
            *known = value.to_vec();
            return Ok(());
        }
        if self.global.len() == GLOBAL_MAX {
            return Err(damaged(&format!("global headers with more than {GLOBAL_MAX} keys")));
        }
        self.global.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn member(
        &mut self,
        header: &Header,
        kind: EntryType,
        mut facts: MemberHeader,
        records: &[u8],
    ) -> Result<ReadMember> {
        let mut holes = Sparse::default();
        let global = self.global.iter().map(|(key, value)| (&key[..], &value[..]));
        for (key, value) in global.chain(pax::records(records)?) {
            let refused = facts.take(key, value).err().map(|error| error.without_kind());
            match refused {
                Some(refused) if key == b"size" => return Err(damaged(&refused)),
                refused => facts.refusal = facts.refusal.or(refused),
            }
            holes.take(key, value)?;
        }
        if kind.as_byte() == GNU_DIRECTORY {
            self.begin_data(facts.size);
            return Ok(ReadMember { facts, kind: EntryType::Directory, map: Map::whole(0) });
        }
        if kind == EntryType::GNUSparse {
            let size = self.old_map(header, &mut holes)?;
            self.begin_data(facts.size);
            let map = self.checked(Map::new(&holes.pairs, size)?)?;
            return Ok(ReadMember { facts, kind: EntryType::Regular, map });
        }
        // No data follows these members, even with a size. POSIX allows a hard link with its data; no program writes the data, and some
        // programs write the size.
        let has_data = !matches!(
            kind,
            EntryType::Link
                | EntryType::Symlink
                | EntryType::Char
                | EntryType::Block
                | EntryType::Fifo
                | EntryType::Directory
        );
        self.begin_data(if has_data { facts.size } else { 0 });
        if !holes.is_there || kind == EntryType::Link {
            let map = Map::whole(if has_data { facts.size } else { 0 });
            return Ok(ReadMember { facts, kind, map });
        }
        facts.name = holes.name.take().unwrap_or(facts.name);
        let size = holes.size.ok_or_else(|| sparse::damaged("has no file size"))?;
        let map = match holes.version {
            (1, 0) => self.map_in_data(size)?,
            (0, _) => Map::new(&holes.pairs, size)?,
            (major, minor) => {
                return Err(Error::unsupported(format!("sparse format {major}.{minor}")));
            }
        };
        let map = self.checked(map)?;
        Ok(ReadMember { facts, kind, map })
    }

    /// Checks that the map covers exactly the data.
    fn checked(&self, map: Map) -> Result<Map> {
        if map.data() == self.left { Ok(map) } else { Err(sparse::damaged("does not match the data")) }
    }

    /// Reads the map before the data.
    fn map_in_data(&mut self, size: u64) -> Result<Map> {
        let mut lines = Lines::default();
        loop {
            self.left = self.left.checked_sub(BLOCK as u64).ok_or_else(|| sparse::damaged("has no end"))?;
            let block = self.block()?.ok_or_else(|| damaged("the archive ends within a member"))?;
            if lines.push(&block)? {
                return lines.map(size);
            }
        }
    }

    /// Reads the map from a header of GNU's own format and the blocks behind it; returns the size of the file.
    fn old_map(&mut self, header: &Header, holes: &mut Sparse) -> Result<u64> {
        let gnu = header.as_gnu().ok_or_else(|| sparse::damaged("in a header of another format"))?;
        let bad = |_| sparse::damaged("has an invalid number");
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        let push = |pairs: &mut Vec<(u64, u64)>, piece: &tar::GnuSparseHeader| -> Result<()> {
            if !piece.is_empty() {
                pairs.push((piece.offset().map_err(bad)?, piece.length().map_err(bad)?));
            }
            Ok(())
        };
        gnu.sparse.iter().try_for_each(|piece| push(&mut pairs, piece))?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let block = self.block()?.ok_or_else(|| sparse::damaged("has no end"))?;
            let mut more = GnuExtSparseHeader::new();
            more.as_mut_bytes().copy_from_slice(&block);
            more.sparse.iter().try_for_each(|piece| push(&mut pairs, piece))?;
            if pairs.len() > PIECES_MAX {
                return Err(sparse::damaged("has too many entries"));
            }
            goes_on = more.is_extended();
        }
        holes.pairs = pairs;
        gnu.real_size().map_err(bad)
    }
}

/// A name that was written as data, up to its terminating zero.
fn text(bytes: Vec<u8>) -> Vec<u8> {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

impl Sparse {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(key) = key.strip_prefix(b"GNU.sparse.") else { return Ok(()) };
        let count = || number(value).ok_or_else(|| sparse::damaged("has an invalid number"));
        self.is_there = true;
        match key {
            b"major" => self.version.0 = count()?,
            b"minor" => self.version.1 = count()?,
            b"size" | b"realsize" => self.size = Some(count()?),
            b"name" => self.name = Some(value.to_vec()),
            b"map" => self.pairs = sparse::from_list(value)?,
            b"offset" => self.offset = Some(count()?),
            b"numbytes" => {
                let offset =
                    self.offset.take().ok_or_else(|| sparse::damaged("has a length without an offset"))?;
                self.pairs.push((offset, count()?));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_archive_is_refused() {
        for bytes in [vec![1; 512], vec![0xff; 1000], b"short".to_vec()] {
            assert!(Archive::new(&bytes[..]).next().is_err());
        }
        assert!(Archive::new(&[][..]).next().is_err());
        assert!(Archive::new(&[0; 1024][..]).next().expect("an empty one").is_none());
    }

    /// Of three global headers the first has a zero byte in a value, and the last one counts for the same key.
    #[test]
    fn what_global_headers_say_holds_for_all_that_follow() {
        let mut bytes = Vec::new();
        let mut push = |kind: EntryType, data: &[u8]| {
            let mut header = Header::new_ustar();
            header.set_entry_type(kind);
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_cksum();
            bytes.extend_from_slice(header.as_bytes());
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        };
        let said = [(&b"SCHILY.xattr.user.zero"[..], &b"a\0b"[..]), (b"uid", b"77"), (b"uid", b"78")];
        for (key, value) in said {
            let mut records = Vec::new();
            pax::push(&mut records, key, value);
            push(EntryType::XGlobalHeader, &records);
        }
        push(EntryType::Regular, b"");
        push(EntryType::Regular, b"");
        let mut archive = Archive::new(&bytes[..]);
        for _ in 0..2 {
            let facts = archive.next().expect("whole").expect("a member").facts;
            assert_eq!(facts.uid, 78);
            assert_eq!(facts.xattrs, [(b"user.zero".to_vec(), b"a\0b".to_vec())]);
        }
    }

    /// Each member must look at all keys.
    #[test]
    fn global_headers_have_so_many_keys() {
        let mut archive = Archive::new(&[][..]);
        for number in 0..GLOBAL_MAX {
            archive.set_global(number.to_string().as_bytes(), b"first").expect("not too many");
        }
        archive.set_global(b"0", b"last").expect("one that is there");
        assert_eq!(archive.global[0].1, b"last");
        assert!(archive.set_global(b"one more", b"").is_err());
    }

    #[test]
    fn headers_that_claim_much_are_refused() {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_size(1 << 32);
        header.set_cksum();
        assert!(Archive::new(header.as_bytes().chain(std::io::repeat(b'x'))).next().is_err());
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_cksum();
        let mut archive = Archive::new(&header.as_bytes()[..]);
        let member = archive.next().expect("a member").expect("one");
        assert_eq!(member.map.size, 1 << 32);
        assert!(archive.next().is_err());
    }
}
