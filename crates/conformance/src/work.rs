//! Daily work on a mount, each judged afterwards.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, Random, Run, tree};

use crate::support::{MOUNTED, judge_mount, mkfs_empty, torture_source};

type DailyWork = fn(&Bench, &Path) -> Result<()>;

pub(crate) fn cases() -> Vec<Case> {
    let works: [(&str, &'static [Judge], DailyWork); 8] = [
        ("work/cp-torture", &[], cp_torture),
        ("work/tar", &[Judge::Tool("tar")], tar),
        ("work/git", &[Judge::Tool("git")], git),
        ("work/build-c", &[Judge::Tool("cc"), Judge::Tool("make")], build_c),
        ("work/sqlite", &[Judge::Tool("sqlite3")], sqlite),
        ("work/rsync", &[Judge::Tool("rsync")], rsync),
        ("work/many-writers", &[], many_writers),
        ("work/names-and-times", &[], names_and_times),
    ];
    works
        .into_iter()
        .map(|(name, tools, work)| {
            Case::new(name, &[&MOUNTED[..], tools].concat(), move |bench| on_a_mount(bench, work))
        })
        .collect()
}

/// An empty image, mounted; the work; unmounted; judged: the kernel must see what the mount showed.
fn on_a_mount(bench: &Bench, work: DailyWork) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "2G", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    work(bench, mount.dir())?;
    judge_mount(bench, &image, mount)
}

fn cp_torture(bench: &Bench, dir: &Path) -> Result<()> {
    let (source, _) = torture_source(bench)?;
    // Without --sparse=always cp keeps holes as they are reported; --reflink would not cross filesystems.
    Run::new("cp").args(["-a", "--sparse=auto", "--"]).arg(&source).arg(dir.join("tree")).ok()?;
    let want = Walk::take(&source)?;
    expect_same(
        "a copied tree",
        &want,
        &Walk::take(&dir.join("tree"))?,
        &Compare { holes: false, ..Compare::default() },
    )
}

fn source_tree(bench: &Bench) -> Result<std::path::PathBuf> {
    let dir = bench.scratch.dir("tree")?;
    tree::generate(&dir, 1_500, 20_000_000, 5)?;
    Ok(dir)
}

fn tar(bench: &Bench, dir: &Path) -> Result<()> {
    let source = source_tree(bench)?;
    let archive = bench.scratch.file("tree.tar");
    let tar = || Run::new("tar").arg("--format=posix");
    tar().arg("-C").arg(&source).arg("-cf").arg(&archive).arg(".").ok()?;
    let unpacked = dir.join("unpacked");
    std::fs::create_dir(&unpacked)?;
    tar().arg("-C").arg(&unpacked).arg("-xpf").arg(&archive).ok()?;
    expect_same("an unpacked archive", &Walk::take(&source)?, &Walk::take(&unpacked)?, &Compare::default())
}

fn git(bench: &Bench, dir: &Path) -> Result<()> {
    let source = source_tree(bench)?;
    let work = dir.join("work");
    Run::new("cp").arg("-a").arg(&source).arg(&work).ok()?;
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=A", "-c", "user.email=a@example.invalid", "-c", "gc.auto=0"];
        let run = Run::new("git").arg("-C").arg(&work).args(identity).args(args);
        run.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null").ok()
    };
    git(&["init", "-q"])?;
    git(&["add", "-A"])?;
    git(&["commit", "-q", "-m", "one"])?;
    std::fs::write(work.join("more"), b"more")?;
    git(&["add", "more"])?;
    git(&["commit", "-q", "-m", "two"])?;
    git(&["repack", "-adq"])?;
    git(&["fsck", "--full", "--strict"])?;
    let status = git(&["status", "--porcelain"])?.stdout_text();
    ensure!(status.is_empty(), "git sees changes where there are none:\n{status}");
    Ok(())
}

fn build_c(_bench: &Bench, dir: &Path) -> Result<()> {
    for index in 0..20 {
        std::fs::write(
            dir.join(format!("part{index}.c")),
            format!("int part{index}(void) {{ return {index}; }}\n"),
        )?;
    }
    let declared: String = (0..20).map(|index| format!("int part{index}(void);\n")).collect();
    let summed: Vec<String> = (0..20).map(|index| format!("part{index}()")).collect();
    let main = format!(
        "#include <stdio.h>\n{declared}int main(void) {{ printf(\"%d\\n\", {}); return 0; }}\n",
        summed.join(" + ")
    );
    std::fs::write(dir.join("main.c"), main)?;
    let objects: Vec<String> = (0..20).map(|index| format!("part{index}.o")).collect();
    let objects = objects.join(" ");
    std::fs::write(
        dir.join("Makefile"),
        format!("program: main.o {objects}\n\tcc -o $@ $^\n%.o: %.c\n\tcc -O1 -c -o $@ $<\n"),
    )?;
    Run::new("make").arg("-j2").within(dir).ok()?;
    let said =
        Run::new(dir.join("program")).ok().context("running the program from the mount")?.stdout_text();
    ensure!(said == "190\n", "the program says {said:?}");
    let again = Run::new("make").arg("-q").within(dir).output()?;
    ensure!(again.code == Some(0), "make would build again: {again}");
    Ok(())
}

