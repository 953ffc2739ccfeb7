//! The output of `--json`. A name that is not UTF-8 has a second field with its bytes in hexadecimal.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery::{FileType, Metadata};
use serde::Serialize;

use crate::time::Utc;

/// A file with every attribute.
#[derive(Serialize)]
pub(crate) struct FileJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    permissions: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated: u64,
    inode: u64,
    subvolume: u64,
    generation: u64,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<XattrJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verity: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overwrites: Vec<OverwriteJson>,
}

#[derive(Serialize)]
struct XattrJson {
    name: String,
    value_bytes: String,
}

/// The destination of overwrites of a part of a file.
#[derive(Serialize)]
struct OverwriteJson {
    why: &'static str,
    in_place: bool,
    extents: u64,
    bytes: u64,
}

/// The header of documents in the format of btrfs-progs (`btrfs --format json`).
#[derive(Serialize)]
pub(crate) struct Header {
    version: &'static str,
}

impl Header {
    pub(crate) const FIRST: Self = Self { version: "1" };
}

/// The text, and the bytes in hexadecimal if they are not UTF-8.
pub(crate) fn text_of(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => (String::from_utf8_lossy(bytes).into_owned(), Some(hex(bytes))),
    }
}

/// Calls [`text_of`] for a path, if there is one.
pub(crate) fn text_of_path(path: Option<&Path>) -> (Option<String>, Option<String>) {
    let Some(path) = path else { return (None, None) };
    let (text, bytes) = text_of(path.as_os_str().as_bytes());
    (Some(text), bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl FileJson {
    pub(crate) fn new(path: &Path, meta: &Metadata, target: Option<&Path>) -> Self {
        let (path, path_bytes) = text_of(path.as_os_str().as_bytes());
        let (target, target_bytes) = match target.map(|target| text_of(target.as_os_str().as_bytes())) {
            Some((text, bytes)) => (Some(text), bytes),
            None => (None, None),
        };
        let time = |time| format!("{:#}", Utc(time));
        let kind = meta.file_type();
        let (major, minor) = meta.device();
        let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
        Self {
            path,
            path_bytes,
            kind: kind.name(),
            mode: format!("{:04o}", meta.permissions().mode()),
            permissions: format!("{}{}", kind.letter(), meta.permissions()),
            links: meta.nlink(),
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.len(),
            allocated: meta.allocated(),
            inode: meta.ino().get(),
            subvolume: meta.subvolume().get(),
            generation: meta.generation().get(),
            atime: time(meta.atime()),
            mtime: time(meta.mtime()),
            ctime: time(meta.ctime()),
            btime: time(meta.btime()),
            target,
            target_bytes,
            device: is_device.then_some([major, minor]),
            xattrs: Vec::new(),
            verity: None,
            overwrites: Vec::new(),
        }
    }

    pub(crate) fn with_xattrs(mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Self {
        self.xattrs = xattrs
            .iter()
            .map(|(name, value)| XattrJson { name: text_of(name).0, value_bytes: hex(value) })
            .collect();
        self
    }

    pub(crate) fn with_verity(mut self, verity: Option<&creamery::extents::VerityInfo>) -> Self {
        self.verity = verity.map(|info| format!("{}:{}", info.hash, info.digest));
        self
    }

    pub(crate) fn with_overwrites(mut self, overwrites: Option<&creamery::extents::Overwrites>) -> Self {
        let parts = overwrites.into_iter().flat_map(creamery::extents::Overwrites::iter);
        self.overwrites = parts
            .map(|(overwrite, count)| OverwriteJson {
                why: overwrite.name(),
                in_place: overwrite.is_in_place(),
                extents: count.extents,
                bytes: count.bytes,
            })
            .collect();
        self
    }
}

/// A JSON array that is written as it grows.
pub(crate) struct Array<'a, W: std::io::Write> {
    out: &'a mut W,
    first: bool,
}

impl<'a, W: std::io::Write> Array<'a, W> {
    pub(crate) fn begin(out: &'a mut W) -> std::io::Result<Self> {
        out.write_all(b"[")?;
        Ok(Self { out, first: true })
    }

    pub(crate) fn push(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        self.out.write_all(if self.first { b"\n  " } else { b",\n  " })?;
        self.first = false;
        serde_json::to_writer(&mut *self.out, value).map_err(std::io::Error::from)
    }

    pub(crate) fn end(self) -> std::io::Result<()> {
        self.out.write_all(if self.first { b"]\n" } else { b"\n]\n" })
    }
}
