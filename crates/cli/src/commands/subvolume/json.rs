//! A subvolume in `--json`.

use creamery::Uuid;
use creamery::attributes::Timespec;
use creamery::subvolume::SubvolumeInfo;
use serde::Serialize;

use crate::json::text_of;
use crate::time::Utc;

/// The information about a subvolume; missing values are null.
#[derive(Serialize)]
pub(super) struct SubvolumeJson {
    id: u64,
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    parent: Option<u64>,
    directory: Option<u64>,
    generation: u64,
    flags: u64,
    read_only: bool,
    snapshot: bool,
    deleted: bool,
    uuid: Option<String>,
    parent_uuid: Option<String>,
    received_uuid: Option<String>,
    ctransid: u64,
    otransid: u64,
    stransid: u64,
    rtransid: u64,
    ctime: Option<String>,
    otime: Option<String>,
    stime: Option<String>,
    rtime: Option<String>,
}

impl SubvolumeJson {
    /// `path` is from the top level; a deleted subvolume has none.
    pub(super) fn new(info: &SubvolumeInfo, path: Option<&[u8]>) -> Self {
        let text = |uuid: Option<Uuid>| uuid.map(|uuid| uuid.to_string());
        let time = |time: Timespec| (time.sec != 0).then(|| format!("{:#}", Utc(time)));
        let (path, path_bytes) = path.map(text_of).map_or((None, None), |(path, bytes)| (Some(path), bytes));
        Self {
            id: info.id.get(),
            path,
            path_bytes,
            parent: info.parent.map(|parent| parent.get()),
            directory: info.dir.map(|dir| dir.get()),
            generation: info.generation.get(),
            flags: info.flags,
            read_only: info.is_read_only(),
            snapshot: info.is_snapshot,
            deleted: info.is_deleted,
            uuid: text(info.uuid),
            parent_uuid: text(info.parent_uuid),
            received_uuid: text(info.received_uuid),
            ctransid: info.ctransid.get(),
            otransid: info.otransid.get(),
            stransid: info.stransid.get(),
            rtransid: info.rtransid.get(),
            ctime: time(info.ctime),
            otime: time(info.otime),
            stime: time(info.stime),
            rtime: time(info.rtime),
        }
    }
}
