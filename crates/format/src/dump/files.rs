//! Items of subvolumes.

use std::fmt;

use super::text::{Escaped, time};
use super::{DumpContext, Printed, flags};
use crate::items::dir::{DirEntries, FileType, RawDirLogItem};
use crate::items::file_extent::{
    Compression, FILE_EXTENT_INLINE, FILE_EXTENT_PREALLOC, FILE_EXTENT_REGULAR, RawFileExtent,
    RawFileExtentHead,
};
use crate::items::inode::{InodeExtrefs, InodeRefs, RawInodeItem};
use crate::items::split;

pub(super) fn inode(w: &mut dyn fmt::Write, data: &[u8], context: &DumpContext) -> Printed {
    let inode = split::<RawInodeItem>(data, "inode item")?.0;
    let RawInodeItem { generation, transid, size, nbytes, block_group, nlink, uid, gid, rdev, .. } = inode;
    writeln!(w, "\t\tgeneration {generation} transid {transid} size {size} nbytes {nbytes}")?;
    writeln!(
        w,
        "\t\tblock group {block_group} mode {:o} links {nlink} uid {uid} gid {gid} rdev {rdev}",
        inode.mode.get()
    )?;
    write!(w, "\t\tsequence {} flags ", inode.sequence)?;
    flags::inode(w, inode.flags())?;
    w.write_char('\n')?;
    let times =
        [("atime", inode.atime), ("ctime", inode.ctime), ("mtime", inode.mtime), ("otime", inode.otime)];
    Ok(times.into_iter().try_for_each(|(name, at)| time(w, name, at, context.utc_offset))?)
}

pub(super) fn inode_refs(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    for entry in InodeRefs::new(data) {
        let entry = entry?;
        writeln!(w, "\t\tindex {} namelen {} name: {}", entry.index, entry.name.len(), Escaped(entry.name))?;
    }
    Ok(())
}

pub(super) fn inode_extrefs(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    for entry in InodeExtrefs::new(data) {
        let entry = entry?;
        let (index, parent, len) = (entry.index, entry.parent, entry.name.len());
        writeln!(w, "\t\tindex {index} parent {parent} namelen {len} name: {}", Escaped(entry.name))?;
    }
    Ok(())
}

fn file_type(w: &mut dyn fmt::Write, number: u8) -> fmt::Result {
    w.write_str(match FileType::from_disk(number) {
        Some(FileType::File) => "FILE",
        Some(FileType::Directory) => "DIR",
        Some(FileType::CharDevice) => "CHRDEV",
        Some(FileType::BlockDevice) => "BLKDEV",
        Some(FileType::Fifo) => "FIFO",
        Some(FileType::Socket) => "SOCK",
        Some(FileType::Symlink) => "SYMLINK",
        Some(FileType::Xattr) => "XATTR",
        Some(FileType::Unknown) | None => return write!(w, "DIR_ITEM.{number}"),
    })
}

pub(super) fn dir_entries(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    for entry in DirEntries::new(data) {
        let entry = entry?;
        write!(w, "\t\tlocation key {} type ", entry.location)?;
        file_type(w, entry.kind)?;
        let (transid, data_len, name_len) = (entry.transid, entry.data.len(), entry.name.len());
        writeln!(w, "\n\t\ttransid {transid} data_len {data_len} name_len {name_len}")?;
        writeln!(w, "\t\tname: {}", Escaped(entry.name))?;
        if !entry.data.is_empty() {
            writeln!(w, "\t\tdata {}", Escaped(entry.data))?;
        }
    }
    Ok(())
}

pub(super) fn dir_log(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    Ok(writeln!(w, "\t\tdir log end {}", split::<RawDirLogItem>(data, "log item")?.0.end)?)
}

/// Number and name of a compression: `3 (zstd)`.
fn compression(w: &mut dyn fmt::Write, number: u8) -> fmt::Result {
    let name = match Compression::from_disk(number) {
        Some(Compression::None) => "none",
        Some(Compression::Zlib) => "zlib",
        Some(Compression::Lzo) => "lzo",
        Some(Compression::Zstd) => "zstd",
        None => return writeln!(w, "{number} (UNKNOWN.{number})"),
    };
    writeln!(w, "{number} ({name})")
}

pub(super) fn file_extent(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    let (head, inline) = split::<RawFileExtentHead>(data, "file extent")?;
    let name = match head.kind {
        FILE_EXTENT_INLINE => "inline",
        FILE_EXTENT_REGULAR => "regular",
        FILE_EXTENT_PREALLOC => "prealloc",
        _ => "unknown",
    };
    writeln!(w, "\t\tgeneration {} type {} ({name})", head.generation, head.kind)?;
    if head.kind == FILE_EXTENT_INLINE {
        write!(w, "\t\tinline extent data size {} ram_bytes {} compression ", inline.len(), head.ram_bytes)?;
        return Ok(compression(w, head.compression)?);
    }
    let extent = split::<RawFileExtent>(data, "file extent")?.0;
    let RawFileExtent { disk_bytenr, disk_num_bytes, offset, num_bytes, ram_bytes, .. } = extent;
    if head.kind == FILE_EXTENT_PREALLOC {
        writeln!(w, "\t\tprealloc data disk byte {disk_bytenr} nr {disk_num_bytes}")?;
        return Ok(writeln!(w, "\t\tprealloc data offset {offset} nr {num_bytes}")?);
    }
    writeln!(w, "\t\textent data disk byte {disk_bytenr} nr {disk_num_bytes}")?;
    writeln!(w, "\t\textent data offset {offset} nr {num_bytes} ram {ram_bytes}")?;
    w.write_str("\t\textent compression ")?;
    Ok(compression(w, extent.compression)?)
}
