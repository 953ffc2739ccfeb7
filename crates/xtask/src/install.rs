//! Installs the tools that the tests need from the distribution's own packages.
//!
//! It works on Debian and its derivatives only, as root only, and installs only missing tools. Debian 12 has a btrfs-progs that is too old;
//! its backports suite has a new one. The source entry for that suite is derived from the machine's own entry for its main suite: it has
//! that entry's address and key, and another suite. So a machine that takes its packages from a mirror or a snapshot keeps doing so.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use creamery_testkit::{Judge, Judges, btrfs_progs_version, is_root};

use creamery_workspace::run;

/// A tool and its package.
const TOOLS: [(&str, &str); 27] = [
    ("fusermount3", "fuse3"),
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("sqlite3", "sqlite3"),
    ("rsync", "rsync"),
    ("xfs_io", "xfsprogs"),
    ("git", "git"),
    ("tar", "tar"),
    ("zstd", "zstd"),
    ("mkfs.ext4", "e2fsprogs"),
    ("chattr", "e2fsprogs"),
    ("cc", "gcc"),
    ("make", "make"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("setpriv", "util-linux"),
    ("taskset", "util-linux"),
    ("cmp", "diffutils"),
    ("modprobe", "kmod"),
    ("python3", "python3-minimal"),
    ("fsverity", "fsverity"),
    ("partx", "util-linux"),
    ("sfdisk", "fdisk"),
    ("sgdisk", "gdisk"),
    ("chromium", "chromium"),
    ("strace", "strace"),
    ("qemu-io", "qemu-utils"),
];
const ENTRY: &str = "/etc/apt/sources.list.d/creamery-backports";

/// Installs missing tools; prints each action, and tools that it cannot install.
pub(crate) fn install_missing() -> Result<()> {
    let mut packages: Vec<&str> =
        TOOLS.iter().filter(|(tool, _)| lacks(tool)).map(|(_, package)| *package).collect();
    packages.dedup();
    if packages.contains(&"gcc") {
        packages.push("libc6-dev");
    }
    let progs_missing = btrfs_progs_version().map_or(true, |version| version < (6, 14));
    if packages.is_empty() && !progs_missing {
        return Ok(());
    }
    let mut wanted = packages.clone();
    if progs_missing {
        wanted.push("btrfs-progs (6.14 or later)");
    }
    println!("xtask: missing for the tests: {}", wanted.join(", "));
    if !is_root() || lacks("apt-get") {
        println!("xtask: not root on a system with apt: install them by hand, or their tests are skipped");
        return Ok(());
    }
    apt(&["update"])?;
    if !packages.is_empty() {
        apt(&[&["install", "--no-install-recommends"], &packages[..]].concat())?;
    }
    if progs_missing {
        install_btrfs_progs()?;
    }
    Ok(())
}

/// Installs packages of the distribution.
pub(crate) fn install_packages(names: &[&str]) -> Result<()> {
    apt(&["update"])?;
    apt(&[&["install", "--no-install-recommends"], names].concat())
}

/// The distribution's name, and the address of its main packages.
pub(crate) fn distribution() -> Result<Option<(String, String)>> {
    let Some(codename) = codename(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()) else {
        return Ok(None);
    };
    let sources = read_sources(Path::new("/etc/apt"))?;
    let main = sources.iter().find(|source| source.carries(&codename));
    Ok(main.and_then(Source::uri).map(|uri| (codename, uri)))
}

fn lacks(tool: &'static str) -> bool {
    Judges::here().missing(Judge::Tool(tool)).is_some()
}

fn apt(args: &[&str]) -> Result<()> {
    println!("xtask: apt-get {}", args.join(" "));
    let mut command = Command::new("apt-get");
    run(command.args(["-q", "-y"]).args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn install_btrfs_progs() -> Result<()> {
    let policy = Command::new("apt-cache").args(["policy", "btrfs-progs"]).env("LC_ALL", "C").output()?;
    let policy = String::from_utf8_lossy(&policy.stdout).into_owned();
    if candidate(&policy).is_some_and(|version| version >= (6, 14)) {
        return apt(&["install", "--no-install-recommends", "btrfs-progs"]);
    }
    let Some(codename) = codename(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()) else {
        println!("xtask: no btrfs-progs 6.14 in this distribution, and its name is unknown");
        return Ok(());
    };
    let suite = format!("{codename}-backports");
    let sources = read_sources(Path::new("/etc/apt"))?;
    if !sources.iter().any(|source| source.suites.contains(&suite)) {
        let Some(main) = sources.iter().find(|source| source.carries(&codename)) else {
            println!("xtask: no package source for {codename} found to derive one for {suite} from");
            return Ok(());
        };
        let (text, ending) = main.with_suite(&suite);
        let file = format!("{ENTRY}.{ending}");
        println!("xtask: writing {file}, derived from this machine's source for {codename}:\n{text}");
        std::fs::write(&file, text).with_context(|| format!("writing {file}"))?;
        if let Err(error) = apt(&["update"]) {
            std::fs::remove_file(&file)?;
            return Err(
                error.context(format!("the source has no suite {suite}; the entry was removed again"))
            );
        }
    }
    apt(&["install", "--no-install-recommends", "-t", &suite, "btrfs-progs"])
}

/// The version in the line `Candidate: 6.2-1+deb12u1`.
fn candidate(policy: &str) -> Option<(u32, u32)> {
    let line = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    let line = line.split_once(':').map_or(line, |(_, version)| version);
    let mut numbers = line.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn codename(os_release: &str) -> Option<String> {
    let line = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(line.trim_matches('"').to_owned())
}

/// One package source in apt's configuration.
#[derive(Debug)]
struct Source {
    form: Form,
    suites: Vec<String>,
    components: Vec<String>,
}

#[derive(Debug)]
enum Form {
    /// `deb [options] uri suite components`
    Line { options: String, uri: String },
    /// The fields of a paragraph except suites and components, with continuation lines.
    Paragraph { fields: Vec<String> },
}

impl Source {
    fn carries(&self, suite: &str) -> bool {
        self.suites.iter().any(|have| have == suite) && self.components.iter().any(|have| have == "main")
    }

    /// The first address.
    fn uri(&self) -> Option<String> {
        match &self.form {
            Form::Line { uri, .. } => Some(uri.clone()),
            Form::Paragraph { fields } => {
                let value = fields.iter().find_map(|field| field.strip_prefix("URIs:"))?;
                value.split_whitespace().next().map(str::to_owned)
            }
        }
    }

    /// This source with another suite: the text and the ending of its file.
    fn with_suite(&self, suite: &str) -> (String, &'static str) {
        match &self.form {
            Form::Line { options, uri } => (format!("deb {options}{uri} {suite} main\n"), "list"),
            Form::Paragraph { fields } => {
                (format!("{}\nSuites: {suite}\nComponents: main\n", fields.join("\n")), "sources")
            }
        }
    }
}

fn read_sources(apt: &Path) -> Result<Vec<Source>> {
    let mut files = vec![apt.join("sources.list")];
    if let Ok(dir) = std::fs::read_dir(apt.join("sources.list.d")) {
        for entry in dir {
            files.push(entry?.path());
        }
    }
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("list") => sources.extend(text.lines().filter_map(parse_line)),
            Some("sources") => {
                sources.extend(paragraphs(&text).iter().filter_map(|text| parse_paragraph(text)))
            }
            _ => {}
        }
    }
    Ok(sources)
}

fn parse_line(line: &str) -> Option<Source> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inner) => {
            let (options, rest) = inner.split_once(']')?;
            (format!("[{options}] "), rest)
        }
        None => (String::new(), rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let (uri, suite) = (words.next()?, words.next()?);
    Some(Source { form: Form::Line { options, uri }, suites: vec![suite], components: words.collect() })
}

/// Splits a text at empty lines, and drops comments.
fn paragraphs(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let paragraphs = lines.split(|line| line.trim().is_empty()).map(|lines| lines.join("\n"));
    paragraphs.filter(|paragraph| !paragraph.is_empty()).collect()
}

fn parse_paragraph(text: &str) -> Option<Source> {
    let mut fields: Vec<String> = Vec::new();
    for line in text.lines() {
        match fields.last_mut() {
            Some(field) if line.starts_with([' ', '\t']) => *field = format!("{field}\n{line}"),
            _ => fields.push(line.to_owned()),
        }
    }
    let mut take = |name: &str| -> Option<Vec<String>> {
        let is_it = |field: &String| {
            field.split_once(':').is_some_and(|(have, _)| have.trim().eq_ignore_ascii_case(name))
        };
        let field = fields.remove(fields.iter().position(is_it)?);
        Some(field.split_once(':')?.1.split_whitespace().map(str::to_owned).collect())
    };
    if take("Enabled").is_some_and(|value| value.first().is_some_and(|word| word.eq_ignore_ascii_case("no")))
    {
        return None;
    }
    let types = take("Types")?;
    let (suites, components) = (take("Suites")?, take("Components")?);
    if !types.iter().any(|kind| kind == "deb") {
        return None;
    }
    fields.insert(0, "Types: deb".to_owned());
    Some(Source { form: Form::Paragraph { fields }, suites, components })
}

#[cfg(test)]
mod tests {
    use super::{candidate, codename, paragraphs, parse_line, parse_paragraph};

    #[test]
    fn a_paragraph_gives_one_for_backports() {
        let text = "# made by an image builder\nTypes: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\nComponents: main contrib\nSigned-By:\n -----BEGIN KEY-----\n .\n abc\n\nTypes: deb\nURIs: http://mirror.example/security\nSuites: bookworm-security\nComponents: main\n";
        let sources: Vec<_> = paragraphs(text).iter().filter_map(|text| parse_paragraph(text)).collect();
        assert_eq!(sources.len(), 2);
        assert!(sources[0].carries("bookworm") && !sources[1].carries("bookworm"));
        assert_eq!(sources[0].uri().as_deref(), Some("http://mirror.example/debian"));
        let (derived, ending) = sources[0].with_suite("bookworm-backports");
        let wanted = "Types: deb\nURIs: http://mirror.example/debian\nSigned-By:\n -----BEGIN KEY-----\n .\n abc\nSuites: bookworm-backports\nComponents: main\n";
        assert_eq!((derived.as_str(), ending), (wanted, "sources"));
    }

    #[test]
    fn a_line_gives_one_for_backports() {
        let line = "deb [signed-by=/usr/share/keyrings/a.gpg arch=amd64] http://mirror.example/debian bookworm main contrib";
        let source = parse_line(line).unwrap();
        assert!(source.carries("bookworm"));
        assert_eq!(source.uri().as_deref(), Some("http://mirror.example/debian"));
        let (derived, ending) = source.with_suite("bookworm-backports");
        let wanted = "deb [signed-by=/usr/share/keyrings/a.gpg arch=amd64] http://mirror.example/debian bookworm-backports main\n";
        assert_eq!((derived.as_str(), ending), (wanted, "list"));
    }

    #[test]
    fn what_is_no_source_of_packages_is_passed_over() {
        assert!(parse_line("# deb http://mirror.example/debian bookworm main").is_none());
        assert!(parse_line("deb-src http://mirror.example/debian bookworm main").is_none());
        let disabled = "Types: deb\nURIs: http://m.example\nSuites: bookworm\nComponents: main\nEnabled: no";
        assert!(parse_paragraph(disabled).is_none());
    }

    #[test]
    fn versions_and_names_are_read() {
        assert_eq!(
            candidate("btrfs-progs:\n  Installed: (none)\n  Candidate: 6.2-1+deb12u1\n"),
            Some((6, 2))
        );
        assert_eq!(candidate("btrfs-progs:\n  Candidate: (none)\n"), None);
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n").as_deref(), Some("bookworm"));
    }
}
