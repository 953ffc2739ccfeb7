//! Damage of a set, and what has to become of it: what a scrub finds, place by place, what it mends, and what is lost.
//!
//! A sector of data is brought back where one copy of it is good, or where no more columns of its place in the row are bad than the row has parity;
//! a tree block where that is so of all of it. Whatever is brought back is, where it lies, byte for byte what it was; nothing else is written.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::check::scrub::{Counts, NoProgress, Outcome, Report, Scrub, What};

use crate::content::{Kind, NOCOW, files_of};
use crate::disk::{SECTOR, Set};
use crate::geometry::{ELEMENT, Group, Spot};
use crate::world::{Use, World};

/// How a sector is bad.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Hurt {
    Rotten,
    Unreadable,
}

/// Sectors that are bad.
pub(crate) type Damage = BTreeMap<Spot, Hurt>;

/// How much of parity counts as unreadable with one sector that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reads {
    BySector,
    /// All of its element.
    ByElement,
}

/// What is found, by a name that can be ordered, and where.
type Found = (&'static str, Spot);

/// What a scrub has to find.
#[derive(Default, Debug)]
pub(crate) struct Prediction {
    findings: BTreeMap<Found, Outcome>,
    /// Findings that may be there: nobody can say whether parity is right whose data is lost.
    maybe: BTreeSet<Found>,
    /// Sectors and blocks that cannot be read, and such that are not what they have to be.
    pub(crate) unreadable: u64,
    pub(crate) wrong: u64,
    /// Addresses of data that is lost, and of data that nobody can judge.
    pub(crate) lost: BTreeSet<u64>,
    pub(crate) unknown: BTreeSet<u64>,
    pub(crate) lost_trees: BTreeSet<u64>,
    /// Sectors that are bad afterwards, too.
    left: BTreeSet<Spot>,
    /// Open fault: ways to rebuild read another sector that cannot be read again and again, until its device counts as failed. Then parity of other rows is
    /// told as unreadable, and what has no checksum is rebuilt from parity that may be wrong.
    pub(crate) is_read_in_vain: bool,
    /// Open fault: a sector that cannot be read hides differences between copies that are read with it.
    pub(crate) may_hide: bool,
    /// Something is brought back only where each sector of a block is rebuilt by itself.
    pub(crate) is_piecemeal: bool,
}

/// What is known of the data of a place of a row, all columns together.
struct Place {
    /// Some has no checksum.
    has_unsummed: bool,
    is_lost: bool,
    /// Open fault: parity of what has no checksum and cannot be read is told as undecided or as lost, and may be right.
    is_gone: bool,
    /// Some without a checksum is bad.
    is_unknown: bool,
    /// Some that is in use for nothing is other than it was, and counts as it is.
    is_changed: bool,
}

/// A scrub that mends.
pub(crate) fn scrub(set: &Set) -> Result<Report> {
    Ok(Scrub::default().run_on(set.devices(), &NoProgress)?)
}

/// A scrub that writes nothing.
pub(crate) fn scrub_read_only(set: &Set) -> Result<Report> {
    Ok(Scrub::default().read_only().run_on(set.devices(), &NoProgress)?)
}

pub(crate) fn apply(set: &Set, damage: &Damage) {
    for (spot, hurt) in damage {
        let disk = &set.disks[spot.member];
        match hurt {
            Hurt::Rotten => disk.rot(spot.offset),
            Hurt::Unreadable => disk.faults(|faults| {
                faults.unreadable.insert(spot.offset);
            }),
        }
    }
}

fn is_unreadable(hurt: Option<&Hurt>) -> bool {
    hurt == Some(&Hurt::Unreadable)
}

impl Prediction {
    pub(crate) fn of(world: &World, damage: &Damage, reads: Reads) -> Self {
        let unreadable = damage.values().filter(|hurt| **hurt == Hurt::Unreadable).count();
        let is_read_in_vain = world.shape.profile.parity > 0 && unreadable > 1;
        let mut prediction = Self { is_read_in_vain, may_hide: unreadable > 0, ..Self::default() };
        let mut blocks = BTreeSet::new();
        let mut places = BTreeSet::new();
        for (spot, hurt) in damage {
            match world.uses.get(spot) {
                None => {}
                Some(Use::Data { logical }) => prediction.data(world, damage, (*spot, *hurt), *logical),
                Some(Use::Tree { block, .. }) => drop(blocks.insert(*block)),
                Some(Use::Parity { .. }) => {}
                Some(Use::Superblock) => {
                    prediction.wrong += 1;
                    prediction.findings.insert(("Superblock", *spot), Outcome::Mended);
                }
            }
            match place_of(world, *spot) {
                Some((group, row, _)) if reads == Reads::ByElement && *hurt == Hurt::Unreadable => {
                    let of_element = (0..ELEMENT).step_by(SECTOR as usize);
                    places.extend(of_element.map(|within| (group, row, within)));
                }
                place => places.extend(place),
            }
        }
        blocks.iter().for_each(|block| prediction.tree(world, damage, *block));
        for (group, row, within) in places {
            prediction.parity(world, damage, reads, (group, row, within));
        }
        prediction
    }

    fn data(&mut self, world: &World, damage: &Damage, (spot, hurt): (Spot, Hurt), logical: u64) {
        let group = world.group_of(logical);
        if !world.content.summed.contains(&logical) {
            self.unknown.insert(logical);
            self.left.insert(spot);
            let copies = group.copies(logical);
            if hurt == Hurt::Unreadable {
                self.unreadable += 1;
                self.findings.insert(("Data", spot), Outcome::Undecided);
            } else if copies.len() > 1 {
                self.findings.insert(("Differing", copies[0]), Outcome::Undecided);
            }
            return;
        }
        match hurt {
            Hurt::Unreadable => self.unreadable += 1,
            Hurt::Rotten => self.wrong += 1,
        }
        let is_borne = is_borne(group, damage, logical);
        let outcome = match is_borne {
            true => Outcome::Mended,
            false => {
                self.lost.insert(logical);
                self.left.insert(spot);
                Outcome::Lost
            }
        };
        self.findings.insert(("Data", spot), outcome);
    }

    fn tree(&mut self, world: &World, damage: &Damage, block: u64) {
        let group = world.group_of(block);
        let pieces = world.tree_pieces(block);
        let sectors = |(at, len): (Spot, u64)| (0..len).step_by(SECTOR as usize).map(move |by| (at, by));
        let bad = |piece: &(Spot, u64)| {
            let mut of = sectors(*piece).map(|(at, by)| Spot { offset: at.offset + by, ..at });
            of.any(|spot| damage.contains_key(&spot))
        };
        let len = world.content.extents[&block].1.len() as u64;
        let places: Vec<u64> = (block..block + len).step_by(SECTOR as usize).collect();
        let is_borne = match group.profile.parity {
            0 => {
                let by_sector = places.iter().all(|at| is_borne(group, damage, *at));
                let whole = pieces.iter().any(|copy| !copy.iter().any(bad));
                self.is_piecemeal |= by_sector && !whole;
                whole
            }
            parity => {
                let by_sector = places.iter().all(|at| is_borne(group, damage, *at));
                let stripes = places.iter().flat_map(|at| bad_columns(group, damage, *at));
                let stripes: BTreeSet<usize> = stripes.map(|(_, stripe)| stripe).collect();
                self.is_piecemeal |= by_sector && stripes.len() > parity && pieces[0].iter().any(bad);
                by_sector
            }
        };
        let outcome = if is_borne { Outcome::Mended } else { Outcome::Lost };
        if !is_borne {
            self.lost_trees.insert(block);
        }
        for piece in pieces.iter().flatten() {
            if !bad(piece) {
                if !is_borne {
                    self.maybe.insert(("Tree", piece.0));
                }
                continue;
            }
            let spots = sectors(*piece).map(|(at, by)| Spot { offset: at.offset + by, ..at });
            let spots: Vec<Spot> = spots.filter(|spot| damage.contains_key(spot)).collect();
            match spots.iter().any(|spot| is_unreadable(damage.get(spot))) {
                true => self.unreadable += 1,
                false => self.wrong += 1,
            }
            self.findings.insert(("Tree", piece.0), outcome);
            if !is_borne {
                self.left.extend(spots);
            }
        }
    }

    /// What is known of the data of a place of a row; none where nothing is in use.
    fn place(
        &self,
        world: &World,
        damage: &Damage,
        spots: impl Iterator<Item = Spot> + Clone,
    ) -> Option<Place> {
        let used: Vec<&Use> = spots.clone().filter_map(|spot| world.uses.get(&spot)).collect();
        let is_unsummed =
            |used: &Use| matches!(used, Use::Data { logical } if !world.content.summed.contains(logical));
        let is_lost = |used: &&Use| match used {
            Use::Data { logical } => self.lost.contains(logical),
            Use::Tree { block, .. } => self.lost_trees.contains(block),
            _ => false,
        };
        let hurt = |spot: &Spot| (damage.get(spot).copied(), world.uses.get(spot));
        let hurts: Vec<_> = spots.map(|spot| hurt(&spot)).collect();
        let is_gone = |(hurt, used): &(Option<Hurt>, Option<&Use>)| {
            *hurt == Some(Hurt::Unreadable) && used.is_none_or(is_unsummed)
        };
        (!used.is_empty()).then(|| Place {
            has_unsummed: used.iter().any(|used| is_unsummed(used)),
            is_lost: used.iter().any(is_lost),
            is_gone: hurts.iter().any(is_gone),
            is_unknown: hurts.iter().any(|(hurt, used)| hurt.is_some() && used.is_some_and(is_unsummed)),
            is_changed: hurts.iter().any(|(hurt, used)| *hurt == Some(Hurt::Rotten) && used.is_none()),
        })
    }

    /// Judges P and Q of a place of a row, which one of its columns is bad of.
    fn parity(
        &mut self,
        world: &World,
        damage: &Damage,
        reads: Reads,
        (group, row, within): (usize, u64, u64),
    ) {
        let group = &world.groups[group];
        let columns = group.columns() as usize;
        let at = |column: usize| {
            let element = group.element(row, column);
            Spot { offset: element.offset + within, ..element }
        };
        let Some(place) = self.place(world, damage, (0..columns).map(at)) else { return };
        for column in columns..group.stripes.len() {
            let (spot, element) = (at(column), group.element(row, column));
            let end = Spot { offset: element.offset + ELEMENT, ..element };
            let is_element = reads == Reads::ByElement
                && damage.range(element..end).any(|(_, hurt)| *hurt == Hurt::Unreadable);
            let hurt = if is_element { Some(&Hurt::Unreadable) } else { damage.get(&spot) };
            let outcome = match () {
                () if place.is_gone && !place.is_lost => {
                    self.maybe.insert(("Parity", element));
                    self.left.insert(spot);
                    continue;
                }
                () if place.is_lost => {
                    self.maybe.insert(("Parity", element));
                    self.left.insert(spot);
                    if hurt.is_some() { Outcome::Lost } else { continue }
                }
                () if hurt.is_none() && !place.is_unknown && !place.is_changed => continue,
                () if place.has_unsummed => {
                    self.left.insert(spot);
                    Outcome::Undecided
                }
                () => Outcome::Mended,
            };
            match is_unreadable(hurt) {
                true => self.unreadable += 1,
                false => self.wrong += 1,
            }
            if place.is_changed {
                self.left.insert(spot);
            }
            let worst = self.findings.entry(("Parity", element)).or_insert(outcome);
            *worst = outcome.max(*worst);
        }
    }

    /// Whether nothing is left.
    pub(crate) fn is_all_mended(&self) -> bool {
        self.findings.values().all(|outcome| *outcome == Outcome::Mended) && self.maybe.is_empty()
    }
}

/// The place of a row that a sector of a chunk with parity is a column of.
fn place_of(world: &World, spot: Spot) -> Option<(usize, u64, u64)> {
    for (number, group) in world.groups.iter().enumerate().filter(|(_, group)| group.profile.parity > 0) {
        let has = |stripe: &&Spot| {
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

/// The bad columns of the place of a row that has an address, each with its stripe's number.
fn bad_columns(group: &Group, damage: &Damage, logical: u64) -> Vec<(usize, usize)> {
    let (row, within) = (group.row_of(logical), (logical - group.start) % ELEMENT);
    let stripe_of = |spot: Spot| {
        group.stripes.iter().position(|stripe| stripe.member == spot.member).expect("it has a stripe there")
    };
    (0..group.stripes.len())
        .map(|column| (column, group.element(row, column)))
        .filter(|(_, spot)| damage.contains_key(&Spot { offset: spot.offset + within, ..*spot }))
        .map(|(column, spot)| (column, stripe_of(spot)))
        .collect()
}

/// Whether a sector is good, or is brought back.
fn is_borne(group: &Group, damage: &Damage, logical: u64) -> bool {
    let good = group.copies(logical).iter().any(|copy| !damage.contains_key(copy));
    good || group.profile.parity > 0 && bad_columns(group, damage, logical).len() <= group.profile.parity
}

const fn name(what: What) -> &'static str {
    match what {
        What::Superblock => "Superblock",
        What::Tree => "Tree",
        What::Data => "Data",
        What::Parity => "Parity",
        What::Differing => "Differing",
        What::NotScrubbed => "NotScrubbed",
    }
}

/// What a report has, the worst of each place.
pub(crate) fn findings_of(report: &Report) -> BTreeMap<Found, Outcome> {
    let mut findings = BTreeMap::new();
    for damage in &report.damages {
        let at = damage.finding.at;
        let member = usize::try_from(at.dev.get() - 1).expect("few members");
        let found = (name(damage.finding.what), Spot { member, offset: at.offset });
        let worst = findings.entry(found).or_insert(damage.finding.outcome);
        *worst = damage.finding.outcome.max(*worst);
    }
    findings
}

/// Damages the set, scrubs it, and expects what was predicted: findings and numbers, each byte afterwards, all files, and what a second scrub finds.
pub(crate) fn judge(world: &World, damage: &Damage) -> Result<Counts> {
    let by_sector = judge_reading(world, damage, Reads::BySector);
    by_sector.or_else(|error| {
        let by_element = judge_reading(world, damage, Reads::ByElement);
        by_element.map_err(|other| other.context(format!("by sector {error:#}, by element")))
    })
}

pub(crate) fn judge_reading(world: &World, damage: &Damage, reads: Reads) -> Result<Counts> {
    let prediction = Prediction::of(world, damage, reads);
    if !prediction.lost_trees.is_empty() {
        return lost_trees(world, damage, &prediction);
    }
    let set = world.set.fork();
    apply(&set, damage);
    let found = scrub_read_only(&set).context("to read")?;
    ensure!(set.writes().is_empty(), "to read writes nothing");
    let would = |(found, outcome): (Found, Outcome)| match outcome {
        Outcome::Mendable => (found, Outcome::Mended),
        outcome => (found, outcome),
    };
    expect(&prediction, &findings_of(&found).into_iter().map(would).collect()).context("to read")?;
    let report = scrub(&set)?;
    expect(&prediction, &findings_of(&report))?;
    names(world, &report)?;
    let counts = report.counts();
    expect_numbers(&prediction, &counts)?;
    let numbers = |counts: &Counts| (counts.errors(), counts.read_errors);
    ensure!(
        prediction.is_read_in_vain
            || !prediction.maybe.is_empty()
            || numbers(&found.counts()) == numbers(&counts),
        "to read counts what to mend counts: {:?}, {counts:?}",
        found.counts()
    );
    bytes(world, damage, &prediction, &set)?;
    files(world, &prediction, &set).context("afterwards")?;
    let again = scrub_read_only(&set).context("a second scrub")?;
    let Prediction { findings, mut maybe, .. } = prediction;
    let mut findings = findings;
    if reads == Reads::ByElement {
        // The sector that could not be read may be written by now; or it is in use for nothing, and never will be.
        maybe.extend(findings.extract_if(.., |(what, _), _| *what == "Parity").map(|(found, _)| found));
    }
    findings.retain(|_, outcome| *outcome != Outcome::Mended);
    let left = Prediction { findings, maybe, ..prediction };
    expect(&left, &findings_of(&again)).context("a second scrub")?;
    Ok(counts)
}

/// Where a tree block is lost the filesystem may not open, or groups may not be scrubbed. Whatever was good stays so.
fn lost_trees(world: &World, damage: &Damage, prediction: &Prediction) -> Result<Counts> {
    let set = world.set.fork();
    apply(&set, damage);
    let counts = match (scrub_read_only(&set), scrub(&set)) {
        (Ok(read), Ok(mended)) => {
            ensure!(read.counts().uncorrectable_errors > 0, "to read finds what is lost");
            let is_left = findings_of(&mended).into_iter().any(|((what, _), outcome)| {
                matches!(what, "Tree" | "NotScrubbed") && outcome == Outcome::Lost
            });
            // A sector of zeros that cannot be read may be guessed: the block's checksum says whether it is right.
            let is_back = damage.keys().all(|spot| {
                let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
                now.is_readable(spot.offset)
                    && now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR)
            });
            ensure!(is_left || is_back, "the tree block is lost: {:#?}", mended.damages);
            mended.counts()
        }
        (Err(error), Err(_)) => {
            ensure!(!error.to_string().contains('\n'), "{error}");
            Counts::default()
        }
        (read, mended) => anyhow::bail!("to read is {read:?}, to mend is {mended:?}"),
    };
    for (spot, used) in &world.uses {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        // Parity follows data that is in use for nothing.
        let follows = matches!(used, Use::Parity { .. }) && prediction.left.contains(spot);
        let is_same = follows
            || damage.contains_key(spot)
            || now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR);
        ensure!(is_same, "{spot:?} ({used:?}) was good");
    }
    files(world, prediction, &set)?;
    Ok(counts)
}

/// Expects that what was found is what was predicted.
fn expect(prediction: &Prediction, found: &BTreeMap<Found, Outcome>) -> Result<()> {
    for (place, outcome) in &prediction.findings {
        let have = found.get(place);
        let is_hidden = prediction.may_hide && place.0 == "Differing" && have.is_none();
        if is_hidden || prediction.maybe.contains(place) && have.is_some() {
            continue; // of an element of parity some is lost
        }
        ensure!(have == Some(outcome), "{place:?}: expected {outcome:?}, found {have:?}; all: {found:?}");
    }
    for (place, outcome) in found {
        let is_known = prediction.findings.contains_key(place) || prediction.maybe.contains(place);
        let has_failed = prediction.is_read_in_vain && place.0 == "Parity";
        ensure!(is_known || has_failed, "{place:?}: {outcome:?}, and nothing is wrong with it");
        let is_mended = *outcome == Outcome::Mended && !prediction.findings.contains_key(place);
        ensure!(!is_mended || !prediction.maybe.contains(place), "{place:?} is mended from what is lost");
    }
    Ok(())
}

/// Expects what is lost of data to have its file named, and the byte in it.
fn names(world: &World, report: &Report) -> Result<()> {
    let is_lost = |what, outcome| what == What::Data && outcome != Outcome::Mended;
    for damage in report.damages.iter().filter(|damage| is_lost(damage.finding.what, damage.finding.outcome))
    {
        let at = damage.finding.logical.context("data has an address")?.get();
        let mut of = world.sectors.iter().filter_map(|(path, sectors)| {
            let number = sectors.iter().position(|sector| *sector == at)?;
            Some((path.to_str()?.to_owned(), number as u64 * SECTOR))
        });
        let wanted = of.next().context("a file has it")?;
        let named = damage.files.iter().map(|file| (file.path.clone().unwrap_or_default(), file.offset));
        let named: Vec<_> = named.collect();
        ensure!(named == [wanted.clone()], "{at} is of {wanted:?}, and named is {named:?}");
    }
    Ok(())
}

fn expect_numbers(prediction: &Prediction, counts: &Counts) -> Result<()> {
    let become_of = counts.corrected_errors + counts.unverified_errors + counts.uncorrectable_errors;
    ensure!(counts.errors() == become_of, "each error has an outcome: {counts:?}");
    if prediction.is_read_in_vain {
        let few = prediction.unreadable;
        ensure!(counts.read_errors >= few, "at least {few} reads fail: {counts:?}");
    } else if prediction.maybe.is_empty() {
        ensure!(
            counts.read_errors == prediction.unreadable,
            "{} reads fail: {counts:?}",
            prediction.unreadable
        );
        let wrong = counts.csum_errors + counts.verify_errors + counts.super_errors;
        ensure!(wrong == prediction.wrong, "{} places are wrong: {counts:?}", prediction.wrong);
    } else if !prediction.lost.is_empty() {
        ensure!(counts.uncorrectable_errors > 0, "something is lost: {counts:?}");
    }
    Ok(())
}

/// Expects each sector to be what it was: that before the damage where it was mended or never bad, else that after it.
fn bytes(world: &World, damage: &Damage, prediction: &Prediction, set: &Set) -> Result<()> {
    let hurt = world.set.fork();
    apply(&hurt, damage);
    for (member, (disk, whole)) in set.disks.iter().zip(&world.set.disks).enumerate() {
        let mut offsets: BTreeSet<u64> = disk.pages().keys().chain(whole.pages().keys()).copied().collect();
        offsets.extend(damage.keys().filter(|spot| spot.member == member).map(|spot| spot.offset));
        for offset in offsets {
            let spot = Spot { member, offset };
            let is_mended = world.uses.contains_key(&spot) && !prediction.left.contains(&spot);
            let want = if is_mended { whole } else { &hurt.disks[member] };
            let is_parity = matches!(world.uses.get(&spot), Some(Use::Parity { .. }));
            if is_parity && prediction.left.contains(&spot) {
                continue; // it follows data that is in use for nothing, or nobody knows what it has to be
            }
            ensure!(
                disk.peek(offset, SECTOR) == want.peek(offset, SECTOR),
                "{spot:?} ({:?}) has other bytes",
                world.uses.get(&spot)
            );
            ensure!(!is_mended || disk.is_readable(offset), "{spot:?} cannot be read afterwards");
        }
    }
    Ok(())
}

/// Expects all files to be what they were, but for what is lost.
pub(crate) fn files(world: &World, prediction: &Prediction, set: &Set) -> Result<()> {
    if !prediction.lost_trees.is_empty() {
        return nothing_wrong(world, set);
    }
    let fs = Image::options().open_devices(set.devices())?;
    let read = files_of(&fs)?;
    ensure!(read.keys().eq(world.content.files.keys()), "all names are there");
    for (path, content) in &read {
        let sectors = &world.sectors[path];
        let is_lost = sectors.iter().any(|at| prediction.lost.contains(at));
        let is_guessed = prediction.is_read_in_vain || !prediction.unknown.is_empty();
        if path == Path::new(NOCOW) && is_guessed {
            continue;
        }
        match content {
            Some(content) => {
                ensure!(*content == world.content.files[path], "{} has other bytes", path.display())
            }
            None => ensure!(is_lost, "{} cannot be read", path.display()),
        }
        ensure!(content.is_none() || !is_lost, "{} is read, and some of it is lost", path.display());
    }
    Ok(())
}

/// Whatever can be read is what it was.
fn nothing_wrong(world: &World, set: &Set) -> Result<()> {
    let Ok(fs) = Image::options().open_devices(set.devices()) else { return Ok(()) };
    let Ok(read) = files_of(&fs) else { return Ok(()) };
    for (path, content) in read {
        let is_right = content.is_none_or(|content| world.content.files.get(&path) == Some(&content));
        ensure!(is_right || path == Path::new(NOCOW), "{} has other bytes", path.display());
    }
    Ok(())
}

/// The sectors in use for one kind.
pub(crate) fn extents(world: &World, kind: Kind) -> Vec<u64> {
    let of = world.content.extents.iter().filter(|(_, (is, _))| *is == kind);
    of.map(|(at, _)| *at).collect()
}
