//! What a mounted Btrfs tells of its trees, by the kernel's control of that name, which our own mounts answer, too.

#![allow(unsafe_code, reason = "no crate has this ioctl; the block says why it is sound")]

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::ioctl::{Opcode, Updater, opcode};

/// `struct btrfs_ioctl_search_args`: a key of 104 bytes, and room for what is found.
const TREE_SEARCH: Opcode = opcode::read_write::<[u64; 512]>(0x94, 17);
const FOUND_AT: usize = 104;
const HEADER_LEN: usize = 32;
/// Kinds of items that have nothing but their key.
const EMPTY: [u32; 4] = [48, 176, 182, 199];

/// An item of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of a key")]
pub struct TreeItem {
    pub objectid: u64,
    pub kind: u8,
    pub offset: u64,
    /// What belongs to the key.
    pub data: Vec<u8>,
}

impl TreeItem {
    /// The eight bytes at `at` of its data.
    ///
    /// # Panics
    /// When it has fewer.
    #[must_use]
    pub fn u64_at(&self, at: usize) -> u64 {
        word(&self.data, at)
    }
}

/// All items of the tree with the number `tree`, of the filesystem that `path` is on, as `BTRFS_IOC_TREE_SEARCH` tells them. An
/// item of more than 3,900 bytes is an error: there is no room for it.
///
/// ```no_run
/// let items = creamery_testkit::tree_items("/mnt".as_ref(), 5).unwrap();
/// assert_eq!(items[0].objectid, 256);
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn tree_items(path: &Path, tree: u64) -> Result<Vec<TreeItem>> {
    let what = || format!("searching tree {tree} of {}", path.display());
    let file = File::open(path).with_context(what)?;
    let mut items: Vec<TreeItem> = Vec::new();
    let (mut objectid, mut kind, mut offset) = (0, 0, 0);
    loop {
        let mut message = [0_u64; 512];
        let most = u64::MAX;
        message[..7].copy_from_slice(&[tree, objectid, most, offset, most, 0, most]);
        message[7] = u64::from(kind) | 255 << 32;
        message[8] = u64::from(u32::MAX);
        // SAFETY: the kernel reads a key of 104 bytes and writes no more than 4,096, which the array has.
        unsafe { rustix::ioctl::ioctl(&file, Updater::<TREE_SEARCH, [u64; 512]>::new(&mut message)) }
            .with_context(what)?;
        let bytes: Vec<u8> = message.iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = u32::from_le_bytes(bytes[64..68].try_into()?);
        let mut at = FOUND_AT;
        for _ in 0..count {
            let len = u32::from_le_bytes(bytes[at + 28..at + 32].try_into()?) as usize;
            let found = u32::from_le_bytes(bytes[at + 24..at + 28].try_into()?);
            let data = bytes[at + HEADER_LEN..at + HEADER_LEN + len].to_vec();
            (objectid, kind, offset) = (word(&bytes, at + 8), u8::try_from(found)?, word(&bytes, at + 16));
            ensure!(
                len > 0 || EMPTY.contains(&found),
                "{}: no room for ({objectid} {kind} {offset})",
                what()
            );
            items.push(TreeItem { objectid, kind, offset, data });
            at += HEADER_LEN + len;
        }
        let next = match (offset.checked_add(1), kind.checked_add(1), objectid.checked_add(1)) {
            (Some(offset), ..) => (objectid, kind, offset),
            (_, Some(kind), _) => (objectid, kind, 0),
            (.., Some(objectid)) => (objectid, 0, 0),
            _ => return Ok(items),
        };
        if count == 0 {
            return Ok(items);
        }
        (objectid, kind, offset) = next;
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
