//! `bench compress`: a tree packed into compressed images beside mkfs.btrfs, and a file of text written, read whole and read piece by piece
//! through the library and the mount beside the kernel's Btrfs on a loop device. All are on one tmpfs and run in turn; figures are medians.
//!
//! Back of the envelope: zstd at level 3 compresses 250 to 350 MiB of prose a second and processor, and decompresses 800. mkfs.btrfs
//! compresses on one thread. So on two cores compression allows twice its speed, and more only as far as the other work costs less.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, Run, Scratch, btrfs_check, tree};

use super::library::{Said, empty_filesystem, kernel_filesystem};
use super::measure::{measure, median};
use super::options::{BesideOptions, options};
use super::programs::Programs;
use super::report::publish;
use super::server::Server;

const SEED: u64 = 20_251_121;
const IMAGE_BYTES: u64 = 4 << 30;
const LIMIT: Duration = Duration::from_secs(300);
const METHODS: [&str; 3] = ["zlib:3", "lzo", "zstd:3"];

/// Work on one file of text.
struct CompressStep {
    name: &'static str,
    workload: &'static str,
    piece: u64,
    order: &'static str,
    /// Maximum number of pieces; 0: all.
    pieces: u64,
}

const STEPS: [CompressStep; 4] = [
    CompressStep { name: "written", workload: "write", piece: 1 << 20, order: "sequential", pieces: 0 },
    CompressStep { name: "read whole", workload: "read", piece: 1 << 20, order: "sequential", pieces: 0 },
    CompressStep { name: "4 KiB at random", workload: "read", piece: 4096, order: "random", pieces: 4000 },
    CompressStep { name: "4 KiB in order", workload: "read", piece: 4096, order: "sequential", pieces: 0 },
];

/// The side that keeps the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CompressSide {
    Library,
    Kernel,
    Mount,
}

const SIDES: [CompressSide; 3] = [CompressSide::Library, CompressSide::Kernel, CompressSide::Mount];

/// The results of one row, by side.
type CompressRow = [Vec<f64>; SIDES.len()];

struct CompressStage {
    scratch: Scratch,
    programs: Programs,
    bytes: u64,
}

/// `cargo xtask bench compress`. `--files` and `--bytes` give the size of the tree; the file has that many bytes.
pub(crate) fn compress(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 30_000, bytes: 400_000_000, runs: 3, dry: false }, words)?;
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench compress stands beside the kernel: {missing} is missing");
    }
    let bytes = options.bytes.next_multiple_of(1 << 20);
    let stage =
        CompressStage { scratch: Scratch::new("bench-compress")?, programs: Programs::build(false)?, bytes };
    let source = stage.scratch.dir("tree")?;
    tree::generate_text(&source, options.files, options.bytes, SEED)?;
    let mut text = String::from(
        "| `mkfs --rootdir --compress` | Creamery | mkfs.btrfs | times as fast | image | its image |\n|---|---|---|---|---|---|\n",
    );
    for method in METHODS {
        text += &stage.images(&source, method, options.runs)?;
    }
    std::fs::remove_dir_all(&source)?;
    text += "\n| work | | library | kernel | library over kernel | mount | mount over kernel |\n|---|---|---|---|---|---|---|\n";
    for method in METHODS {
        text += &stage.files(method, options.runs)?;
    }
    let said = format!(
        "{text}\n`cargo xtask bench compress --files {} --bytes {} --runs {}`: text, a tree of {} files and a file, {} bytes each, all on one tmpfs, sides alternating, medians of {}. The final sync is in the time of what is written; what is read is not cached before. `btrfs check` accepted each image of ours.",
        options.files, options.bytes, options.runs, options.files, options.bytes, options.runs
    );
    publish("bench compress", &said, options.dry)
}

impl CompressStage {
    /// Packs the tree with both programs in turn.
    fn images(&self, source: &Path, method: &str, runs: usize) -> Result<String> {
        let (mut times, mut stored) = ([Vec::new(), Vec::new()], [0, 0]);
        for round in 0..runs {
            for side in [round % 2, 1 - round % 2] {
                let image = self.fresh("packed.img")?;
                let mut command = if side == 0 {
                    let mut command = Command::new(self.programs.creamery.path());
                    command.args(["mkfs", "-q"]);
                    command
                } else {
                    std::fs::File::create_new(&image)?.set_len(IMAGE_BYTES)?;
                    let mut command = Command::new("mkfs.btrfs");
                    command.arg("-q");
                    command
                };
                command.args(["--compress", method, "--rootdir"]).arg(source).arg(&image);
                times[side].push(measure(&mut command)?.time.as_secs_f64());
                stored[side] = std::fs::metadata(&image)?.blocks() * 512;
                if side == 0 {
                    btrfs_check(&image)?;
                }
            }
            println!("  run {}: image, {method}", round + 1);
        }
        let [ours, theirs] = times.map(|times| median(&times));
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        Ok(format!(
            "| {method} | {ours:.2} s | {theirs:.2} s | {:.2} | {:.0} MiB | {:.0} MiB |\n",
            theirs / ours,
            mib(stored[0]),
            mib(stored[1])
        ))
    }

