//! What a shared mapping changed is in the kernel's page cache and nowhere else until it is written back. Everybody sees it all
//! the same, and tools that leave out holes, too.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, until};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::support::{JUDGED, MOUNTED, judge, mkfs_empty};

const DIRTY_C: &str = include_str!("programs/dirty.c");
pub(crate) const LEN: u64 = 16 << 20;
/// Where the mapping is written: in the first page, over a page's end, and in the last.
const CHANGED: [u64; 3] = [5, (7 << 20) - 3, LEN - 6];

pub(crate) fn cases() -> Vec<Case> {
    let judges = [&MOUNTED[..], &[Judge::Tool("cc"), Judge::Tool("tar")]].concat();
    let with_kernel = [&JUDGED[..], &[Judge::Tool("cc")]].concat();
    vec![
        Case::new("mappings/dirty-pages-over-holes-are-copied", &judges, dirty_pages_are_copied),
        Case::new("mappings/a-time-that-is-set-stays", &with_kernel, set_times_stay),
        Case::new(
            "mappings/a-store-before-a-subvolume-is-read-only-stays",
            &with_kernel,
            store_before_read_only,
        ),
    ]
}

/// A folder with the program of [`MappingWriter`].
pub(crate) fn program(bench: &Bench) -> Result<PathBuf> {
    let program = bench.scratch.dir("program")?;
    std::fs::write(program.join("dirty.c"), DIRTY_C)?;
    Run::new("cc").args(["-O1", "-o", "dirty", "dirty.c"]).within(&program).ok()?;
    Ok(program)
}

fn dirty_pages_are_copied(bench: &Bench) -> Result<()> {
    let (program, outside) = (program(bench)?, bench.scratch.dir("outside")?);
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    // Nothing but a hole, and holes around data.
    for (name, data) in [("empty", None), ("partly", Some(LEN / 2))] {
        let path = mount.dir().join(name);
        let file = File::create_new(&path)?;
        file.set_len(LEN)?;
        if let Some(at) = data {
            file.write_all_at(b"written", at)?;
        }
        drop(file);
        let holes = map(&path)?;
        ensure!(
            holes == data.map(|at| (at, at + 4096)).into_iter().collect::<Vec<_>>(),
            "{name} has {holes:?}"
        );
        let mut wanted = vec![0; usize::try_from(LEN)?];
        let changes = CHANGED.map(|at| (at, "mapped")).into_iter().chain(data.map(|at| (at, "written")));
        for (at, text) in changes {
            wanted[usize::try_from(at)?..][..text.len()].copy_from_slice(text.as_bytes());
        }
        let mut writer = MappingWriter::start(&program, &path)?;
        let copies = copies(&path, &outside);
        writer.end()?;
        for (tool, copy) in copies? {
            ensure!(copy == wanted, "{name}: what {tool} made lacks what a mapping had changed");
        }
        ensure!(std::fs::read(&path)? == wanted, "{name} reads differently afterwards");
        // With its writers gone it is sparse again, as soon as the mount has heard of that.
        until(
            "its holes",
            || Ok(map(&path)?.iter().map(|(start, end)| end - start).sum::<u64>() <= 5 * 4096),
        )
        .with_context(|| format!("the holes of {name}"))?;
    }
    // Without a change the kernel's memory of the blocks is right before, meanwhile and afterwards.
    let path = mount.dir().join("untouched");
    File::create_new(&path)?.set_len(LEN)?;
    let blocks = || Ok::<_, anyhow::Error>(path.metadata()?.blocks());
    until("no blocks", || Ok(blocks()? == 0)).context("a file that is all hole has blocks")?;
    let open = File::options().read(true).write(true).open(&path)?;
    ensure!(blocks()? > 0, "a file that may be mapped has no blocks: tar would not read it");
    drop(open);
    until("no blocks", || Ok(blocks()? == 0)).context("it keeps blocks after the last close")?;
    let ours = Walk::take(mount.dir())?;
    mount.unmount()?;
    judge(bench, &image, &ours, &Compare { ctime: true, btime: true, ..Compare::default() })
}

