//! The predicted findings of a scrub for damage, place by place, with the sectors that it repairs and those that are lost.
//!
//! A sector of data is restored if one of its copies is good, or if its place in the row has no more bad columns than the row has parity. A
//! tree block is restored if each of its sectors has a correct copy, or its row without some columns gives it. Parity is judged if all data
//! of its place is known: data that is lost, or is unreadable and has no checksum, is unknown.

use std::collections::{BTreeMap, BTreeSet};

use creamery::check::scrub::Outcome;

use crate::content::ContentKind;
use crate::damage::{BadSectors, FoundDamage, Hurt};
use crate::disk::SECTOR;
use crate::geometry::{ELEMENT, Group, MemberSpot};
use crate::world::{ScrubWorld, Use};

/// The prediction for a scrub.
#[derive(Default, Debug)]
pub(crate) struct Prediction {
    pub(crate) findings: BTreeMap<FoundDamage, Outcome>,
    /// Sectors and blocks that are unreadable or wrong.
    pub(crate) unreadable: u64,
    pub(crate) wrong: u64,
    /// Sectors without checksums, once for each copy that differs from the first one.
    pub(crate) differing: u64,
    /// Addresses of lost data, and of data without checksums that reads with other content than before.
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) unknown: BTreeSet<u64>,
    pub(crate) lost_trees: BTreeSet<u64>,
    /// Sectors that stay bad: nothing is written there.
    pub(crate) left: BTreeSet<MemberSpot>,
    /// Parity that is rewritten for changed data that is not in use.
    pub(crate) follows: BTreeSet<MemberSpot>,
}

/// The knowledge of the data of a place of a row, all columns together. Later variants take precedence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Known {
    Good,
    /// Some data has no checksum.
    Unsummed,
    /// Some data without a checksum, or not in use, is unreadable.
    Unread,
    Lost,
}

/// The result of one way to read a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Read {
    Right,
    Wrong,
    Fails,
}

/// Whether a scrub repairs: then repaired sectors are good for later ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scrubs {
    ToMend,
    ToRead,
}

impl Prediction {
    pub(crate) fn of(world: &ScrubWorld, damage: &BadSectors, scrubs: Scrubs) -> Self {
        let mut prediction = Self::default();
        let mut addresses = BTreeSet::new();
        let mut places = BTreeSet::new();
        for spot in damage.keys() {
            match world.uses.get(spot) {
                Some(Use::Data { logical }) => drop(addresses.insert(*logical)),
                Some(Use::Tree { block, .. }) => drop(addresses.insert(*block)),
                Some(Use::Superblock) => {
                    prediction.wrong += 1;
                    prediction.findings.insert(("Superblock", *spot), Outcome::Mended);
                }
                Some(Use::Parity { .. }) | None => {}
            }
            places.extend(place_of(world, *spot));
        }
        let mut now = damage.clone();
        let is_tree =
            |at: &u64| matches!(world.content.extents.get(at), Some((kind, _)) if *kind == ContentKind::Tree);
        // In the order in which a row is judged.
        for at in &addresses {
            if scrubs == Scrubs::ToRead {
                now.clone_from(damage);
            }
            match () {
                () if is_tree(at) => prediction.tree(world, &mut now, *at),
                () if world.content.summed.contains(at) => prediction.data(world, &mut now, *at),
                () => prediction.unsummed(world, &now, *at),
            }
        }
        for at in addresses.iter().filter(|at| !is_tree(at) && !world.content.summed.contains(at)) {
            if first_read(&reads(world.group_of(*at), &now, *at)) == Some(Read::Wrong) {
                prediction.unknown.insert(*at);
            }
        }
        for place in places {
            prediction.parity(world, damage, place);
        }
        prediction
    }

    /// Handles each bad copy of a sector with a checksum.
    fn data(&mut self, world: &ScrubWorld, now: &mut BadSectors, logical: u64) {
        let group = world.group_of(logical);
        let is_borne = is_borne(group, now, logical);
        if !is_borne {
            self.lost.insert(logical);
        }
        for spot in group.copies(logical) {
            match now.get(&spot) {
                None => continue,
                Some(Hurt::Unreadable) => self.unreadable += 1,
                Some(Hurt::Rotten) => self.wrong += 1,
            }
            let outcome = if is_borne { Outcome::Mended } else { Outcome::Lost };
            self.findings.insert(("Data", spot), outcome);
            match is_borne {
                true => drop(now.remove(&spot)),
                false => drop(self.left.insert(spot)),
            }
        }
    }

