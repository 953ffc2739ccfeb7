//! From what lies in the checkout to an image: unpacked, and restored where it is a dump of metadata.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use creamery_testkit::Run;

/// The folders with images.
const FOLDERS: [&str; 5] = ["fsck-tests", "fuzz-tests", "misc-tests", "mkfs-tests", "convert-tests"];
/// How names of images end: as they are, dumps of metadata, and in an archive; each may be packed.
const ENDINGS: [&str; 6] = [".raw", ".raw.xz", ".img", ".img.xz", ".btrfs-image", ".tar.xz"];

/// The images below the folder `tests`, named relative to it, in order.
pub(super) fn find_cases(tests: &Path) -> Result<Vec<String>> {
    let mut waiting: Vec<PathBuf> = FOLDERS.iter().map(|folder| tests.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))? {
            let path = entry?.path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                waiting.push(path);
            } else if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
                found.push(path.strip_prefix(tests)?.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Makes the image `to` of `from`.
pub(super) fn restore(from: &Path, to: &Path) -> Result<()> {
    let name = from.to_string_lossy();
    let packed = name.ends_with(".xz");
    let bare = name.strip_suffix(".xz").unwrap_or(&name);
    match bare.rsplit('.').next() {
        Some("tar") => {
            let dir = to.with_extension("dir");
            std::fs::create_dir(&dir)?;
            Run::new("tar").args(["--no-same-owner", "-xJf"]).arg(from).arg("-C").arg(&dir).ok()?;
            let inside = std::fs::read_dir(&dir)?.next().context("an empty archive")??.path();
            std::fs::rename(inside, to)?;
        }
        Some("raw") => unpack(from, packed, to)?,
        Some("img" | "btrfs-image") => {
            let dump = to.with_extension("dump");
            unpack(from, packed, &dump)?;
            Run::new("btrfs-image").arg("-r").args([&dump, to]).ok()?;
        }
        _ => bail!("{name} is no image"),
    }
    Ok(())
}

/// Copies or unpacks; zeros become holes.
fn unpack(from: &Path, packed: bool, to: &Path) -> Result<()> {
    let script = match packed {
        true => "xz -dc \"$0\" | dd of=\"$1\" bs=64k conv=sparse status=none",
        false => "cp --sparse=always \"$0\" \"$1\"",
    };
    Run::new("bash").args(["-o", "pipefail", "-c", script]).args([from, to]).ok().map(drop)
}
