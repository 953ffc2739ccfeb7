//! Quota groups, full and simple ones.

use creamery_base::TreeId;
use creamery_check::Problem::*;
use creamery_format::KeyType;

use super::Change::{Image as Any, Item as One, Last};
use super::edits::{add, any, remove, set};
use super::{DamageRow, row};
use crate::image::Item;

const QUOTA: TreeId = TreeId::QUOTA;

/// Whether the item is about subvolume 256.
fn of_a_subvolume(item: &Item) -> bool {
    item.key.offset == 256
}

pub(super) const ROWS: &[DamageRow] = &[
    row(
        "referenced bytes",
        One(QUOTA, KeyType::QGROUP_INFO, of_a_subvolume, |b, s| add(b, s, 8, 4096)),
        &[QuotaReferenced],
        true,
    ),
    row(
        "exclusive bytes",
        One(QUOTA, KeyType::QGROUP_INFO, of_a_subvolume, |b, s| add(b, s, 24, 4096)),
        &[QuotaExclusive],
        true,
    ),
    row(
        "referenced bytes of a group of groups",
        Last(QUOTA, KeyType::QGROUP_INFO, any, |b, s| add(b, s, 8, 4096)),
        &[QuotaReferenced],
        true,
    ),
    row(
        "exclusive bytes of a group of groups",
        Last(QUOTA, KeyType::QGROUP_INFO, any, |b, s| add(b, s, 24, 4096)),
        &[QuotaExclusive],
        true,
    ),
    row(
        "group of a group of groups lost",
        One(QUOTA, KeyType::QGROUP_INFO, of_a_subvolume, remove),
        &[QuotaGroupMissing],
        true,
    ),
    row(
        "group lost",
        One(QUOTA, KeyType::QGROUP_INFO, |it| it.key.offset == 5, remove),
        &[QuotaGroupHalf, QuotaGroupNone],
        false,
    ),
    row(
        "flags of the status",
        One(QUOTA, KeyType::QGROUP_STATUS, any, |b, s| set(b, s, 17, &[1])),
        &[QuotaStatusFlags],
        false,
    ),
    row("limits lost", One(QUOTA, KeyType::QGROUP_LIMIT, any, remove), &[QuotaGroupHalf], false),
    row(
        "relation lost at the greater group",
        Last(QUOTA, KeyType::QGROUP_RELATION, any, remove),
        &[QuotaRelationHalf],
        false,
    ),
    row(
        "relation lost at the member",
        One(QUOTA, KeyType::QGROUP_RELATION, any, remove),
        &[QuotaRelationHalf, QuotaReferenced],
        true,
    ),
    row(
        "known to be inconsistent",
        Any(|image| {
            let items = image.items(QUOTA)?;
            for item in items.iter().filter(|item| item.key.kind == KeyType::QGROUP_INFO) {
                image.change(item.block, |bytes| add(bytes, item.slot, 8, 4096))?;
            }
            for item in items.iter().filter(|item| item.key.kind == KeyType::QGROUP_STATUS) {
                image.change(item.block, |bytes| add(bytes, item.slot, 16, 4))?;
            }
            Ok(())
        }),
        &[QuotaInconsistent],
        false,
    ),
];