    /// Handles each unreadable copy of a sector without a checksum, and each one that differs from the first.
    fn unsummed(&mut self, world: &ScrubWorld, now: &BadSectors, logical: u64) {
        let group = world.group_of(logical);
        let copies = group.copies(logical);
        let is_lost = first_read(&reads(group, now, logical)).is_none();
        if is_lost {
            self.lost.insert(logical);
        }
        let hurt = |spot: &MemberSpot| now.get(spot).copied();
        for spot in copies.iter().filter(|spot| hurt(spot) == Some(Hurt::Unreadable)) {
            self.unreadable += 1;
            let outcome = if is_lost { Outcome::Lost } else { Outcome::Undecided };
            self.findings.insert(("Data", *spot), outcome);
        }
        self.left.extend(copies.iter().copied().filter(|spot| now.contains_key(spot)));
        let first = hurt(&copies[0]);
        let differs = |spot: &&MemberSpot| {
            let both = [first, hurt(spot)];
            both.contains(&Some(Hurt::Rotten)) && !both.contains(&Some(Hurt::Unreadable))
        };
        let differing = copies[1..].iter().filter(differs).count() as u64;
        if differing > 0 {
            self.differing += differing;
            self.findings.insert(("Differing", copies[0]), Outcome::Undecided);
        }
    }

    fn tree(&mut self, world: &ScrubWorld, now: &mut BadSectors, block: u64) {
        let is_borne = is_block_borne(world, now, block);
        if !is_borne {
            self.lost_trees.insert(block);
        }
        let outcome = if is_borne { Outcome::Mended } else { Outcome::Lost };
        for (start, len) in world.tree_pieces(block).into_iter().flatten() {
            let sectors = (0..len).step_by(SECTOR as usize);
            let spots = sectors.map(|by| MemberSpot { offset: start.offset + by, ..start });
            let bad: Vec<MemberSpot> = spots.filter(|spot| now.contains_key(spot)).collect();
            match bad.iter().any(|spot| now[spot] == Hurt::Unreadable) {
                _ if bad.is_empty() => continue,
                true => self.unreadable += 1,
                false => self.wrong += 1,
            }
            self.findings.insert(("Tree", start), outcome);
            match is_borne {
                true => now.retain(|spot, _| !bad.contains(spot)),
                false => self.left.extend(bad),
            }
        }
    }

    /// The knowledge of the data of a place of a row; `None` if nothing there is in use.
    fn known(&self, world: &ScrubWorld, damage: &BadSectors, spots: &[MemberSpot]) -> Option<Known> {
        let used = |spot: &MemberSpot| world.uses.get(spot);
        if !spots.iter().any(|spot| used(spot).is_some()) {
            return None;
        }
        let known = |spot: &MemberSpot| {
            let is_unread = damage.get(spot) == Some(&Hurt::Unreadable);
            match used(spot) {
                Some(Use::Data { logical }) if world.content.summed.contains(logical) => {
                    if self.lost.contains(logical) { Known::Lost } else { Known::Good }
                }
                Some(Use::Tree { block, .. }) if self.lost_trees.contains(block) => Known::Lost,
                Some(Use::Data { .. }) | None if is_unread => Known::Unread,
                Some(Use::Data { .. }) => Known::Unsummed,
                _ => Known::Good,
            }
        };
        spots.iter().map(known).max()
    }

    /// Judges P and Q of a place of a row with a bad column.
    fn parity(&mut self, world: &ScrubWorld, damage: &BadSectors, (group, row, within): (usize, u64, u64)) {
        let group = &world.groups[group];
        let spots = group.place(row, within);
        let (data, parity) = spots.split_at(group.columns() as usize);
        let Some(known) = self.known(world, damage, data) else { return };
        let is_unsummed =
            |used: &Use| matches!(used, Use::Data { logical } if !world.content.summed.contains(logical));
        let rotten = || data.iter().filter(|spot| damage.get(spot) == Some(&Hurt::Rotten));
        // Data that cannot be judged counts as stored.
        let is_changed = rotten().any(|spot| world.uses.get(spot).is_none_or(is_unsummed));
        for (number, spot) in parity.iter().enumerate() {
            let hurt = damage.get(spot).copied();
            let is_unread = hurt == Some(Hurt::Unreadable);
            if known >= Known::Unread && !is_unread {
                self.left.insert(*spot);
                continue;
            }
            let outcome = match known {
                _ if hurt.is_none() && !is_changed => continue,
                Known::Lost => Outcome::Lost,
                Known::Unread | Known::Unsummed => Outcome::Undecided,
                Known::Good => Outcome::Mended,
            };
            match outcome {
                Outcome::Mended if is_changed => drop(self.follows.insert(*spot)),
                Outcome::Mended => {}
                _ => drop(self.left.insert(*spot)),
            }
            *(if is_unread { &mut self.unreadable } else { &mut self.wrong }) += 1;
            let element = group.element(row, data.len() + number);
            let worst = self.findings.entry(("Parity", element)).or_insert(outcome);
            *worst = outcome.max(*worst);
        }
    }

