//! `creamery tar -t`: the output of GNU tar's `tar -t`, and that of its `-tv` with numeric owners and times in UTC.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use creamery::tar::{TarEntry, list_tar};
use creamery::{Error, ErrorKind, FileType};
use serde::Serialize;

use super::tar_quoted::TarQuoted;
use crate::archives::is_stream;
use crate::failure::Failure;
use crate::json::{Array, text_of};
use crate::output::{Output, writing};
use crate::time::Utc;

/// The initial width of owner, group and size together, as in GNU tar; it grows with longer values.
const USUAL_WIDTH: usize = 19;

/// The form of a listing.
#[derive(Clone, Copy)]
pub(crate) enum TarListForm {
    Names,
    Long,
    Json,
}

pub(crate) fn list(file: &Path, form: TarListForm) -> Result<(), Failure> {
    let told = |error| Failure::new("tar", error);
    let input: Box<dyn Read> = if is_stream(file) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|error| told(Error::from(error).on_host(file)))?)
    };
    let mut out = Output::new();
    let outcome = match form {
        TarListForm::Json => as_json(input, &mut out),
        TarListForm::Names => list_tar(input, &mut |entry| line(&mut out, &entry, None).map_err(writing)),
        TarListForm::Long => {
            let mut width = USUAL_WIDTH;
            list_tar(input, &mut |entry| line(&mut out, &entry, Some(&mut width)).map_err(writing))
        }
    };
    let outcome = outcome.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            told(Error::invalid(format!("{}: {}", file.display(), error.without_kind()))).plain()
        }
        ErrorKind::Unsupported => told(error.context(file.display())).plain(),
        _ => told(error),
    });
    out.finish().map_err(told).and(outcome)
}

fn line(out: &mut Output, entry: &TarEntry, width: Option<&mut usize>) -> io::Result<()> {
    let Some(width) = width else {
        return writeln!(out, "{}", TarQuoted(&entry.name));
    };
    let letter = if entry.is_hard_link { 'h' } else { entry.kind.letter() };
    let owner = format!("{}/{}", entry.uid, entry.gid);
    let size = match entry.kind {
        FileType::CharDevice | FileType::BlockDevice => format!("{},{}", entry.device.0, entry.device.1),
        _ => entry.size.to_string(),
    };
    *width = (*width).max(owner.len() + 1 + size.len());
    let rest = *width - owner.len();
    let time = Utc(entry.mtime).to_string();
    // The seconds are cut off.
    let time = time.rsplit_once(':').map_or(&time[..], |(minutes, _)| minutes);
    let (permissions, name) = (entry.permissions, TarQuoted(&entry.name));
    write!(out, "{letter}{permissions} {owner}{size:>rest$} {time} {name}")?;
    if !entry.link.is_empty() {
        let leads = if entry.is_hard_link { "link to" } else { "->" };
        write!(out, " {leads} {}", TarQuoted(&entry.link))?;
    }
    out.write_all(b"\n")
}

#[derive(Serialize)]
struct EntryJson {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    permissions: String,
    mode: String,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u64; 2]>,
    xattrs: Vec<String>,
}

impl EntryJson {
    fn of(entry: &TarEntry) -> Self {
        let (name, name_bytes) = text_of(&entry.name);
        let target = (!entry.link.is_empty()).then(|| text_of(&entry.link));
        let is_device = matches!(entry.kind, FileType::CharDevice | FileType::BlockDevice);
        let letter = if entry.is_hard_link { 'h' } else { entry.kind.letter() };
        Self {
            name,
            name_bytes,
            kind: if entry.is_hard_link { "hard link" } else { entry.kind.name() },
            permissions: format!("{letter}{}", entry.permissions),
            mode: format!("{:04o}", entry.permissions.mode()),
            uid: entry.uid,
            gid: entry.gid,
            size: entry.size,
            mtime: format!("{:#}", Utc(entry.mtime)),
            target_bytes: target.as_ref().and_then(|target| target.1.clone()),
            target: target.map(|target| target.0),
            device: is_device.then_some([entry.device.0, entry.device.1]),
            xattrs: entry.xattrs.iter().map(|(name, _)| text_of(name).0).collect(),
        }
    }
}

fn as_json(input: Box<dyn Read>, out: &mut Output) -> Result<(), Error> {
    let mut array = Array::begin(out).map_err(writing)?;
    let outcome = list_tar(input, &mut |entry| array.push(&EntryJson::of(&entry)).map_err(writing));
    array.end().map_err(writing).and(outcome)
}
