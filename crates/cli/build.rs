//! Data that the program contains from its source tree: the pages of `docs`, compressed, and the commit.

use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use flate2::Compression;
use flate2::write::ZlibEncoder;

/// A link to the pages of users at the root of the tree.
const PAGES: &str = "docs";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no OUT_DIR")?);
    pack_pages(&out)?;
    println!("cargo::rustc-env=CREAMERY_VERSION={}", version(&out)?);
    Ok(())
}

/// Writes all pages, joined and compressed, and a table of their offsets.
fn pack_pages(out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PAGES}");
    let mut names = Vec::new();
    for entry in fs::read_dir(PAGES)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            names.push(path);
        }
    }
    names.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    let (mut text, mut table) = (String::new(), String::from("["));
    for path in names {
        println!("cargo::rerun-if-changed={}", path.display());
        let page = fs::read_to_string(&path)?;
        let name = path.file_stem().and_then(|name| name.to_str()).ok_or("a page whose name is no text")?;
        write!(table, "({name:?}, {}..{}),", text.len(), text.len() + page.len())?;
        text += &page;
    }
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes())?;
    fs::write(out.join("pages.zlib"), packed.finish()?)?;
    fs::write(out.join("pages.in"), table + "]")?;
    Ok(())
}

/// The version of the package, with the commit and its date if they are known: not every build host has git, and the registry's sources
/// have no commit.
fn version(out: &Path) -> Result<String, Box<dyn Error>> {
    let package = env::var("CARGO_PKG_VERSION")?;
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["show", "--no-patch", "--format=%h %cs", "--abbrev=12", "HEAD"]);
    if commit.is_none() && lacks_git() {
        // The file does not exist, so cargo runs this script again the next time.
        println!("cargo::rerun-if-changed={}", out.join("no-git").display());
    }
    Ok(commit.map_or_else(|| package.clone(), |commit| format!("{package} ({commit})")))
}

/// Whether this lies in a repository, and there is no git that could read it.
fn lacks_git() -> bool {
    let is_in_one =
        env::current_dir().is_ok_and(|here| here.ancestors().any(|dir| dir.join(".git").exists()));
    is_in_one && Command::new("git").arg("--version").output().is_err()
}

/// The output of git about the repository of this file.
fn git(words: &[&str]) -> Option<String> {
    let ask = |words: &[&str]| {
        let said = Command::new("git").args(words).output().ok().filter(|said| said.status.success())?;
        String::from_utf8(said.stdout).ok().map(|said| said.trim().to_owned())
    };
    // Sources that were unpacked into another repository do not belong to its commits.
    ask(&["ls-files", "--error-unmatch", "build.rs"])?;
    ask(words)
}
