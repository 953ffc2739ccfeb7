//! Programs that copy sparse files and ask where the data is: on our mount they make what they make on Linux' own Btrfs, byte for
//! byte and hole for hole. Dirty, with a mapping that has changed pages, and synced.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Run};

use crate::mappings::{LEN, MappingWriter, program};
use crate::seek::{both, map};
use crate::support::{MOUNTED, judge_mount};

const SECTOR: u64 = 4096;
/// The files: each says by its name how its data lies.
const NAMES: [&str; 5] = ["scattered", "hole at the end", "hole at the beginning", "mapped", "set aside"];

pub(crate) fn cases() -> Vec<Case> {
    let tools = [Judge::Tool("cc"), Judge::Tool("tar"), Judge::Tool("rsync"), Judge::Tool("xfs_io")];
    vec![Case::new("seek/programs-copy-as-on-linux", &[&MOUNTED[..], &tools].concat(), copied)]
}

fn fill(dir: &Path) -> Result<()> {
    let make = |name: &str, size: u64, data: &[(u64, u64)]| -> Result<()> {
        let file = File::create_new(dir.join(name))?;
        file.set_len(size)?;
        for (at, len) in data {
            file.write_all_at(&vec![0x5a; usize::try_from(*len)?], *at)?;
        }
        Ok(())
    };
    let scattered: Vec<(u64, u64)> = (0..500).map(|number| (2 * number * SECTOR, SECTOR)).collect();
    make(NAMES[0], 1000 * SECTOR, &scattered)?;
    make(NAMES[1], (8 << 20) + 5, &[(0, 3 * SECTOR), (1 << 20, 10)])?;
    make(NAMES[2], 4 << 20, &[((4 << 20) - 7, 7)])?;
    make(NAMES[3], LEN, &[(LEN / 2, 7)])?;
    make(NAMES[4], 2 << 20, &[])?;
    let file = File::options().write(true).open(dir.join(NAMES[4]))?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20)?;
    Ok(file.write_all_at(&[1; 6000], 100_000)?)
}

/// What a program left: its bytes, and where they are.
type Left = Vec<(String, Vec<u8>, Vec<(u64, u64)>)>;

fn left_in(dir: &Path) -> Result<Left> {
    let look = |name: &&str| {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(((*name).to_owned(), bytes, map(&File::open(&path)?)?))
    };
    NAMES.iter().map(look).collect()
}

/// Runs every program on the files below `dir`, into a new folder `into`.
fn run_programs(dir: &Path, into: &Path) -> Result<(Vec<Left>, Vec<String>)> {
    let folder = |name: &str| -> Result<PathBuf> {
        let folder = into.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    };
    let (cp, tar, rsync) = (folder("cp")?, folder("tar")?, folder("rsync")?);
    for name in NAMES {
        Run::new("cp").args(["--sparse=auto", "--reflink=never"]).arg(dir.join(name)).arg(&cp).ok()?;
        Run::new("rsync").arg("-S").arg(dir.join(name)).arg(&rsync).ok()?;
    }
    let archive = into.join("files.tar");
    let create = ["--sparse", "--hole-detection=seek", "--mtime=@0", "-cf"];
    Run::new("tar").args(create).arg(&archive).arg("-C").arg(dir).args(NAMES).ok()?;
    Run::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&tar).ok()?;
    let mut lists = vec![format!("an archive of {} bytes", archive.metadata()?.len())];
    for name in NAMES {
        let seek = Run::new("xfs_io").args(["-r", "-c", "seek -a -r 0"]).arg(dir.join(name)).ok()?;
        lists.push(format!("{name}: {}", seek.stdout_text()));
    }
    Ok((vec![left_in(&cp)?, left_in(&tar)?, left_in(&rsync)?], lists))
}

fn copied(bench: &Bench) -> Result<()> {
    let program = program(bench)?;
    let (linux, ours) = both(bench)?;
    fill(linux.dir())?;
    fill(ours.dir())?;
    for state in ["dirty", "mapped", "synced"] {
        let start = |dir: &Path| MappingWriter::start(&program, &dir.join(NAMES[3]));
        let writers =
            if state == "mapped" { vec![start(linux.dir())?, start(ours.dir())?] } else { Vec::new() };
        let wanted = run_programs(linux.dir(), &bench.scratch.dir(&format!("{state} on linux"))?)?;
        let found = run_programs(ours.dir(), &bench.scratch.dir(&format!("{state} on ours"))?)?;
        for mut writer in writers {
            writer.end()?;
        }
        ensure!(wanted.1 == found.1, "{state}: Linux lists {:#?}, ours {:#?}", wanted.1, found.1);
        for (program, (wanted, found)) in ["cp", "tar", "rsync"].iter().zip(wanted.0.iter().zip(&found.0)) {
            for (one, other) in wanted.iter().zip(found) {
                let (name, holes) = (&one.0, (&one.2, &other.2));
                ensure!(one.1 == other.1, "{state}: {program} copies other bytes of '{name}'");
                ensure!(holes.0 == holes.1, "{state}: {program} leaves other holes in '{name}': {holes:?}");
            }
        }
        Run::new("sync").arg("-f").arg(linux.dir()).ok()?;
        bench.creamery().run(["sync"]).arg(ours.dir()).ok()?;
    }
    linux.unmount()?;
    judge_mount(bench, &bench.scratch.file("disk.img"), ours)
}
