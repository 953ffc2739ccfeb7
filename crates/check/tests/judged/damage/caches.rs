//! The old free space cache.

use anyhow::{Context, Result};
use creamery_base::{Logical, TreeId};
use creamery_check::Problem::*;
use creamery_codec::{ChecksumType, checksum};
use creamery_format::KeyType;

use super::Change::{Image as Any, Superblock as Super};
use super::edits::u64_at;
use super::{DamageRow, row};
use crate::image::Image;

const PAGE: usize = 4096;

/// Edits the first page of the first cache, from its generation on, and renews the page's checksum.
fn edit(image: &Image, edit: fn(&mut [u8])) -> Result<()> {
    change(image, edit, true)
}

fn change(image: &Image, edit: fn(&mut [u8]), seal: bool) -> Result<()> {
    let items = image.items(TreeId::ROOT)?;
    let header = items.iter().find(|it| it.key.kind == KeyType::UNTYPED).context("no cache")?;
    let ino = u64_at(header, 0);
    let of_cache = |kind| {
        let found = items.iter().find(|it| it.key.objectid.get() == ino && it.key.kind == kind);
        found.with_context(|| format!("inode {ino} lacks an item"))
    };
    let sums = (u64_at(of_cache(KeyType::INODE_ITEM)?, 16) as usize / PAGE) * 4;
    let at = Logical::new(u64_at(of_cache(KeyType::EXTENT_DATA)?, 21));
    let mut page = image.data(at, PAGE)?;
    edit(&mut page[sums..]);
    if seal {
        let sum = checksum(ChecksumType::Crc32c, &page[sums..]);
        page[..4].copy_from_slice(sum.as_bytes(ChecksumType::Crc32c));
    }
    image.write(at, &page)
}

fn add(bytes: &mut [u8], at: usize, more: u64) {
    let field = &mut bytes[at..at + 8];
    let old = u64::from_le_bytes((&*field).try_into().expect("eight bytes"));
    field.copy_from_slice(&old.wrapping_add(more).to_le_bytes());
}

pub(super) const ROWS: &[DamageRow] = &[
    row(
        "generation of a cache",
        Any(|image| edit(image, |bytes| add(bytes, 0, 1))),
        &[SpaceCacheUnusable],
        false,
    ),
    row(
        "free bytes of a cache",
        Any(|image| edit(image, |bytes| add(bytes, 16, 4096_u64.wrapping_neg()))),
        &[SpaceCacheUnusable],
        false,
    ),
    row(
        "place of free space in a cache",
        Any(|image| edit(image, |bytes| add(bytes, 8, 4096_u64.wrapping_neg()))),
        &[SpaceCacheWrong],
        true,
    ),
    row(
        "checksum of a cache",
        Any(|image| change(image, |bytes| bytes[100] ^= 1, false)),
        &[SpaceCacheUnusable],
        false,
    ),
    row("caches out of date", Super(|raw| raw.cache_generation = 3.into()), &[], false),
];
