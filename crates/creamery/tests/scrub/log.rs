//! A set of RAID5 that Linux has mounted, with a log of a sync after the last commit: copies of its members are scrubbed. The kernel does
//! not see these copies.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{FindingKind, NoProgress, Outcome, Report, Scrub};
use creamery::extents::FiemapRequest;
use creamery::{Image, NamedSet};
use creamery_format::{BlockGroupFlags, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopDevice, Random, Run, seed_of, seek_data, seek_hole};
use creamery_volume::{DeviceSet, Mode, Volume};

use crate::disk::SECTOR;
use crate::geometry::{ELEMENT, Group, MemberSpot, Profile};

const NEEDS: [Judge; 4] = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];
const MEMBERS: usize = 3;
const LEN: u64 = 300 << 20;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("scrub-matrix/a-log-waits", &NEEDS, waits)]
}

fn waits(bench: &Bench) -> Result<()> {
    let home = bench.scratch.dir("members")?;
    let members: Vec<PathBuf> = (1..=MEMBERS).map(|number| home.join(format!("m{number}.img"))).collect();
    for member in &members {
        File::create_new(member)?.set_len(LEN)?;
    }
    let loops = members.iter().map(|member| LoopDevice::attach(member, false)).collect::<Result<Vec<_>>>()?;
    let nodes: Vec<&Path> = loops.iter().map(LoopDevice::path).collect();
    Run::new("mkfs.btrfs").args(["-q", "-f", "-m", "raid5", "-d", "raid5"]).args(&nodes).ok()?;
    let dir = bench.scratch.dir("kernel")?;
    let named: Vec<String> = nodes.iter().map(|node| format!("device={}", node.display())).collect();
    // No commit is due meanwhile.
    let options = format!("noatime,commit=3600,{}", named.join(","));
    Run::new("mount").args(["-t", "btrfs", "-o", &options]).arg(nodes[0]).arg(&dir).ok()?;
    let copied = synced_and_copied(bench, &dir, &members);
    Run::new("umount").arg(&dir).again_while_busy().ok()?;
    let (log, content) = copied?;
    loops.into_iter().try_for_each(LoopDevice::detach)?;
    scrubbed(&log, &content)?;
    let after = copy(&members, &bench.scratch.dir("after")?)?;
    ensure!(!has_log(&after[0])?, "whoever unmounts commits");
    let report = mend(&after)?;
    ensure!(report.damages.is_empty() && report.counts().errors() == 0, "{:#?}", report.damages);
    Ok(())
}

/// Commits a file and syncs another one; returns copies of all members in that state, and the first file's bytes.
fn synced_and_copied(bench: &Bench, dir: &Path, members: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<u8>)> {
    let mut random = Random::new(seed_of("a log waits"));
    let content = random.bytes(700_000);
    std::fs::write(dir.join("committed"), &content)?;
    Run::new("btrfs").args(["filesystem", "sync"]).arg(dir).ok()?;
    // A transaction that makes a chunk commits instead of logging: then the next file is in the next transaction.
    for number in 0..8 {
        let mut file = File::create_new(dir.join(format!("synced{number}")))?;
        file.write_all(&random.bytes(90_000))?;
        file.sync_all()?;
        if has_log(&members[0])? {
            break;
        }
    }
    let copies = copy(members, &bench.scratch.dir("log")?)?;
    ensure!(has_log(&copies[0])?, "what was synced is in a log");
    Ok((copies, content))
}

fn copy(members: &[PathBuf], dir: &Path) -> Result<Vec<PathBuf>> {
    Run::new("cp").args(["--sparse=always", "--"]).args(members).arg(dir).ok()?;
    Ok(members.iter().map(|member| dir.join(member.file_name().unwrap_or_default())).collect())
}

fn has_log(member: &Path) -> Result<bool> {
    let mut bytes = vec![0; SUPERBLOCK_LEN];
    File::open(member)?.read_exact_at(&mut bytes, SUPERBLOCK_OFFSETS[0])?;
    Ok(Superblock::from_bytes(&bytes, SUPERBLOCK_OFFSETS[0])?.log_root().is_some())
}

fn mend(members: &[PathBuf]) -> Result<Report> {
    Ok(Scrub::default().run(NamedSet::new(&members[0]).devices(&members[1..]), &NoProgress)?)
}

