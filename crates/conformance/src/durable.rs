//! What is durable when a system call returns: the server is killed right after it, and Linux finds it or not.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, Signal, btrfs_check, daemon, signal};
use rustix::fs::{IFlags, OFlags};
use rustix::io::ReadWriteFlags;

use crate::support::{MOUNTED, mkfs_empty};

const PROGRAMS: [(&str, &str); 2] =
    [("msync", include_str!("programs/msync.c")), ("aio", include_str!("programs/aio.c"))];
const SECTOR: usize = 4096;
const NEW: &str = "what is written now";
/// What the file has before.
const OLD: &str = "what was there\n";

pub(crate) fn cases() -> Vec<Case> {
    let with_cc = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    vec![
        Case::new("durable/when-the-call-returns", &with_cc, when_the_call_returns),
        Case::new("durable/appenders", &MOUNTED, appenders),
    ]
}

/// A way to write to a file.
enum WriteMethod {
    /// write(2), with these flags of open(2) beside those to write.
    Write(OFlags),
    /// pwritev2(2), with flags of open(2) and its own.
    Vectored(OFlags, ReadWriteFlags),
    /// A direct write by libaio of a descriptor that is not for reading, O_DSYNC.
    Asynchronous,
    /// A direct write of a descriptor that is not for reading, with these flags, too.
    OnlyWrites(OFlags),
    /// A mapping, and msync(2).
    Mapping,
    /// A mapping, and fsync(2) by somebody else.
    Fsync,
}

struct DurableRow {
    name: &'static str,
    mount: &'static str,
    marked: IFlags,
    way: WriteMethod,
    is_durable: bool,
}

const fn row(name: &'static str, way: WriteMethod) -> DurableRow {
    DurableRow { name, mount: "commit=3600", marked: IFlags::empty(), way, is_durable: true }
}

fn rows() -> Vec<DurableRow> {
    let (append, sync, dsync) = (OFlags::APPEND, OFlags::SYNC, OFlags::DSYNC);
    let vectored = |flags, how| WriteMethod::Vectored(flags, how);
    let marked = |name, way| DurableRow { marked: IFlags::APPEND, ..row(name, way) };
    vec![
        DurableRow { is_durable: false, ..row("nothing", WriteMethod::Write(OFlags::empty())) },
        row("O_SYNC", WriteMethod::Write(sync)),
        row("O_DSYNC", WriteMethod::Write(dsync)),
        row("O_SYNC, O_APPEND", WriteMethod::Write(sync | append)),
        row("O_DIRECT, O_DSYNC", WriteMethod::Write(OFlags::DIRECT | dsync)),
        row("O_DIRECT, O_DSYNC, not for reading", WriteMethod::OnlyWrites(dsync)),
        row("O_DIRECT, O_DSYNC, by libaio", WriteMethod::Asynchronous),
        DurableRow {
            marked: IFlags::SYNC,
            ..row("O_DIRECT, marked to be synced", WriteMethod::OnlyWrites(OFlags::empty()))
        },
        row("RWF_DSYNC", vectored(OFlags::empty(), ReadWriteFlags::DSYNC)),
        row("RWF_SYNC, O_APPEND", vectored(append, ReadWriteFlags::SYNC)),
        DurableRow { is_durable: false, ..marked("append-only", WriteMethod::Write(append)) },
        marked("append-only, O_SYNC", WriteMethod::Write(append | sync)),
        marked("append-only, O_DSYNC", WriteMethod::Write(append | dsync)),
        marked("append-only, RWF_DSYNC", vectored(append, ReadWriteFlags::DSYNC)),
        row("msync", WriteMethod::Mapping),
        row("fsync of a mapping", WriteMethod::Fsync),
        DurableRow { mount: "commit=3600,sync", ..row("mounted sync", WriteMethod::Write(OFlags::empty())) },
        DurableRow {
            marked: IFlags::SYNC,
            ..row("marked to be synced", WriteMethod::Write(OFlags::empty()))
        },
        DurableRow {
            marked: IFlags::SYNC | IFlags::APPEND,
            ..row("marked so and append-only", WriteMethod::Write(append))
        },
    ]
}

impl WriteMethod {
    fn write(&self, programs: &Path, path: &Path) -> Result<()> {
        let open = |flags: OFlags| {
            File::options().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)
        };
        match self {
            Self::Write(flags) if flags.contains(OFlags::DIRECT) => {
                write_sector(&open(*flags)?, &[OLD.as_bytes(), NEW.as_bytes()].concat())
            }
            Self::Write(flags) => write_behind(&open(*flags)?, flags.contains(OFlags::APPEND)),
            Self::Vectored(flags, how) => {
                let file = open(*flags)?;
                let len =
                    rustix::io::pwritev2(&file, &[IoSlice::new(NEW.as_bytes())], OLD.len() as u64, *how)?;
                ensure!(len == NEW.len(), "{len} bytes written");
                Ok(())
            }
            Self::OnlyWrites(flags) => {
                let flags = (*flags | OFlags::DIRECT).bits().cast_signed();
                let file = File::options().write(true).custom_flags(flags).open(path)?;
                write_sector(&file, &[OLD.as_bytes(), NEW.as_bytes()].concat())
            }
            Self::Asynchronous | Self::Mapping => {
                let program = if matches!(self, Self::Mapping) { "msync" } else { "aio" };
                Run::new(programs.join(program)).arg(path).arg(format!("{OLD}{NEW}")).ok().map(drop)
            }
            Self::Fsync => {
                let file = open(OFlags::empty())?;
                Self::Mapping.write(programs, path)?;
                Ok(file.sync_all()?)
            }
        }
    }
}