    /// Whether no damage remains.
    pub(crate) fn is_all_mended(&self) -> bool {
        self.findings.values().all(|outcome| *outcome == Outcome::Mended)
    }
}

/// The place of a row with a sector of a chunk with parity.
fn place_of(world: &ScrubWorld, spot: MemberSpot) -> Option<(usize, u64, u64)> {
    for (number, group) in world.groups.iter().enumerate().filter(|(_, group)| group.profile.parity > 0) {
        let has = |stripe: &&MemberSpot| {
            let range = stripe.offset..stripe.offset + group.stripe_bytes().next_multiple_of(ELEMENT);
            stripe.member == spot.member && range.contains(&spot.offset)
        };
        if let Some(stripe) = group.stripes.iter().find(has) {
            let from = spot.offset - stripe.offset;
            return Some((number, from / ELEMENT, from % ELEMENT));
        }
    }
    None
}

/// Whether a sector with a checksum is good, or is restored.
fn is_borne(group: &Group, damage: &BadSectors, logical: u64) -> bool {
    let is_good = |spot: &MemberSpot| !damage.contains_key(spot);
    if group.copies(logical).iter().any(is_good) {
        return true;
    }
    let place = group.place(group.row_of(logical), group.within(logical));
    group.profile.parity > 0 && place.iter().filter(|spot| !is_good(spot)).count() <= group.profile.parity
}

/// Whether each tree block is good, or is restored without changes of the others.
pub(crate) fn are_blocks_borne(world: &ScrubWorld, damage: &BadSectors) -> bool {
    let mut uses = damage.keys().filter_map(|spot| world.uses.get(spot));
    uses.all(|used| match used {
        Use::Tree { block, .. } => is_block_borne(world, damage, *block),
        _ => true,
    })
}

/// Whether a tree block is good, or is restored.
fn is_block_borne(world: &ScrubWorld, damage: &BadSectors, block: u64) -> bool {
    let group = world.group_of(block);
    let len = world.content.extents[&block].1.len() as u64;
    let mut sectors = (block..block + len).step_by(SECTOR as usize);
    sectors.all(|at| reads(group, damage, at).contains(&Read::Right))
}

/// The results of all ways to read a sector, in the order of trial.
fn reads(group: &Group, damage: &BadSectors, logical: u64) -> Vec<Read> {
    if group.profile.parity == 0 {
        return group.copies(logical).iter().map(|spot| read(damage, &[*spot])).collect();
    }
    let own = group.stripe_of(group.row_of(logical), group.column_of(logical));
    let ways = hypotheses(group).into_iter().filter(|lost| lost.is_empty() || lost.contains(&own));
    ways.map(|lost| read_without(group, damage, logical, &lost)).collect()
}

fn first_read(reads: &[Read]) -> Option<Read> {
    reads.iter().copied().find(|read| *read != Read::Fails)
}

/// Stripes that may be lost: none, each one, and each two where there is Q.
fn hypotheses(group: &Group) -> Vec<Vec<usize>> {
    let stripes = 0..group.stripes.len();
    let mut all = vec![Vec::new()];
    all.extend(stripes.clone().map(|one| vec![one]));
    if group.profile.parity > 1 {
        all.extend(stripes.clone().flat_map(|one| (one + 1..stripes.end).map(move |two| vec![one, two])));
    }
    all
}

/// The result of reading a sector as if these stripes were lost.
fn read_without(group: &Group, damage: &BadSectors, logical: u64, lost: &[usize]) -> Read {
    let (row, own) = (group.row_of(logical), group.column_of(logical));
    let place = group.place(row, group.within(logical));
    let own_stripe = group.stripe_of(row, own);
    if !lost.contains(&own_stripe) {
        return read(damage, &[place[own]]);
    }
    // With one lost stripe it is P, the data and nothing of Q; with two it is everything except these.
    let q = (group.profile.parity > 1).then_some(place.len() - 1);
    let is_other = |column: &usize| lost.contains(&group.stripe_of(row, *column)) && *column != own;
    let spare = (0..place.len()).find(is_other).or(q);
    let sources = (0..place.len()).filter(|column| *column != own && Some(*column) != spare);
    read(damage, &sources.map(|column| place[column]).collect::<Vec<_>>())
}

/// The result of reading sectors that are all needed.
fn read(damage: &BadSectors, sources: &[MemberSpot]) -> Read {
    let hurts = || sources.iter().filter_map(|spot| damage.get(spot));
    match () {
        () if hurts().any(|hurt| *hurt == Hurt::Unreadable) => Read::Fails,
        () if hurts().count() > 0 => Read::Wrong,
        () => Read::Right,
    }
}
