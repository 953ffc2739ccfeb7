//! From what lies in the checkout to an image: unpacked, and restored where it is a dump of metadata.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use creamery_testkit::Run;

/// The folders with images.
const FOLDERS: [&str; 5] = ["fsck-tests", "fuzz-tests", "misc-tests", "mkfs-tests", "convert-tests"];
/// How names of images end: as they are, dumps of metadata, and in an archive; each may be packed.
const ENDINGS: [&str; 6] = [".raw", ".raw.xz", ".img", ".img.xz", ".btrfs-image", ".tar.xz"];

/// How images of other projects end.
const ENDINGS_ELSEWHERE: [&str; 7] = [".raw", ".raw.xz", ".img", ".img.xz", ".img.zst", ".img.gz", ".bin.gz"];

/// The images below the folder `tests` of btrfs-progs, named relative to it, in order.
pub(super) fn find_cases(tests: &Path) -> Result<Vec<String>> {
    let folders = FOLDERS.iter().map(|folder| tests.join(folder)).collect();
    find(tests, folders, &|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// The images of Btrfs filesystems in a checkout of another project, in order: those that are called so.
pub(super) fn find_elsewhere(checkout: &Path) -> Result<Vec<String>> {
    let is_image = |name: &str| {
        let of_btrfs = name.rsplit('/').next().is_some_and(|last| last.contains("btrfs"));
        of_btrfs && ENDINGS_ELSEWHERE.iter().any(|ending| name.ends_with(ending))
    };
    find(checkout, vec![checkout.to_owned()], &is_image)
}

fn find(top: &Path, mut waiting: Vec<PathBuf>, is_image: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && is_image(&path.to_string_lossy()) {
                found.push(path.strip_prefix(top)?.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Where a filesystem has its magic, and that.
const MAGIC: (u64, &[u8; 8]) = (0x1_0040, b"_BHRfS_M");

/// Makes the image `to` of `from`.
pub(super) fn restore(from: &Path, to: &Path) -> Result<()> {
    let name = from.to_string_lossy();
    let (bare, packed) = match name.rsplit_once('.') {
        Some((bare, "xz")) => (bare, Some("xz")),
        Some((bare, "gz")) => (bare, Some("gzip")),
        Some((bare, "zst")) => (bare, Some("zstd")),
        _ => (&*name, None),
    };
    match bare.rsplit('.').next() {
        Some("tar") => {
            let dir = to.with_extension("dir");
            std::fs::create_dir(&dir)?;
            Run::new("tar").args(["--no-same-owner", "-xJf"]).arg(from).arg("-C").arg(&dir).ok()?;
            let inside = std::fs::read_dir(&dir)?.next().context("an empty archive")??.path();
            std::fs::rename(inside, to)?;
        }
        Some("raw" | "bin") => unpack(from, packed, to)?,
        Some("img" | "btrfs-image") => {
            let dump = to.with_extension("dump");
            unpack(from, packed, &dump)?;
            // Some call their dumps of metadata images.
            if is_filesystem(&dump)? {
                std::fs::rename(&dump, to)?;
            } else {
                Run::new("btrfs-image").arg("-r").args([&dump, to]).ok()?;
            }
        }
        _ => bail!("{name} is no image"),
    }
    Ok(())
}

fn is_filesystem(path: &Path) -> Result<bool> {
    let mut found = [0; 8];
    let read = File::open(path)?.read_exact_at(&mut found, MAGIC.0);
    Ok(read.is_ok() && found == *MAGIC.1)
}

/// Copies or unpacks, by the program that is named; zeros become holes.
fn unpack(from: &Path, packed: Option<&str>, to: &Path) -> Result<()> {
    let script = match packed {
        Some(_) => "$2 -dc \"$0\" | dd of=\"$1\" bs=64k conv=sparse status=none",
        None => "cp --sparse=always \"$0\" \"$1\"",
    };
    let run = Run::new("bash").args(["-o", "pipefail", "-c", script]).args([from, to]);
    run.arg(packed.unwrap_or_default()).ok().map(drop)
}
