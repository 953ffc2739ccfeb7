//! Listings beside changes: a listing of a directory shows the content of the directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Run;
use creamery_testkit::harness::Case;
use rustix::fs::{Advice, RawDir, SeekFrom, fadvise, seek};
use rustix::io::Errno;

use crate::posix::{PosixBody, on_a_mount};
use crate::support::MOUNTED;

pub(crate) fn cases() -> Vec<Case> {
    let bodies: [(&str, PosixBody); 6] = [
        ("listings/changed", changed),
        ("listings/changed-by-several", beside_others),
        ("listings/parent-of-a-moved-directory", parent_of_a_moved_directory),
        ("listings/positions-beside-changes", positions_beside_changes),
        ("listings/renamed-while-listed", renamed_while_listed),
        ("listings/removed-while-listed", removed_while_listed),
    ];
    let case = |(name, body)| Case::new(name, &MOUNTED, move |bench| on_a_mount(bench, body));
    bodies.into_iter().map(case).collect()
}

/// An entry from getdents(2).
struct Listed {
    name: String,
    ino: u64,
    /// The position behind the entry.
    next: u64,
}

/// Lists entries from the stream's position on, in buffers of 2 KiB; at most `most` of them.
fn read_on(dir: &File, most: usize) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    while listed.len() < most {
        let some = read_buffer(dir)?;
        if some.is_empty() {
            break;
        }
        listed.extend(some);
    }
    listed.truncate(most);
    Ok(listed)
}

/// The entries of one getdents(2) call.
fn read_buffer(dir: &File) -> Result<Vec<Listed>> {
    let mut buffer = [MaybeUninit::uninit(); 2048];
    let mut stream = RawDir::new(dir, &mut buffer);
    let mut listed = Vec::new();
    while let Some(entry) = stream.next() {
        let entry = entry?;
        let (name, next) = (entry.file_name().to_string_lossy().into_owned(), entry.next_entry_cookie());
        listed.push(Listed { name, ino: entry.ino(), next });
        if stream.is_buffer_empty() {
            break;
        }
    }
    Ok(listed)
}

fn names(listed: &[Listed]) -> BTreeSet<String> {
    listed.iter().map(|entry| entry.name.clone()).filter(|name| !matches!(&**name, "." | "..")).collect()
}

/// Checks that `dir` lists exactly `wanted`: through the open stream, rewound, and through a new one.
fn expect(open: &File, dir: &Path, wanted: &BTreeSet<String>, after: &str) -> Result<()> {
    seek(open, SeekFrom::Start(0))?;
    for (which, listed) in
        [("begun again", read_on(open, usize::MAX)?), ("new", read_on(&File::open(dir)?, usize::MAX)?)]
    {
        let found = names(&listed);
        ensure!(
            found == *wanted && listed.len() == wanted.len() + 2,
            "after {after} a listing {which} lacks {:?} and has {:?} too many, {} entries",
            wanted.difference(&found).take(3).collect::<Vec<_>>(),
            found.difference(wanted).take(3).collect::<Vec<_>>(),
            listed.len()
        );
    }
    Ok(())
}

/// Another process, the shell, changes the directory; each line of the script has the names it adds and removes.
fn changed(dir: &Path) -> Result<()> {
    const CHANGES: [(&str, &[&str], &[&str]); 14] = [
        ("touch d/new", &["new"], &[]),
        ("rm d/1", &[], &["1"]),
        ("mv d/2 d/two", &["two"], &["2"]),
        ("mv d/3 d/4", &[], &["3"]),
        ("mv d/5 other/5", &[], &["5"]),
        ("mv other/5 d/five", &["five"], &[]),
        ("mkdir d/below", &["below"], &[]),
        ("mv d/below d/beyond", &["beyond"], &["below"]),
        ("rmdir d/beyond", &[], &["beyond"]),
        ("ln d/6 d/link", &["link"], &[]),
        ("ln -s nowhere d/symlink", &["symlink"], &[]),
        ("mkfifo d/fifo", &["fifo"], &[]),
        ("cp d/7 d/copy && rm d/7", &["copy"], &["7"]),
        ("mv d moved && mv moved d", &[], &[]),
    ];
    std::fs::create_dir(dir.join("other"))?;
    let listed = dir.join("d");
    std::fs::create_dir(&listed)?;
    // More than one buffer, and more than one page of the kernel's cache.
    let mut wanted: BTreeSet<String> = (0..500).map(|number| number.to_string()).collect();
    for name in &wanted {
        File::create(listed.join(name))?;
    }
    let open = File::open(&listed)?;
    expect(&open, &listed, &wanted, "nothing")?;
    for (change, more, fewer) in CHANGES {
        Run::new("sh").args(["-c", change]).within(dir).ok()?;
        fewer.iter().for_each(|name| ensure_true(wanted.remove(*name)));
        more.iter().for_each(|name| ensure_true(wanted.insert((*name).to_owned())));
        expect(&open, &listed, &wanted, change)?;
        expect(&open, &listed, &wanted, change).context("and once more")?;
    }
    Ok(())
}

