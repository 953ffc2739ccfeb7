//! Items of the root tree and the UUID tree.

use std::fmt;

use creamery_base::Uuid;
use zerocopy::IntoBytes;

use super::text::{Plain, time};
use super::{DumpContext, Printed};
use crate::corrupt::CorruptKind;
use crate::items::root::{RawRootItem, RawRootRef, RootFlags, uuid_subvolumes};
use crate::items::{split, take};
use crate::key::{Key, KeyType};

/// The largest length of a subvolume's name that is shown.
const NAME_MAX: usize = 255;

pub(super) fn root(w: &mut dyn fmt::Write, data: &[u8], context: &DumpContext) -> Printed {
    if data.len() < RawRootItem::LEGACY_LEN {
        let (found, want) = (data.len(), RawRootItem::LEGACY_LEN);
        return Err(CorruptKind::ItemSize { kind: KeyType::ROOT_ITEM, found, want }.into());
    }
    let len = data.len().min(RawRootItem::LEN);
    let mut root = RawRootItem::default();
    root.as_mut_bytes()[..len].copy_from_slice(&data[..len]);
    let RawRootItem { generation, root_dirid, bytenr, byte_limit, bytes_used, .. } = root;
    writeln!(
        w,
        "\t\tgeneration {generation} root_dirid {root_dirid} bytenr {bytenr} byte_limit {byte_limit} \
         bytes_used {bytes_used}"
    )?;
    let flags = if root.flags().contains(RootFlags::RDONLY) { "RDONLY" } else { "none" };
    let bits = root.flags().bits();
    writeln!(w, "\t\tlast_snapshot {} flags 0x{bits:x}({flags}) refs {}", root.last_snapshot, root.refs)?;
    writeln!(w, "\t\tdrop_progress key {} drop_level {}", Key::from(root.drop_progress), root.drop_level)?;
    writeln!(w, "\t\tlevel {} generation_v2 {}", root.level, root.generation_v2)?;
    if root.generation != root.generation_v2 {
        return Ok(());
    }
    for (name, uuid) in
        [("uuid", root.uuid), ("parent_uuid", root.parent_uuid), ("received_uuid", root.received_uuid)]
    {
        writeln!(w, "\t\t{name} {}", Uuid::from_bytes(uuid))?;
    }
    let RawRootItem { ctransid, otransid, stransid, rtransid, .. } = root;
    writeln!(w, "\t\tctransid {ctransid} otransid {otransid} stransid {stransid} rtransid {rtransid}")?;
    let times = [("ctime", root.ctime), ("otime", root.otime), ("stime", root.stime), ("rtime", root.rtime)];
    Ok(times.into_iter().try_for_each(|(name, at)| time(w, name, at, context.utc_offset))?)
}

pub(super) fn root_ref(w: &mut dyn fmt::Write, kind: &str, data: &[u8]) -> Printed {
    let (head, rest) = split::<RawRootRef>(data, "root ref")?;
    let name = take(rest, usize::from(head.name_len.get()).min(NAME_MAX), "name")?.0;
    let RawRootRef { dirid, sequence, .. } = head;
    Ok(writeln!(w, "\t\troot {kind} key dirid {dirid} sequence {sequence} name {}", Plain(name))?)
}

pub(super) fn uuid(w: &mut dyn fmt::Write, data: &[u8]) -> Printed {
    if !data.len().is_multiple_of(8) {
        return Ok(writeln!(w, "btrfs: uuid item with illegal size {}!", data.len())?);
    }
    Ok(uuid_subvolumes(data).try_for_each(|id| writeln!(w, "\t\tsubvol_id {id}"))?)
}
