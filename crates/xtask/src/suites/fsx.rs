//! `cargo xtask fsx [--operations N] [--checkout DIR]`: random reads, writes, mappings and truncations of a file, three seeds; every
//! second one has a file that is overwritten in place.
//! Cargo installs the program; with a checkout of fstests, built, it is the one there, which zeros ranges, too, and goes around the
//! kernel's cache (`O_DIRECT`): then that is done as well, beside mappings, with requests of read(2) and write(2), libaio and io_uring.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{FuseMount, Program, Run, Scratch, btrfs_check};

use super::{OPTIONS, Stage, stage};
use crate::tools::installed;

const SUITE: (&str, &str) = ("fsx", "0.3.2");
/// Operations of all seeds and ways together.
const OPERATIONS: u64 = 100_000;
/// Between two rounds the filesystem is unmounted, checked and mounted again.
const OPERATIONS_OF_A_ROUND: u64 = 20_000;
const SEEDS: u64 = 3;

/// That of fstests closes and opens the file before so many operations once.
const CLOSE_ONE_IN: &str = "100";

/// Its words for requests around the kernel's cache.
const DIRECT: [(&str, &[&str]); 3] = [
    ("direct", &["-Z", "-r", "4096", "-w", "4096"]),
    ("direct by libaio", &["-Z", "-r", "4096", "-w", "4096", "-A"]),
    ("direct by io_uring", &["-Z", "-r", "4096", "-w", "4096", "-U"]),
];

/// What that one finds to be out of a mount's reach, or of Btrfs'; it leaves these out, and counts them.
const LACKING: [&str; 8] =
    ["UNSHARE", "COLLAPSE", "INSERT", "clone", "dedupe", "exchange", "dontcache", "atomic"];

/// All operations that exist.
const SETTINGS: &str = "
flen = 262144
[opsize]
min = 0
max = 65536
align = 1
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 10.0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 3.0
punch_hole = 3.0
sendfile = 1.0
posix_fadvise = 1.0
copy_file_range = 3.0
";

/// What is done with a file of its own.
struct FsxMode {
    /// Where its random numbers begin.
    seed: u64,
    name: &'static str,
    in_place: bool,
    /// Words of fsx.
    words: &'static [&'static str],
}

impl FsxMode {
    /// Those that `fsx` knows.
    fn all(fsx: &Fsx) -> Vec<Self> {
        let cached = (1..=SEEDS).map(|seed| Self {
            seed,
            name: "cached",
            in_place: seed.is_multiple_of(2),
            words: &[],
        });
        let mut ways: Vec<Self> = cached.collect();
        if matches!(fsx, Fsx::OfFstests { .. }) {
            let kinds = DIRECT.iter().flat_map(|kind| [(kind, false), (kind, true)]);
            let direct = (SEEDS + 1..).zip(kinds);
            ways.extend(direct.map(|(seed, ((name, words), in_place))| Self { seed, name, in_place, words }));
        }
        ways
    }
}

/// Which fsx.
enum Fsx {
    /// Cargo's, with its settings.
    Installed { program: PathBuf, settings: PathBuf },
    /// That of fstests, with a folder for its logs. It finds out by itself what the mount can do.
    OfFstests { program: PathBuf, logs: PathBuf },
}

impl Fsx {
    fn new(checkout: Option<&str>, scratch: &Scratch) -> Result<Self> {
        match checkout {
            Some(checkout) => {
                let program = Path::new(checkout).canonicalize()?.join("ltp/fsx");
                ensure!(program.is_file(), "build fstests first: make");
                Ok(Self::OfFstests { program, logs: scratch.path().to_owned() })
            }
            None => {
                let settings = scratch.file("fsx.toml");
                std::fs::write(&settings, SETTINGS)?;
                Ok(Self::Installed { program: installed(SUITE)?, settings })
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Installed { .. } => format!("fsx {}", SUITE.1),
            Self::OfFstests { .. } => "fsx of fstests".to_owned(),
        }
    }

    fn run(&self, way: &FsxMode, seed: u64, count: u64, file: &Path) -> Result<()> {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let (seed_word, count) = (seed.to_string(), count.to_string());
        let common = words(&["-S", &seed_word, "-N", &count]);
        let (program, special) = match self {
            Self::Installed { program, settings } => {
                let words = words(&["-f"]).into_iter();
                (program, words.chain([settings.into()]).collect::<Vec<_>>())
            }
            Self::OfFstests { program, logs } => {
                let words = words(&["-c", CLOSE_ONE_IN, "-P"]).into_iter();
                (program, words.chain([logs.into()]).collect())
            }
        };
        let ran = Run::new(program).args(common).args(special).args(way.words).arg(file).output()?;
        if ran.code != Some(0) {
            bail!("fsx with seed {seed}: {ran}");
        }
        let said = [ran.stdout_text(), ran.stderr_text()].concat();
        let lacking = said.lines().filter(|line| line.contains("does not support"));
        let missed = lacking.filter(|line| !LACKING.iter().any(|known| line.contains(known)));
        ensure!(missed.clone().count() == 0, "fsx left out: {}", missed.collect::<Vec<_>>().join("; "));
        Ok(())
    }
}

/// Runs each seed in rounds, each on a fresh mount of the same image.
pub(crate) fn fsx(words: &[&str]) -> Result<()> {
    let (operations, checkout) = parse(words)?;
    let Stage { scratch, image, mount } = stage("fsx")?;
    let dir = mount.dir().to_owned();
    mount.unmount()?;
    let fsx = Fsx::new(checkout, &scratch)?;
    let ways = FsxMode::all(&fsx);
    let share = operations.div_ceil(ways.len() as u64);
    for way in &ways {
        let FsxMode { seed, name, .. } = way;
        let (options, how) = match way.in_place {
            true => (format!("{OPTIONS},nodatacow"), " in place"),
            false => (OPTIONS.to_owned(), ""),
        };
        let mut left = share;
        let mut round = 0;
        while left > 0 {
            let count = left.min(OPERATIONS_OF_A_ROUND);
            let mount = FuseMount::mount(&Program::find()?, &image, &dir, &options)?;
            // Each round has its own random numbers, made from the seed's.
            let file = mount.dir().join(format!("file-{seed}"));
            fsx.run(way, seed + ways.len() as u64 * round, count, &file)?;
            mount.unmount()?;
            btrfs_check(&image)?;
            left -= count;
            round += 1;
        }
        println!("{}: {name}, seed {seed}, {share} operations{how} in {round} rounds agree", fsx.name());
    }
    Ok(())
}

fn parse<'w>(words: &[&'w str]) -> Result<(u64, Option<&'w str>)> {
    let (mut operations, mut checkout) = (OPERATIONS, None);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let value = || format!("{word} wants a value");
        match word {
            "--operations" => operations = words.next().with_context(value)?.parse()?,
            "--checkout" => checkout = Some(*words.next().with_context(value)?),
            _ => bail!("usage: cargo xtask fsx [--operations N] [--checkout DIR]"),
        }
    }
    Ok((operations, checkout))
}