fn ensure_true(as_the_table_says: bool) {
    assert!(as_the_table_says, "a row of the table is wrong");
}

fn parent_of_a_moved_directory(dir: &Path) -> Result<()> {
    let parent_of = |path: &str| -> Result<u64> {
        let listed = read_on(&File::open(dir.join(path))?, usize::MAX)?;
        Ok(listed.iter().find(|entry| entry.name == "..").context("no ..")?.ino)
    };
    let folders = ["one", "two", "one/moved", "two/swapped"];
    folders.iter().try_for_each(|path| std::fs::create_dir(dir.join(path)))?;
    let (one, two) = (dir.join("one").metadata()?.ino(), dir.join("two").metadata()?.ino());
    ensure!((parent_of("one/moved")?, parent_of("two/swapped")?) == (one, two));
    std::fs::rename(dir.join("one/moved"), dir.join("two/moved"))?;
    ensure!(parent_of("two/moved")? == two, "it was moved");
    let (from, to) = (dir.join("two/swapped"), dir.join("one/other"));
    std::fs::create_dir(&to)?;
    ensure!(parent_of("one/other")? == one);
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, from, cwd, to, rustix::fs::RenameFlags::EXCHANGE)?;
    ensure!((parent_of("one/other")?, parent_of("two/swapped")?) == (one, two), "they were exchanged");
    Ok(())
}

/// A listing goes on at its position, in the open stream and in a new one, regardless of names removed and added and of other listings in
/// between; names that exist all the time are listed once.
fn positions_beside_changes(dir: &Path) -> Result<()> {
    const FILES: u32 = 3000;
    let listed = dir.join("many");
    std::fs::create_dir(&listed)?;
    (0..FILES).try_for_each(|number| File::create(listed.join(format!("{number}"))).map(drop))?;
    let open = File::open(&listed)?;
    let first = read_on(&open, 1000)?;
    let (told, at) = (names(&first), first.last().context("something is listed")?.next);
    // Removes the name before the position, and some on both sides of it.
    let last = &first.last().context("something is listed")?.name;
    std::fs::remove_file(listed.join(last))?;
    let gone: BTreeSet<String> =
        (0..FILES).step_by(7).map(|number| number.to_string()).filter(|name| name != last).collect();
    gone.iter().try_for_each(|name| std::fs::remove_file(listed.join(name)))?;
    (0..100).try_for_each(|number| File::create(listed.join(format!("new {number}"))).map(drop))?;

    let kept: BTreeSet<String> = (0..FILES)
        .map(|number| number.to_string())
        .filter(|name| name != last && !gone.contains(name))
        .collect();
    let rest: BTreeSet<String> = kept.difference(&told).cloned().collect();
    // Other processes list the current content meanwhile.
    let whole = names(&read_on(&File::open(&listed)?, usize::MAX)?);
    ensure!(whole.len() == kept.len() + 100 && kept.is_subset(&whole), "{} are listed", whole.len());
    let go_on = |stream: &File, which: &str| -> Result<()> {
        seek(stream, SeekFrom::Start(at))?;
        let listed = read_on(stream, usize::MAX)?;
        let mut times = BTreeMap::<&str, u32>::new();
        listed.iter().for_each(|entry| *times.entry(&entry.name).or_default() += 1);
        ensure!(times.values().all(|times| *times == 1), "{which}: something is told twice");
        let found = names(&listed);
        ensure!(rest.is_subset(&found), "{which}: {} of {} are told", found.len(), rest.len());
        ensure!(found.is_disjoint(&told), "{which}: what was before the position is told again");
        Ok(())
    };
    go_on(&open, "the open stream")?;
    go_on(&File::open(&listed)?, "a new stream")?;
    // The kernel may drop its cache at any time, also in the middle of a listing.
    seek(&open, SeekFrom::Start(0))?;
    let some = read_on(&open, 1500)?;
    fadvise(&open, 0, None, Advice::DontNeed)?;
    seek(&open, SeekFrom::Start(some.last().context("something is listed")?.next))?;
    let mut both = names(&some);
    both.extend(names(&read_on(&open, usize::MAX)?));
    ensure!(both == whole, "{} of {} are told when nothing is kept", both.len(), whole.len());
    Ok(())
}