fn sqlite(_bench: &Bench, dir: &Path) -> Result<()> {
    for (name, mode) in [("delete.db", "DELETE"), ("wal.db", "WAL")] {
        let database = dir.join(name);
        let rows: String = (0..10_000)
            .map(|row| format!("INSERT INTO t VALUES ({row}, 'row {row}', randomblob({}));\n", row % 200))
            .collect();
        let script = format!(
            "PRAGMA journal_mode={mode};\nCREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, data BLOB);\nBEGIN;\n{rows}COMMIT;\nCREATE INDEX by_name ON t (name);\nDELETE FROM t WHERE id % 7 = 3;\nVACUUM;\n"
        );
        Run::new("sqlite3").arg("-bail").arg(&database).input(script).ok()?;
        let question = "PRAGMA integrity_check; SELECT count(*), sum(id) FROM t;";
        let said = Run::new("sqlite3").arg(&database).arg(question).ok()?.stdout_text();
        let kept: Vec<u64> = (0..10_000).filter(|id| id % 7 != 3).collect();
        let wanted = format!("ok\n{}|{}\n", kept.len(), kept.iter().sum::<u64>());
        ensure!(said == wanted, "{name} says {said:?}, want {wanted:?}");
    }
    Ok(())
}

fn rsync(bench: &Bench, dir: &Path) -> Result<()> {
    let (source, _) = torture_source(bench)?;
    let rsync = || {
        let run = Run::new("rsync").args(["-aHAX", "--numeric-ids", "--sparse", "--itemize-changes"]);
        // A file of a tebibyte with two pages of data would be read whole.
        run.arg("--exclude=/holes/large").arg(format!("{}/", source.display())).arg(dir.join("copy")).ok()
    };
    rsync().context("the first rsync")?;
    let second = rsync().context("the second rsync")?.stdout_text();
    ensure!(second.is_empty(), "the second rsync moved:\n{second}");
    let want = Walk::take_without(&source, &|path| path == b"holes/large")?;
    let compare = Compare { holes: false, root: false, mtime: true, ..Compare::default() };
    expect_same("a synchronised tree", &want, &Walk::take(&dir.join("copy"))?, &compare)
}

/// Eight threads, each with its own folder and all with one, so that the mount sees real concurrency.
fn many_writers(_bench: &Bench, dir: &Path) -> Result<()> {
    let shared = dir.join("shared");
    std::fs::create_dir(&shared)?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|number| {
                let (own, shared) = (dir.join(format!("own-{number}")), &shared);
                scope.spawn(move || -> Result<()> {
                    let mut random = Random::new(number);
                    std::fs::create_dir(&own)?;
                    for index in 0..300 {
                        let content = random.bytes(random.clone().below(30_000) as usize);
                        let file = own.join(format!("{index}"));
                        std::fs::write(&file, &content)?;
                        std::fs::hard_link(&file, shared.join(format!("{number}-{index}")))?;
                        ensure!(
                            std::fs::read(&file)? == content,
                            "{} reads back differently",
                            file.display()
                        );
                        match index % 4 {
                            0 => std::fs::remove_file(&file)?,
                            1 => std::fs::rename(&file, shared.join(format!("moved-{number}-{index}")))?,
                            2 => std::fs::File::open(&file)?
                                .set_len(0)
                                .map_or(Ok(()), |()| anyhow::bail!("a file open for reading only was cut"))?,
                            _ => std::fs::File::options().append(true).open(&file)?.sync_all()?,
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        Ok(())
    })
}

/// Small facts that tools above do not touch.
fn names_and_times(_bench: &Bench, dir: &Path) -> Result<()> {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    use std::time::{Duration, UNIX_EPOCH};

    let too_long = "n".repeat(256);
    let refused = File::create(dir.join(&too_long)).map(drop).expect_err("a name of 256 bytes was taken");
    ensure!(refused.raw_os_error() == Some(36), "a name of 256 bytes gives {refused}, want ENAMETOOLONG");

    let path = dir.join("before-1970");
    let file = File::create_new(&path)?;
    let moment = UNIX_EPOCH - Duration::new(1_000_000_000, 1);
    file.set_times(std::fs::FileTimes::new().set_modified(moment).set_accessed(moment))?;
    let stat = path.metadata()?;
    ensure!((stat.mtime(), stat.mtime_nsec()) == (-1_000_000_001, 999_999_999), "mtime is {}", stat.mtime());

    // An unlinked file lives as long as it is open.
    std::fs::write(dir.join("unlinked"), vec![7; 100_000])?;
    let mut open = File::options().read(true).write(true).open(dir.join("unlinked"))?;
    std::fs::remove_file(dir.join("unlinked"))?;
    let mut content = Vec::new();
    open.read_to_end(&mut content)?;
    ensure!(content == vec![7; 100_000], "an unlinked file lost its content");
    ensure!(open.metadata()?.nlink() == 0, "an unlinked file has a link count");
    drop(open);

    // Listing while names come and go: every name that stays is seen exactly once.
    let listed = dir.join("listed");
    std::fs::create_dir(&listed)?;
    for index in 0..3_000 {
        File::create_new(listed.join(format!("stays-{index}")))?;
    }
    let mut seen = std::collections::BTreeMap::new();
    for (step, entry) in std::fs::read_dir(&listed)?.enumerate() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        *seen.entry(name).or_insert(0u32) += 1;
        if step % 10 == 0 {
            File::create_new(listed.join(format!("new-{step}")))?;
        }
    }
    let once = (0..3_000).filter(|index| seen.get(&format!("stays-{index}")) == Some(&1)).count();
    ensure!(once == 3_000, "{once} of 3,000 names were listed exactly once");

    let exchanged =
        Run::new("mv").args(["--no-clobber", "--"]).arg(&path).arg(dir.join("listed/stays-1")).output()?;
    ensure!(path.exists(), "mv --no-clobber replaced a file: {exchanged}");
    Ok(())
}