fn write_behind(mut file: &File, appends: bool) -> Result<()> {
    match appends {
        true => file.write_all(NEW.as_bytes())?,
        false => file.write_all_at(NEW.as_bytes(), OLD.len() as u64)?,
    }
    Ok(())
}

/// Writes a sector that begins with `start` directly, from an address that the kernel takes for that.
fn write_sector(file: &File, start: &[u8]) -> Result<()> {
    let mut room = vec![0; 2 * SECTOR];
    let skip = room.as_ptr().align_offset(SECTOR);
    let sector = &mut room[skip..][..SECTOR];
    sector[..start.len()].copy_from_slice(start);
    Ok(file.write_all_at(sector, 0)?)
}

fn when_the_call_returns(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let programs = bench.scratch.dir("programs")?;
    for (name, text) in PROGRAMS {
        let file = format!("{name}.c");
        std::fs::write(programs.join(&file), text)?;
        Run::new("cc").args(["-O1", "-o", name, &file]).within(&programs).ok()?;
    }
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mut wrong = Vec::new();
    for (number, row) in rows().into_iter().enumerate() {
        let name = format!("file-{number}");
        let said = written_and_killed(bench, &image, &programs, &name, &row).context(row.name)?;
        let want = if row.is_durable { format!("{OLD}{NEW}") } else { OLD.to_owned() };
        if said != want {
            wrong.push(format!("{}: Linux reads {said:?}", row.name));
        }
    }
    btrfs_check(&image)?;
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Writes, kills the server, and returns what the file has once Linux has replayed what logs there are.
fn written_and_killed(
    bench: &Bench,
    image: &Path,
    programs: &Path,
    name: &str,
    row: &DurableRow,
) -> Result<String> {
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("fuse"), row.mount)?;
    let path = mount.dir().join(name);
    std::fs::write(&path, OLD)?;
    if matches!(row.way, WriteMethod::Mapping | WriteMethod::Fsync) {
        // What is behind the end of a file is not of the file.
        File::options().write(true).open(&path)?.set_len(SECTOR as u64)?;
    }
    if !row.marked.is_empty() {
        rustix::fs::ioctl_setflags(File::open(&path)?, row.marked)?;
    }
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    row.way.write(programs, &path)?;
    signal(Signal::KILL, daemon(image)?)?;
    drop(mount);
    let kernel = LoopMount::mount(image, &bench.scratch.file("kernel"), "noatime")?;
    let said = std::fs::read_to_string(kernel.dir().join(name))?;
    kernel.unmount()?;
    Ok(said.trim_end_matches('\0').to_owned())
}

/// Several append to one file at once, some through the kernel's pages and some to one that is marked append-only: every
/// line is there once and whole, those of each in their order.
fn appenders(bench: &Bench) -> Result<()> {
    const APPENDERS: usize = 6;
    const LINES: usize = 150;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let files = ["plain", "marked"].map(|name| mount.dir().join(name));
    for (path, flags) in files.iter().zip([IFlags::empty(), IFlags::APPEND]) {
        rustix::fs::ioctl_setflags(File::create_new(path)?, flags)?;
    }
    let line = |appender, number| format!("{appender} {number} {}\n", "x".repeat(number * 37 % 6000));
    let append = |path: PathBuf, appender: usize| -> Result<()> {
        let flags = if appender.is_multiple_of(3) { OFlags::DSYNC } else { OFlags::empty() };
        let options = File::options().append(true).custom_flags(flags.bits().cast_signed()).clone();
        let mut file = options.open(&path)?;
        for number in 0..LINES {
            let text = line(appender, number);
            ensure!(file.write(text.as_bytes())? == text.len(), "a part of a line");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let work = |appender: usize| {
            let path = files[appender % 2].clone();
            scope.spawn(move || append(path, appender / 2))
        };
        let threads: Vec<_> = (0..2 * APPENDERS).map(work).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let whole = |path: &Path| -> Result<()> {
        let text = std::fs::read_to_string(path)?;
        let mut next = [0; APPENDERS];
        for found in text.lines() {
            let appender: usize =
                found.split(' ').next().and_then(|word| word.parse().ok()).context("a line")?;
            let want = line(appender, next[appender]);
            ensure!(
                want.trim_end_matches('\n') == found,
                "{}: {found:?} instead of {want:?}",
                path.display()
            );
            next[appender] += 1;
        }
        ensure!(next == [LINES; APPENDERS], "{}: lines {next:?}", path.display());
        Ok(())
    };
    files.iter().try_for_each(|path| whole(path))?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    ["plain", "marked"].iter().try_for_each(|name| whole(&kernel.dir().join(name)))?;
    kernel.unmount()
}
