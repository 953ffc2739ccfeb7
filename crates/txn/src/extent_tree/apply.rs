//! Putting the changes of a head into the extent tree.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::{ExtentFlags, ExtentRef, Key, KeyType};
use creamery_tree::CowHost;

use super::backref::{Backref, ExtentKind};
use super::item::ExtentItem;
use super::outcome::{Applied, Outcome};
use super::owners::Owners;
use super::ref_head::RefHead;
use super::tree::ExtentTree;

/// Greatest distance of a data reference's item from its hash; a bound for hostile images.
const HASH_REACH: u64 = 1 << 16;

pub(super) fn item_key(at: Logical, kind: ExtentKind, len: u64) -> Key {
    let objectid = ObjectId::new(at.get());
    match kind {
        ExtentKind::TreeBlock { level } => Key::new(objectid, KeyType::METADATA_ITEM, u64::from(level)),
        ExtentKind::Data => Key::new(objectid, KeyType::EXTENT_ITEM, len),
    }
}

/// The keys that an extent's item may have: tree blocks of old filesystems have EXTENT_ITEMs.
pub(super) fn item_keys(at: Logical, kind: ExtentKind, len: u64) -> [Key; 2] {
    [item_key(at, kind, len), item_key(at, ExtentKind::Data, len)]
}

impl ExtentTree {
    /// The most bytes that an extent item may have: a sixteenth of a leaf, as in Linux.
    fn extent_item_max(&self) -> usize {
        let leaf = self.tree.max_item_size() + creamery_format::ITEM_LEN;
        (leaf >> 4) - creamery_format::ITEM_LEN
    }

    /// Reads an extent's item, with its key and its length in bytes.
    fn find_extent(
        &self,
        at: Logical,
        kind: ExtentKind,
        len: u64,
    ) -> Result<Option<(Key, ExtentItem, usize)>> {
        for key in item_keys(at, kind, len) {
            let parse = |data: &[u8]| ExtentItem::parse(&key, data).map(|item| (key, item, data.len()));
            if let Some(found) = self.tree.get(&key, Wait::Yes, parse)? {
                return found.map(Some);
            }
        }
        Ok(None)
    }