/// The chunk of data, as a group, and the address of the file's first sector.
fn group_of(members: &[PathBuf], path: &str) -> Result<(Group, u64)> {
    let fs = Image::open(&members[0])?;
    let extent = fs.open(path)?.fiemap(&FiemapRequest::default()).next().context("it has extents")??;
    fs.close()?;
    let open = |member: &PathBuf| -> Result<std::sync::Arc<dyn creamery::device::BlockDevice>> {
        let access = creamery::device::Access::ReadOnly;
        Ok(std::sync::Arc::new(creamery::device::FileDevice::open(member, access)?))
    };
    let volume = Volume::open(members.iter().map(open).collect::<Result<DeviceSet>>()?, Mode::ReadOnly)?;
    let engine = creamery_txn::Engine::open(
        volume,
        creamery_txn::Options { read_only: true, ..creamery_txn::Options::default() },
    )?;
    let chunk = engine.volume().chunk_at(extent.physical.into()).context("a chunk has it")?;
    let stripe = |stripe: &creamery_volume::Stripe| MemberSpot {
        member: usize::try_from(stripe.dev.get() - 1).expect("few members"),
        offset: stripe.offset,
    };
    let group = Group {
        start: chunk.start.get(),
        len: chunk.len,
        kind: BlockGroupFlags::DATA,
        profile: Profile::named("raid5"),
        stripes: chunk.stripes.iter().map(stripe).collect(),
    };
    Ok((group, extent.physical))
}

fn scrubbed(members: &[PathBuf], content: &[u8]) -> Result<()> {
    let before = bytes(members)?;
    let report = mend(members)?;
    ensure!(report.damages.is_empty() && report.counts().errors() == 0, "a whole set: {:#?}", report.damages);
    ensure!(bytes(members)? == before, "nothing is changed");
    let (group, at) = group_of(members, "/committed")?;
    // Behind the beginning, in a row that belongs to the file completely.
    let at = at.next_multiple_of(ELEMENT * group.columns()) + 5 * SECTOR;
    let row = group.row_of(at);
    let p = group.element(row, MEMBERS - 1);
    let p = MemberSpot { offset: p.offset + (at - group.start) % ELEMENT, ..p };
    rot(members, p)?;
    let rotten = bytes(members)?;
    let report = mend(members)?;
    let [damage] = &report.damages[..] else { anyhow::bail!("{:#?}", report.damages) };
    let told = (damage.finding.what, damage.finding.outcome);
    ensure!(told == (FindingKind::Parity, Outcome::Undecided), "{damage:?}");
    let counts = report.counts();
    ensure!(
        (counts.verify_errors, counts.unverified_errors, counts.corrected_errors) == (1, 1, 0),
        "{counts:?}"
    );
    ensure!(bytes(members)? == rotten, "nothing is written");
    rot(members, p)?;
    ensure!(bytes(members)? == before, "P is what it was");
    // Data with a checksum is restored nevertheless.
    let own = group.copies(at)[0];
    rot(members, own)?;
    let report = mend(members)?;
    let [damage] = &report.damages[..] else { anyhow::bail!("{:#?}", report.damages) };
    let told = (damage.finding.what, damage.finding.outcome);
    ensure!(told == (FindingKind::Data, Outcome::Mended), "{damage:?}");
    ensure!(bytes(members)? == before, "data is what it was");
    let fs = Image::open(&members[0])?;
    ensure!(fs.read("/committed")? == content, "the file is what it was");
    fs.close().map_err(Into::into)
}

/// Inverts a sector; a second call restores it.
fn rot(members: &[PathBuf], spot: MemberSpot) -> Result<()> {
    let file = File::options().read(true).write(true).open(&members[spot.member])?;
    let mut bytes = vec![0; usize::try_from(SECTOR)?];
    file.read_exact_at(&mut bytes, spot.offset)?;
    bytes.iter_mut().step_by(7).for_each(|byte| *byte = !*byte);
    Ok(file.write_all_at(&bytes, spot.offset)?)
}

/// A checksum of each member's written bytes, to detect changes.
fn bytes(members: &[PathBuf]) -> Result<Vec<u64>> {
    use std::hash::{Hash, Hasher};
    let sum = |member: &PathBuf| -> Result<u64> {
        let (file, mut hasher, mut at) = (File::open(member)?, std::hash::DefaultHasher::new(), 0);
        while let Some(from) = seek_data(&file, at)? {
            at = seek_hole(&file, from)?.unwrap_or(LEN);
            let mut bytes = vec![0; usize::try_from(at - from)?];
            file.read_exact_at(&mut bytes, from)?;
            (from, bytes).hash(&mut hasher);
        }
        Ok(hasher.finish())
    };
    members.iter().map(sum).collect()
}