    /// Writes and reads the file on all sides in turn.
    fn files(&self, method: &str, runs: usize) -> Result<String> {
        let mut rows: Vec<CompressRow> = STEPS.iter().map(|_| CompressRow::default()).collect();
        for round in 0..runs {
            let mut sides: Vec<(usize, CompressSide)> = SIDES.into_iter().enumerate().collect();
            sides.rotate_left(round % SIDES.len());
            for (index, side) in sides {
                for (row, rate) in rows.iter_mut().zip(self.play(side, method)?) {
                    row[index].push(rate);
                }
            }
            println!("  run {}: file, {method}", round + 1);
        }
        let mut text = String::new();
        for (step, row) in STEPS.iter().zip(rows) {
            let [library, kernel, mount] = row.map(|taken| median(&taken));
            let unit = if step.pieces > 0 { "a second" } else { "MiB/s" };
            text += &format!(
                "| {method}: {} | {unit} | {library:.0} | {kernel:.0} | {:.2} | {mount:.0} | {:.2} |\n",
                step.name,
                library / kernel,
                mount / kernel
            );
        }
        Ok(text)
    }

    /// The rate of each step, a second.
    fn play(&self, side: CompressSide, method: &str) -> Result<Vec<f64>> {
        let image = self.scratch.file("file.img");
        match side {
            CompressSide::Kernel => kernel_filesystem(&image, IMAGE_BYTES)?,
            CompressSide::Library | CompressSide::Mount => {
                empty_filesystem(&self.programs.creamery, &image, IMAGE_BYTES)?
            }
        }
        let rate = |step: &CompressStep| {
            let said = self.step(side, &image, method, step)?;
            let time = said.durable_time()?.as_secs_f64();
            let each = if step.pieces > 0 { 1.0 } else { step.piece as f64 / f64::from(1 << 20) };
            Ok(each * said.number("operations")? / time)
        };
        let rates = STEPS.iter().map(rate).collect::<Result<_>>()?;
        if side != CompressSide::Kernel {
            btrfs_check(&image)?;
        }
        Ok(rates)
    }

    /// Runs one step; the filesystem is opened or mounted anew.
    fn step(&self, side: CompressSide, image: &Path, method: &str, step: &CompressStep) -> Result<Said> {
        let dir = self.scratch.dir("mount")?;
        let mut words = vec![
            ("--bytes", self.bytes.to_string()),
            ("--piece", step.piece.to_string()),
            ("--order", step.order.to_owned()),
            ("--pieces", step.pieces.to_string()),
            ("--text", "on".to_owned()),
        ];
        let on_dir = ("--dir", dir.display().to_string());
        let option = format!("compress={method}");
        match side {
            CompressSide::Library => {
                words.extend([("--image", image.display().to_string()), ("--compress", method.to_owned())]);
                self.programs.bench(step.workload, &words)
            }
            CompressSide::Kernel => {
                let device = LoopDevice::attach(image, false)?;
                let options = format!("ssd,{option}");
                Run::new("mount").args(["-t", "btrfs", "-o", &options]).arg(device.path()).arg(&dir).ok()?;
                words.push(on_dir);
                let said = self.programs.bench(step.workload, &words);
                Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
                device.detach()?;
                said
            }
            CompressSide::Mount => {
                let mut command = Command::new(self.programs.creamery.path());
                command.args(["mount", "--foreground", "-o", &option]).arg(image).arg(&dir);
                let server = Server::start(&mut command, &dir)?;
                let sync_by = self.programs.creamery.path().display().to_string();
                words.extend([on_dir, ("--server", server.id().to_string()), ("--sync-by", sync_by)]);
                let said = self.programs.bench(step.workload, &words);
                server.end()?;
                said
            }
        }
    }

    /// A path without a file.
    fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.scratch.file(name);
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
        Ok(path)
    }
}
