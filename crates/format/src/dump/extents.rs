//! Items of the extent tree and the checksum tree.

use std::fmt;

use creamery_base::TreeId;

use super::{DumpContext, Printed, flags};
use crate::items::extent::{ExtentItem, ExtentRef, RawExtentDataRef, RawSharedDataRef};
use crate::items::split;
use crate::key::{Key, KeyType};
use crate::key_names;

fn tree(w: &mut dyn fmt::Write, id: TreeId) -> fmt::Result {
    key_names::write_objectid(w, id.objectid(), KeyType::UNTYPED)
}

pub(super) fn extent_item(w: &mut dyn fmt::Write, key: &Key, data: &[u8]) -> Printed {
    let item = ExtentItem::parse(key.kind, data)?;
    write!(w, "\t\trefs {} gen {} flags ", item.head.refs, item.head.generation)?;
    flags::extent(w, item.head.flags())?;
    w.write_char('\n')?;
    if let Some(info) = item.tree_block {
        writeln!(w, "\t\ttree block key {} level {}", Key::from(info.key), info.level)?;
    }
    if key.kind == KeyType::METADATA_ITEM {
        writeln!(w, "\t\ttree block skinny level {}", key.offset as i32)?;
    }
    for found in item.refs() {
        inline_ref(w, &found?)?;
    }
    Ok(())
}

fn inline_ref(w: &mut dyn fmt::Write, found: &ExtentRef) -> fmt::Result {
    let (kind, offset) = (found.kind().get(), found.key_offset());
    // The owner's line lacks a tab in the original.
    let indent = if matches!(found, ExtentRef::Owner { .. }) { "\t" } else { "\t\t" };
    write!(w, "{indent}({kind} 0x{offset:x}) ")?;
    match *found {
        ExtentRef::TreeBlock { root } => {
            w.write_str("tree block backref root ")?;
            tree(w, root)?;
            w.write_char('\n')
        }
        ExtentRef::SharedBlock { parent } => writeln!(w, "shared block backref parent {parent}"),
        ExtentRef::ExtentData { root, objectid, offset, count } => data_ref(w, root, objectid, offset, count),
        ExtentRef::SharedData { parent, count } => {
            writeln!(w, "shared data backref parent {parent} count {count}")
        }
        ExtentRef::Owner { root } => writeln!(w, "textent owner root {root}"),
    }
}

fn data_ref(w: &mut dyn fmt::Write, root: TreeId, objectid: u64, offset: u64, count: u32) -> fmt::Result {
    w.write_str("extent data backref root ")?;
    tree(w, root)?;
    writeln!(w, " objectid {objectid} offset {offset} count {count}")
}

pub(super) fn keyed_ref(w: &mut dyn fmt::Write, key: &Key, data: &[u8]) -> Printed {
    match key.kind {
        KeyType::EXTENT_DATA_REF => {
            let found = split::<RawExtentDataRef>(data, "keyed ref")?.0;
            w.write_str("\t\t")?;
            let root = TreeId::new(found.root.get());
            Ok(data_ref(w, root, found.objectid.get(), found.offset.get(), found.count.get())?)
        }
        KeyType::SHARED_DATA_REF => {
            let found = split::<RawSharedDataRef>(data, "keyed ref")?.0;
            Ok(writeln!(w, "\t\tshared data backref count {}", found.count)?)
        }
        _ => {
            let root = split::<zerocopy::little_endian::U64>(data, "owner ref")?.0;
            Ok(writeln!(w, "\t\textent owner root {root}")?)
        }
    }
}

pub(super) fn csum(w: &mut dyn fmt::Write, key: &Key, data: &[u8], context: &DumpContext) -> Printed {
    let sums = (data.len() / context.checksum.size()) as u64;
    let len = sums * u64::from(context.sector_size);
    let (start, end) = (key.offset, key.offset.wrapping_add(len));
    Ok(writeln!(w, "\t\trange start {start} end {end} length {len}")?)
}
