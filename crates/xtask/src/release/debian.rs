//! The Debian package. It depends on nothing, and has no script that runs when it is installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use creamery_testkit::{Run, Scratch};

use super::files::{gzip, set_modes, write};
use super::parts::{Parts, VERSION};
use super::tree::{DOCUMENTS, SECTIONS, lay, lay_documents};
use creamery_workspace::{read, root};

pub(super) const NAME: &str = "creamery";
const ZSH: &str = "share/zsh/vendor-completions/_creamery";

/// Where the package lies in a release.
pub(super) fn path(out: &Path) -> PathBuf {
    out.join(format!("{NAME}_{VERSION}_amd64.deb"))
}

/// Makes it.
pub(super) fn make(parts: &Parts, out: &Path) -> Result<()> {
    let scratch = Scratch::new("debian")?;
    let place = scratch.dir("root")?;
    let prefix = place.join("usr");
    lay(parts, &prefix, ZSH)?;
    for section in SECTIONS {
        for page in fs::read_dir(prefix.join(section))? {
            gzip(&page?.path())?;
        }
    }
    let documents = prefix.join(DOCUMENTS);
    lay_documents(parts, &documents, &["NOTICE"])?;
    gzip(&documents.join("THIRD-PARTY"))?;
    let licence = read("packaging/copyright")? + &paragraph("MIT", &read("LICENSE-MIT")?);
    write(&documents.join("copyright"), licence.as_bytes())?;
    let changes = documents.join("changelog");
    fs::copy(root().join("CHANGELOG.md"), &changes)?;
    gzip(&changes)?;
    let bytes: u64 = sizes(&prefix)?;
    write(&place.join("DEBIAN/control"), control(bytes.div_ceil(1024)).as_bytes())?;
    set_modes(&place)?;
    let build = Run::new("dpkg-deb").args(["--root-owner-group", "-Zxz", "--build"]).arg(&place);
    build.arg(path(out)).env("SOURCE_DATE_EPOCH", parts.epoch.to_string()).ok().map(drop)
}

fn control(kibibytes: u64) -> String {
    format!(
        "Package: {NAME}\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: The Creamery contributors\n\
         Installed-Size: {kibibytes}\nRecommends: fuse3\nSuggests: btrfs-progs\nSection: admin\nPriority: optional\n\
         Description: Btrfs outside the kernel\n \
         Makes, reads, writes, checks and mounts Btrfs filesystems in image files and on\n \
         block devices, without root and without the kernel module. fuse3 is for mounts\n \
         by others than root.\n"
    )
}

/// A licence as Debian's form has it: each line moved in, an empty one as a dot.
fn paragraph(name: &str, text: &str) -> String {
    let mut paragraph = format!("License: {name}\n");
    for line in text.trim_end().lines() {
        paragraph += &format!(" {}\n", if line.is_empty() { "." } else { line });
    }
    paragraph
}

fn sizes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { sizes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::paragraph;

    #[test]
    fn a_licence_becomes_a_paragraph() {
        assert_eq!(paragraph("MIT", "One\n\ntwo\n"), "License: MIT\n One\n .\n two\n");
    }
}