/// A modification time that is set over dirty pages of a live mapping is not overtaken when these are written back; a store after
/// that is a modification. On the kernel's own mount the same holds.
fn set_times_stay(bench: &Bench) -> Result<()> {
    let program = program(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    times_over_a_mapping(&program, mount.dir()).context("our mount")?;
    let ours = Walk::take(mount.dir())?;
    mount.unmount()?;
    judge(bench, &image, &ours, &Compare { ctime: true, btime: true, ..Compare::default() })?;
    let theirs = LoopMount::mount(&image, &bench.scratch.file("kernel"), "rw")?;
    let within = theirs.dir().join("kernel");
    std::fs::create_dir(&within)?;
    times_over_a_mapping(&program, &within).context("the kernel's mount")?;
    theirs.unmount()
}

fn times_over_a_mapping(program: &Path, dir: &Path) -> Result<()> {
    let path = dir.join("times");
    File::create_new(&path)?.set_len(LEN)?;
    let mut writer = MappingWriter::start(program, &path)?;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(&path)?.set_modified(then)?;
    let modified = || Ok::<_, anyhow::Error>(path.metadata()?.modified()?);
    ensure!(modified()? == then, "it is {:?} at once", modified()?);
    writer.end()?;
    File::open(&path)?.sync_all()?;
    ensure!(modified()? == then, "it is {:?} after the pages were written back", modified()?);
    ensure!(std::fs::read(&path)?[5..].starts_with(b"mapped"), "what was stored is lost");
    let mut writer = MappingWriter::start(program, &path)?;
    writer.end()?;
    File::open(&path)?.sync_all()?;
    ensure!(modified()? > then, "a store through a mapping is no modification");
    File::open(&path)?.set_modified(then)?;
    Ok(())
}

/// What a mapping stored before its subvolume is made read-only belongs to it.
fn store_before_read_only(bench: &Bench) -> Result<()> {
    let program = program(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let subvolume = mount.dir().join("subvolume");
    bench.creamery().run(["subvolume", "create"]).arg(&subvolume).ok()?;
    let path = subvolume.join("file");
    File::create_new(&path)?.set_len(LEN)?;
    let mut writer = MappingWriter::start(&program, &path)?;
    bench.creamery().run(["property", "set"]).arg(&subvolume).args(["ro", "true"]).ok()?;
    writer.end()?;
    ensure!(std::fs::read(&path)?[5..].starts_with(b"mapped"), "the store is lost");
    let ours = Walk::take(mount.dir())?;
    mount.unmount()?;
    judge(bench, &image, &ours, &Compare { ctime: true, btime: true, ..Compare::default() })
}

/// The file as tools that leave out holes copy it.
fn copies(path: &Path, outside: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let (copy, archive) = (outside.join("copy"), outside.join("archive.tar"));
    Run::new("cp").arg("--sparse=auto").arg(path).arg(&copy).ok()?;
    let (folder, name) = (path.parent().context("a folder")?, path.file_name().context("a name")?);
    Run::new("tar").arg("-C").arg(folder).arg("-Scf").arg(&archive).arg(name).ok()?;
    Run::new("tar").arg("-C").arg(outside).arg("-xf").arg(&archive).ok()?;
    Ok(vec![("cp", std::fs::read(copy)?), ("tar", std::fs::read(outside.join(name))?)])
}

/// The ranges of data.
fn map(path: &Path) -> Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(found),
            start => start?,
        };
        at = seek(&file, SeekFrom::Hole(start))?;
        found.push((start, at));
    }
}

/// A process with a mapping.
pub(crate) struct MappingWriter(Child);

impl MappingWriter {
    /// Starts it, and returns when the pages are dirty.
    pub(crate) fn start(program: &Path, path: &Path) -> Result<Self> {
        let mut command = Command::new(program.join("dirty"));
        command.arg(path).args(CHANGED.map(|at| at.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut said)?;
        let writer = Self(child);
        ensure!(said == "dirty\n", "the program says {said:?}");
        Ok(writer)
    }

    pub(crate) fn end(&mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "the program ended with {status}");
        Ok(())
    }
}

impl Drop for MappingWriter {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
