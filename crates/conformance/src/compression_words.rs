//! Options for compression and for overwriting in place, together: each combination is that of Linux.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run};

use crate::support::{MOUNTED, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let tools = ["chattr", "lsattr", "setfattr", "getfattr", "cp"].map(Judge::Tool);
    let with_tools = [&MOUNTED[..], &tools].concat();
    vec![
        Case::new("compression/inherited-as-on-linux", &with_tools, inherited),
        Case::new("compression/of-what-has-no-data", &with_tools, without_data),
        Case::new("nocow/flag-of-what-has-data", &with_tools, flag_of_what_has_data),
    ]
}

/// Whether a program succeeded.
fn is_done(run: Run) -> Result<bool> {
    Ok(run.output()?.code == Some(0))
}

fn chattr(words: &[&str], at: &Path) -> Result<bool> {
    is_done(Run::new("chattr").args(words).arg(at))
}

fn set_property(at: &Path, value: &str) -> Result<bool> {
    is_done(Run::new("setfattr").args(["-h", "-n", "btrfs.compression", "-v", value]).arg(at))
}

/// The flags and the property of a file.
fn told(at: &Path) -> Result<String> {
    let flags = Run::new("lsattr").arg("-d").arg(at).output()?.stdout_text();
    let property = Run::new("getfattr").args(["-h", "--only-values", "-n", "btrfs.compression"]);
    let property = property.arg(at).output()?.stdout_text();
    Ok(format!("{} {property:?}", flags.split(' ').next().unwrap_or_default()))
}

/// Runs `work` on a mount of Linux and on ours, and compares the results.
fn expect_as_linux(bench: &Bench, option: &str, work: impl Fn(&Path) -> Result<Vec<String>>) -> Result<()> {
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        let _ = fs::remove_file(image);
        mkfs_empty(bench.creamery(), &[], "256M", image)?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), option)?;
    let wanted = work(linux.dir())?;
    linux.unmount()?;
    let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), option)?;
    let found = work(ours.dir())?;
    judge_mount(bench, &images[1], ours)?;
    for (wanted, found) in wanted.iter().zip(&found) {
        ensure!(wanted == found, "{option:?}: Linux says\n{wanted}\nand we\n{found}");
    }
    ensure!(wanted.len() == found.len() && !wanted.is_empty(), "{option:?}: {} rows", found.len());
    Ok(())
}

/// Files made in a directory, for each flag on it, each property and each option of the mount; and the options that can be set then.
fn inherited(bench: &Bench) -> Result<()> {
    const WORDS: [&[&str]; 5] = [&[], &["+c"], &["+m"], &["+C"], &["=mC"]];
    const PROPERTIES: [Option<&str>; 3] = [None, Some("lzo"), Some("none")];
    let work = |top: &Path| {
        let mut rows = Vec::new();
        for (number, (word, property)) in
            WORDS.into_iter().flat_map(|word| PROPERTIES.map(|property| (word, property))).enumerate()
        {
            let dir = top.join(number.to_string());
            fs::create_dir(&dir)?;
            let is_said = word.is_empty() || chattr(word, &dir)?;
            let is_set = property.is_none_or(|value| set_property(&dir, value).is_ok_and(|is_set| is_set));
            let mut row = format!("{word:?} {is_said}, {property:?} {is_set}: {}\n", told(&dir)?);
            let below = dir.join("below");
            fs::create_dir(&below)?;
            for path in [dir.join("file"), below.join("file")] {
                fs::write(&path, vec![b'a'; 50_000])?;
                row += &format!("{}\n", told(&path)?);
            }
            let copy = dir.join("copy");
            let is_copied = is_done(Run::new("cp").arg("--preserve=all").arg(dir.join("file")).arg(&copy))?;
            row += &format!("{}, copied {is_copied}: {}\n", told(&below)?, told(&copy)?);
            for step in ["+d", "-c", "+c", "-C", "="] {
                let path = dir.join(step);
                fs::write(&path, "")?;
                row += &format!("{step} {}: {}\n", chattr(&[step], &path)?, told(&path)?);
            }
            rows.push(row);
        }
        Ok(rows)
    };
    for option in
        ["", "nodatacow", "compress-force=zstd", "nodatacow,compress=zstd", "compress=zlib,nodatacow"]
    {
        expect_as_linux(bench, option, work)?;
    }
    Ok(())
}

/// The property of a file that cannot have one: valid values are accepted and ignored.
fn without_data(bench: &Bench) -> Result<()> {
    use rustix::fs::{FileType, Mode, mknodat};
    expect_as_linux(bench, "", |top| {
        let make = |name: &str, kind, device| {
            mknodat(rustix::fs::CWD, top.join(name), kind, Mode::from_raw_mode(0o644), device)
        };
        make("fifo", FileType::Fifo, 0)?;
        make("socket", FileType::Socket, 0)?;
        make("device", FileType::CharacterDevice, rustix::fs::makedev(1, 3))?;
        make("block", FileType::BlockDevice, rustix::fs::makedev(7, 0))?;
        std::os::unix::fs::symlink("nowhere", top.join("link"))?;
        fs::write(top.join("file"), "")?;
        let mut rows = Vec::new();
        for name in ["fifo", "socket", "device", "block", "link", "file"] {
            let at = top.join(name);
            for value in ["zstd", "zlib:9", "none", "no", "", "junk", "zst"] {
                let is_set = set_property(&at, value)?;
                let remove = Run::new("setfattr").args(["-h", "-x", "btrfs.compression"]).arg(&at);
                rows.push(format!("{name} {value:?} {is_set}: {}, {}", told(&at)?, is_done(remove)?));
            }
        }
        Ok(rows)
    })
}

/// The flag for overwriting in place does not change once a file has data; the other flags of the call do.
fn flag_of_what_has_data(bench: &Bench) -> Result<()> {
    const STEPS: [&[&str]; 12] = [
        &["+C"],
        &["-C"],
        &["=C"],
        &["+Cd"],
        &["=Cm"],
        &["=Cc"],
        &["+C", "-c"],
        &["+CA", "-d"],
        &["+c"],
        &["-c", "+C"],
        &["+m"],
        &["="],
    ];
    expect_as_linux(bench, "", |top| {
        let mut rows = Vec::new();
        for before in ["=", "=C", "=c", "=m", "=d"] {
            for kind in ["empty", "delayed", "synced", "dir"] {
                for step in STEPS {
                    let at = top.join(format!("{before} {kind} {step:?}"));
                    if kind == "dir" {
                        fs::create_dir(&at)?
                    } else {
                        fs::write(&at, "")?
                    }
                    let is_said = chattr(&[before], &at)?;
                    if matches!(kind, "delayed" | "synced") {
                        fs::write(&at, vec![b'a'; 20_000])?;
                    }
                    if kind == "synced" {
                        fs::File::open(&at)?.sync_all()?;
                    }
                    let is_changed = chattr(step, &at)?;
                    rows.push(format!("{before} {kind} {step:?}: {is_said} {is_changed} {}", told(&at)?));
                }
            }
        }
        Ok(rows)
    })
}
