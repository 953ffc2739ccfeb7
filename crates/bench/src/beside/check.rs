//! `bench check`: two images, each looked at by `creamery check` and `btrfs check`, with and without data, alternating.
//!
//! Back of the envelope: 30,000 files have about 30 MB of tree blocks, which take 15 ms to sum and a few more to look
//! at on two cores; 400 MB of data are summed in 0.1 s and copied out of the page cache in as long. So what counts is
//! that no block is read twice, and that two threads look at them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Judge, Judges, LoopMount, Program, Run, Scratch, btrfs_check, tree};

use super::measure::{RunTaken, measure, median};
use super::options::{BesideOptions, options};
use super::report::{mebibytes, publish};
use creamery_workspace::build_program;

const SEED: u64 = 20_251_121;
const IMAGE_BYTES: u64 = 2 << 30;
const FILL_LIMIT: Duration = Duration::from_secs(600);

/// Forty snapshots of a changing subvolume, and a file of 512 extents that 200 others share in part.
const SHARED: &str = r#"
set -e
btrfs -q subvolume create tree
cp -a -- "$1/." tree
head -c 16777216 /dev/urandom > tree/base
for i in $(seq 1 512); do
    head -c 4096 /dev/urandom | dd of=tree/base bs=4096 seek=$((i*8)) conv=notrunc status=none
done
sync -f .
for i in $(seq 1 200); do cp --reflink=always tree/base tree/clone-$i; done
for i in $(seq 1 40); do
    btrfs -q subvolume snapshot tree snapshot-$i
    for j in $(seq 1 100); do echo "$i $j" > tree/changed-$(((i*37+j*101)%3000)); done
    head -c 65536 /dev/urandom | dd of=tree/clone-$i bs=4096 seek=$((i*16)) conv=notrunc status=none
    mv tree/clone-$((i+100)) tree/moved-$i
    chmod -R g+w snapshot-$i/dir-$((i%6+1))
done
sync -f .
"#;

/// One pair of bars.
struct CheckRow {
    image: PathBuf,
    name: &'static str,
    data: bool,
    ours: Vec<RunTaken>,
    theirs: Vec<RunTaken>,
}

/// `cargo xtask bench check`.
pub(crate) fn check(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 30_000, bytes: 400_000_000, runs: 5, dry: false }, words)?;
    let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench check compares with btrfs check on images that the kernel filled: {missing} is missing");
    }
    build_program()?;
    let (creamery, scratch) = (Program::find()?, Scratch::new("bench-check")?);
    let mut rows = Vec::new();
    for (name, image) in images(&scratch, &options)? {
        let row = |data| CheckRow { image: image.clone(), name, data, ours: Vec::new(), theirs: Vec::new() };
        rows.extend([row(false), row(true)]);
    }
    for round in 1..=options.runs {
        for row in &mut rows {
            let (ours, theirs) = (by_creamery(&creamery, row)?, by_btrfs(row)?);
            let seconds = [ours, theirs].map(|taken| taken.time.as_secs_f64());
            println!("  run {round}: {}: {:.3} s, {:.3} s", row.name, seconds[0], seconds[1]);
            row.ours.push(ours);
            row.theirs.push(theirs);
        }
    }
    let text = format!(
        "{}\n`cargo xtask bench check --files {} --bytes {} --runs {}`: images that the kernel filled, on one tmpfs, programs alternating, medians of {}.",
        table(&rows),
        options.files,
        options.bytes,
        options.runs,
        options.runs
    );
    publish("bench check", &text, options.dry)?;
    let slower: Vec<&CheckRow> = rows.iter().filter(|row| middle(&row.ours) > middle(&row.theirs)).collect();
    if let Some(row) = slower.first() {
        bail!("slower than btrfs check in {} rows, first in {}", slower.len(), row.name);
    }
    Ok(())
}

/// The images by name, each of which both programs accept.
fn images(scratch: &Scratch, options: &BesideOptions) -> Result<Vec<(&'static str, PathBuf)>> {
    let source = scratch.dir("source")?;
    let made = tree::generate(&source, options.files, options.bytes, SEED)?;
    println!("tree: {} files, {} folders, {} bytes", made.files, made.dirs, made.bytes);
    let plain = "set -e; cp -a -- \"$1/.\" .; sync -f .";
    let mut images = Vec::new();
    for (name, file, script) in
        [("a tree of files", "plain.img", plain), ("40 snapshots and 200 reflinks", "shared.img", SHARED)]
    {
        let image = scratch.file(file);
        fill(scratch, &image, &source, script).with_context(|| name)?;
        btrfs_check(&image)?;
        images.push((name, image));
    }
    std::fs::remove_dir_all(&source)?;
    Ok(images)
}

fn fill(scratch: &Scratch, image: &Path, source: &Path, script: &str) -> Result<()> {
    std::fs::File::create_new(image)?.set_len(IMAGE_BYTES)?;
    Run::new("mkfs.btrfs").arg("-q").arg(image).ok()?;
    let mount = LoopMount::mount(image, &scratch.file("mounted"), "")?;
    Run::new("bash").args(["-c", script, "fill"]).arg(source).within(mount.dir()).limit(FILL_LIMIT).ok()?;
    mount.unmount()
}

fn flags(row: &CheckRow) -> &'static [&'static str] {
    if row.data { &["check", "--check-data-csum"] } else { &["check"] }
}

fn by_creamery(creamery: &Program, row: &CheckRow) -> Result<RunTaken> {
    measure(Command::new(creamery.path()).args(flags(row)).arg(&row.image))
}

fn by_btrfs(row: &CheckRow) -> Result<RunTaken> {
    measure(Command::new("btrfs").args(flags(row)).arg(&row.image).stderr(std::process::Stdio::null()))
}

fn middle(taken: &[RunTaken]) -> Duration {
    median(&taken.iter().map(|taken| taken.time).collect::<Vec<_>>())
}

fn table(rows: &[CheckRow]) -> String {
    let mut text = String::from(
        "| image | data | `creamery check` | `btrfs check` | of Creamery's time | peak memory | of btrfs check |\n|---|---|---|---|---|---|---|\n",
    );
    let peak = |taken: &[RunTaken]| mebibytes(taken.iter().map(|taken| taken.peak_bytes).max().unwrap_or(0));
    for row in rows {
        let (ours, theirs) = (middle(&row.ours).as_secs_f64(), middle(&row.theirs).as_secs_f64());
        text += &format!(
            "| {} | {} | {ours:.3} s | {theirs:.3} s | {:.2} | {} | {} |\n",
            row.name,
            if row.data { "verified" } else { "no" },
            theirs / ours,
            peak(&row.ours),
            peak(&row.theirs)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CheckRow, RunTaken, table};

    #[test]
    fn a_row_has_both_medians_and_both_peaks() {
        let taken = |seconds: &[u64]| -> Vec<RunTaken> {
            let one = |s: &u64| RunTaken { time: Duration::from_secs(*s), peak_bytes: s << 20 };
            seconds.iter().map(one).collect()
        };
        let row = CheckRow {
            image: "disk.img".into(),
            name: "files",
            data: true,
            ours: taken(&[2, 1, 3]),
            theirs: taken(&[9, 6, 5]),
        };
        let text = table(&[row]);
        assert!(
            text.ends_with("| files | verified | 2.000 s | 6.000 s | 3.00 | 3 MiB | 9 MiB |\n"),
            "{text}"
        );
    }
}