fn renamed_while_listed(dir: &Path) -> Result<()> {
    const FILES: usize = 1200;
    let listed = dir.join("renamed");
    std::fs::create_dir(&listed)?;
    (0..FILES).try_for_each(|number| File::create(listed.join(format!("{number}"))).map(drop))?;
    for round in ["first", "second"] {
        let (open, mut seen) = (File::open(&listed)?, 0);
        loop {
            let some = read_buffer(&open)?;
            if some.is_empty() {
                break;
            }
            for name in names(&some) {
                seen += 1;
                ensure!(seen <= FILES, "the {round} listing tells what was renamed since it began");
                std::fs::rename(listed.join(name), listed.join(format!("{round} {seen}")))?;
            }
        }
        ensure!(seen == FILES, "the {round} listing told {seen} of {FILES}");
    }
    Ok(())
}

fn removed_while_listed(dir: &Path) -> Result<()> {
    const FILES: u32 = 20_000;
    let listed = dir.join("going");
    std::fs::create_dir(&listed)?;
    (0..FILES).try_for_each(|number| File::create(listed.join(format!("{number}"))).map(drop))?;
    std::thread::scope(|scope| {
        let lister = scope.spawn(|| -> Result<()> {
            let mut before = usize::MAX;
            loop {
                let there = match File::open(&listed) {
                    Ok(open) => read_on(&open, usize::MAX),
                    Err(error) => Err(error.into()),
                };
                match there {
                    Ok(there) => {
                        ensure!(there.len() <= before, "{} names after {before}", there.len());
                        before = there.len();
                    }
                    Err(error) => {
                        let errno = error.downcast_ref::<Errno>().copied();
                        let errno =
                            errno.or_else(|| Errno::from_io_error(error.downcast_ref::<std::io::Error>()?));
                        return if errno == Some(Errno::NOENT) { Ok(()) } else { Err(error) };
                    }
                }
            }
        });
        let removed = Run::new("rm").arg("-r").arg(&listed).ok();
        lister.join().expect("it does not panic").context("listing what is removed")?;
        removed.map(drop)
    })
}

/// Two processes list their own changes, while others change and list the same directory: each finds its own change.
fn beside_others(dir: &Path) -> Result<()> {
    const ROUNDS: u32 = 1_500;
    let listed = dir.join("shared");
    std::fs::create_dir(&listed)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let churn = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                File::create(listed.join("churn"))?;
                std::fs::remove_file(listed.join("churn"))?;
            }
            Ok(())
        });
        let list = |own: &'static str| {
            let listed = &listed;
            move || -> Result<()> {
                let open = File::open(listed)?;
                for _ in 0..ROUNDS {
                    for there in [true, false] {
                        let path = listed.join(own);
                        if there {
                            File::create(path).map(drop)?
                        } else {
                            std::fs::remove_file(path)?
                        };
                        seek(&open, SeekFrom::Start(0))?;
                        for (which, listed) in [
                            ("begun again", read_on(&open, usize::MAX)?),
                            ("new", read_on(&File::open(listed)?, usize::MAX)?),
                        ] {
                            let told = names(&listed).contains(own);
                            ensure!(
                                told == there,
                                "a listing {which}: {own} is told: {told}, is there: {there}"
                            );
                        }
                    }
                }
                Ok(())
            }
        };
        let listers = ["one", "two"].map(|own| scope.spawn(list(own)));
        let outcomes = listers.map(|lister| lister.join());
        is_over.store(true, Ordering::Relaxed);
        outcomes.into_iter().try_for_each(|outcome| outcome.expect("it does not panic"))?;
        churn.join().expect("it does not panic")
    })
}