    /// Applies one head to the extent tree.
    pub(super) fn apply(&self, host: &dyn CowHost, at: Logical, head: &RefHead) -> Result<Applied> {
        if head.must_insert {
            if head.sum() == 0 {
                return Ok(Applied::never_there());
            }
            let generation = host.generation();
            let (kind, item) = match head.kind {
                ExtentKind::Data => {
                    let item = ExtentItem::new(generation, ExtentFlags::DATA);
                    (head.kind, item.owned_by(head.owner.filter(|_| self.names_owners())))
                }
                ExtentKind::TreeBlock { .. } if self.is_skinny => {
                    (head.kind, ExtentItem::new(generation, ExtentFlags::TREE_BLOCK))
                }
                ExtentKind::TreeBlock { level } => {
                    (ExtentKind::Data, ExtentItem::of_old_block(generation, level))
                }
            };
            let key = item_key(at, kind, head.len);
            let applied = self.change_extent(host, &key, item, head, None)?;
            return Ok(Applied { outcome: Outcome::Inserted, ..applied });
        }
        let Some((key, item, len)) = self.find_extent(at, head.kind, head.len)? else {
            let message =
                format!("extent {at} of {} bytes has queued references and no extent item", head.len);
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        if head.changes_nothing() {
            return Ok(Applied::unchanged(Owners::of(&item)));
        }
        self.change_extent(host, &key, item, head, Some(len))
    }

    /// Changes the references of an extent; `len` is the length of its item in bytes, if it has one.
    fn change_extent(
        &self,
        host: &dyn CowHost,
        key: &Key,
        mut item: ExtentItem,
        head: &RefHead,
        len: Option<usize>,
    ) -> Result<Applied> {
        let before = if len.is_some() { Owners::of(&item) } else { Owners::Nobody };
        if head.full_backref {
            item.flags |= ExtentFlags::FULL_BACKREF;
        }
        let keyed_before = item.refs - item.inline_count().min(item.refs);
        for &(backref, change) in &head.changes {
            self.change_backref(host, key, &mut item, backref, change, keyed_before > 0)?;
        }
        item.refs = item.refs.checked_add_signed(head.sum()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("extent item {key} counts fewer references than exist"))
        })?;
        let after = Owners::of(&item);
        // The owner of a tree block is in its header.
        let owner = if item.flags.contains(ExtentFlags::DATA) { item.owner } else { head.owner };
        let payer = owner.map(|owner| (owner, item.generation));
        if item.refs == 0 {
            self.tree.remove(host, key)?;
            return Ok(Applied { outcome: Outcome::Freed, before, after, payer });
        }
        let bytes = item.to_bytes();
        match len {
            None => self.tree.insert(host, key, &bytes)?,
            Some(len) => self.tree.replace(host, key, len, &bytes)?,
        }
        Ok(Applied { outcome: Outcome::Changed, before, after, payer })
    }

    /// Changes one reference, in the item or in an item of its own.
    fn change_backref(
        &self,
        host: &dyn CowHost,
        key: &Key,
        item: &mut ExtentItem,
        backref: Backref,
        change: i64,
        has_keyed: bool,
    ) -> Result<()> {
        let missing = || {
            Error::new(
                ErrorKind::Corrupt,
                format!("extent item {key} lacks the reference to drop: {backref:?}"),
            )
        };
        if let Some(at) = item.inline.iter().position(|(known, _)| *known == backref) {
            let count = i64::from(item.inline[at].1) + change;
            match u32::try_from(count).map_err(|_| missing())? {
                0 => {
                    item.inline.remove(at);
                }
                count => item.inline[at].1 = count,
            }
            return Ok(());
        }
        // A block's reference occurs once, and its item has only the key: removing it shows whether it was there.
        let is_in_key = matches!(backref, Backref::TreeBlock { .. } | Backref::SharedBlock { .. });
        if is_in_key && has_keyed && change == -1 {
            let is_gone = self.tree.remove(host, &backref.key(key.objectid))?;
            return if is_gone { Ok(()) } else { Err(missing()) };
        }
        if has_keyed && !is_in_key {
            let keyed = self.keyed_items(key.objectid, backref, change)?;
            if !keyed.is_empty() {
                return self.change_keyed(host, backref, &keyed, change)?.ok_or_else(missing);
            }
        }
        let count = u32::try_from(change).map_err(|_| missing())?;
        if count > 0 && !item.insert_inline(backref, count, self.extent_item_max()) {
            self.insert_keyed(host, key.objectid, backref, count)?;
        }
        Ok(())
    }

    /// The reference's own items, with their counts: as many as `change` needs.
    ///
    /// Data references with one hash were put at neighbouring offsets, and removed ones left gaps. So the search
    /// for a dropped reference covers all items that follow its hash, as in Linux. The search for an added one ends
    /// after [`HASH_REACH`], for a great many may follow. Linux does not look behind a gap then, so a reference may
    /// have several items.
    fn keyed_items(&self, extent: ObjectId, backref: Backref, change: i64) -> Result<Vec<(Key, u32)>> {
        let first = backref.key(extent);
        let last = match backref {
            Backref::ExtentData { .. } if change < 0 => u64::MAX,
            Backref::ExtentData { .. } => first.offset.saturating_add(HASH_REACH),
            _ => first.offset,
        };
        let (mut found, mut counted) = (Vec::new(), 0_i64);
        let mut cursor = self.tree.cursor(&first, Wait::Yes)?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid != extent || key.kind != first.kind || key.offset > last {
                break;
            }
            let parsed = ExtentRef::parse_keyed(key.kind, key.offset, data).ok().flatten();
            let Some((known, count)) = parsed.and_then(Backref::from_format) else {
                return Err(Error::new(ErrorKind::Corrupt, format!("reference item {key}")));
            };
            if known == backref {
                found.push((key, count));
                counted = counted.saturating_add(count.into());
                if counted.saturating_add(change) >= 0 {
                    break;
                }
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    /// Changes the count of a reference that has these items; `None` when their counts are too small.
    fn change_keyed(
        &self,
        host: &dyn CowHost,
        backref: Backref,
        items: &[(Key, u32)],
        mut change: i64,
    ) -> Result<Option<()>> {
        for (key, count) in items {
            let left = i64::from(*count).saturating_add(change);
            change = left.min(0);
            match u32::try_from(left.max(0)) {
                Ok(0) => drop(self.tree.remove(host, key)?),
                Ok(left) => self.tree.upsert(host, key, &backref.keyed_data(left))?,
                Err(_) => return Ok(None),
            }
        }
        Ok((change == 0).then_some(()))
    }

    /// Inserts an item for a reference, at the first free key.
    fn insert_keyed(&self, host: &dyn CowHost, extent: ObjectId, backref: Backref, count: u32) -> Result<()> {
        let (first, data) = (backref.key(extent), backref.keyed_data(count));
        let tries = if matches!(backref, Backref::ExtentData { .. }) { HASH_REACH } else { 1 };
        for offset in (first.offset..=u64::MAX).take(usize::try_from(tries).expect("a small number")) {
            match self.tree.insert(host, &Key { offset, ..first }, &data) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                other => return other,
            }
        }
        Err(Error::new(ErrorKind::Corrupt, format!("no free key from {first} on for one more reference")))
    }
}
