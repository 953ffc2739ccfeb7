//! A set with missing members: it reads like the kernel's view, or is rejected with the name of a missing member.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use creamery::rescue::Rescue;
use creamery::{ErrorKind, Image};
use creamery_testkit::harness::Bench;

use crate::kernel_set::KernelSet;
use crate::oracle::Oracle;
use crate::seen::{Seen, expect_same};

/// The kernel's set, and the copies that the library reads.
type Copied<'a> = (&'a KernelSet, &'a [PathBuf]);

/// Removes each member, and each pair.
pub(crate) fn each(bench: &Bench, set: Copied<'_>, oracle: &Oracle, truth: &Seen) -> Result<()> {
    let members = set.1.len();
    let one = (0..members).map(|first| vec![first]);
    let two = (0..members).flat_map(|first| (first + 1..members).map(move |second| vec![first, second]));
    for away in one.chain(two).filter(|away| away.len() < members) {
        without(bench, set, oracle, truth, &away).with_context(|| format!("without {away:?}"))?;
    }
    Ok(())
}

fn without(
    bench: &Bench,
    (set, files): Copied<'_>,
    oracle: &Oracle,
    truth: &Seen,
    away: &[usize],
) -> Result<()> {
    let left: Vec<usize> = set.all().into_iter().filter(|member| !away.contains(member)).collect();
    // In a separate folder: members beside each other are found.
    let dir = bench.scratch.dir("left")?;
    for &member in &left {
        std::fs::hard_link(&files[member], dir.join(format!("m{}.img", member + 1)))?;
    }
    let first = dir.join(format!("m{}.img", left[0] + 1));
    let told = Image::open(&first).map(drop).err().context("a set is opened with members missing")?;
    ensure!(told.kind() == ErrorKind::DeviceMissing && told.advice().is_some(), "{told}");
    let by_kernel = set.kernel_view(&left, "ro,degraded");
    let ours = Image::options().degraded().open(&first);
    if oracle.bears(away) {
        let fs = ours.context("the profile bears it")?;
        let seen = Seen::by_us(&fs)?;
        expect_same("the kernel's view of what is left", &by_kernel?, &seen)?;
        expect_same("the whole set", truth, &seen)?;
        let counted = fs.statistics().volume;
        ensure!(
            (counted.parity_read_bytes > 0) == (oracle.parity() > 0),
            "{} bytes of parity",
            counted.parity_read_bytes
        );
        ensure!(counted.mirror_fallbacks == 0, "what is missing is not asked first");
        fs.close()?;
    } else {
        let told = ours.map(drop).err().context("the profile does not bear it")?;
        let text = told.to_string();
        ensure!(
            told.kind() == ErrorKind::DeviceMissing && text.contains("too many for these chunks"),
            "{text}"
        );
        let numbers: Vec<String> = away.iter().map(|member| (member + 1).to_string()).collect();
        // The chunks of the superblock name only their own devices; the others are known once these can be read.
        let at_least = if text.contains("(SYSTEM") { 1 } else { numbers.len() };
        let named = numbers.iter().filter(|number| text.contains(*number));
        ensure!(named.count() >= at_least, "{text} names {numbers:?}");
        // The kernel mounts it for reading, as long as the necessary trees are there.
        if let Ok(by_kernel) = by_kernel {
            let fs = Image::options().rescue(Rescue::ALL).open(&first).context("the kernel mounts it")?;
            let seen = Seen::by_us(&fs)?;
            // If more is lost than RAID5 tolerates, the kernel returns wrong bytes for some files: those are not a reference.
            truth.shared_with(&by_kernel).expect_within(&seen).context("--rescue all")?;
            seen.readable().expect_within(truth).context("--rescue all gives nothing that never was")?;
        }
    }
    Ok(std::fs::remove_dir_all(dir)?)
}
