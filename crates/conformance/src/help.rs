//! `creamery help`, `--version` and the manual.

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Run};

use crate::support::expect_refusal;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("help/overview-and-version", &[Judge::Program], overview),
        Case::new("help/commands-and-pages", &[Judge::Program], pages),
        Case::new("help/manual", &[Judge::Program], manual),
    ]
}

/// Commands in groups, each of which explains itself; the version with the commit that this tree is.
fn overview(bench: &Bench) -> Result<()> {
    let help = bench.creamery().run(["--help"]).ok()?.stdout_text();
    ensure!(bench.creamery().run(["help"]).ok()?.stdout_text() == help, "help and --help differ");
    for title in ["Files:", "Images:", "Subvolumes:", "Mounts:", "Damage:", "Structure:", "Pages:"] {
        ensure!(help.contains(title), "--help has no {title}\n{help}");
    }
    let commands: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    ensure!(commands.len() > 35, "few commands: {commands:?}");
    for command in commands {
        let explained = bench.creamery().run([command, "--help"]).ok()?.stdout_text();
        let by_help = bench.creamery().run(["help", command]).ok()?.stdout_text();
        ensure!(by_help.starts_with(&explained), "help {command} begins otherwise than {command} --help");
    }
    version(&bench.creamery().run(["--version"]).ok()?.stdout_text())
}

/// Where git knows the commit of this tree, the program names one, with its date; elsewhere its version alone.
fn version(said: &str) -> Result<()> {
    let here =
        Run::new("git").args(["show", "--no-patch", "HEAD"]).within(env!("CARGO_MANIFEST_DIR")).output();
    if !here.is_ok_and(|shown| shown.code == Some(0)) {
        ensure!(said.starts_with("creamery ") && said.trim().split(' ').count() >= 2, "{said:?}");
        return Ok(());
    }
    let commit = said.trim().strip_prefix("creamery ").and_then(|rest| rest.split_once(" ("));
    let commit = commit.with_context(|| format!("--version names no commit: {said:?}"))?.1;
    let (hash, date) = commit.trim_end_matches(')').split_once(' ').context("a commit and a date")?;
    ensure!(hash.len() >= 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "commit {hash:?}");
    ensure!(date.len() == 10 && date.split('-').count() == 3, "date {date:?}");
    Ok(())
}

/// What many commands share stands on a page; a word that is neither command nor page is refused.
fn pages(bench: &Bench) -> Result<()> {
    let help = |words: &[&str]| -> Result<String> {
        Ok(bench.creamery().run(["help"]).args(words).ok()?.stdout_text())
    };
    let completions = bench.creamery().run(["generate", "completions", "bash"]).ok()?.stdout_text();
    ensure!(completions.contains("subvolume tar") || completions.contains("mount-options"), "{completions}");
    let options = help(&["mount-options"])?;
    for word in ["commit=SECONDS", "subvol=PATH", "compress-force=", "rescue=all", "lazytime"] {
        ensure!(options.contains(word), "{word} is missing:\n{options}");
    }
    ensure!(help(&["paths"])?.contains("<FS_TREE>"), "the page on paths does not say where the top level is");
    // A command and a page.
    let rescue = help(&["rescue"])?;
    ensure!(rescue.contains("super-recover") && rescue.contains("ignoredatacsums"), "{rescue}");
    // A command in a group.
    ensure!(help(&["subvolume", "list"])?.contains("--sort"), "the options of subvolume list");
    let overview = help(&[])?;
    let (_, names) = overview.split_once("Pages:").context("pages are listed")?;
    let names = names.lines().skip(1).take_while(|line| !line.is_empty()).flat_map(|line| line.split(','));
    let names: Vec<&str> = names.map(str::trim).filter(|name| !name.is_empty()).collect();
    ensure!(names.len() > 20, "few pages: {names:?}");
    for name in names {
        let page = help(&[name])?;
        ensure!(page.len() > 1000, "the page {name} is short:\n{page}");
        let long = page.lines().find(|line| line.chars().count() > 100 && line.trim().contains(' '));
        // What is typed stays on one line.
        ensure!(long.is_none_or(|line| line.starts_with("    ")), "{name}: {long:?}");
    }
    for words in [&["nonsense"][..], &["ls", "nonsense"], &["mount-options", "x"]] {
        let run = bench.creamery().run(["help"]).args(words);
        expect_refusal(run, &["unknown command or page", "`creamery help` lists"])?;
    }
    Ok(())
}

/// Every command has a page, and no text in one is taken for a request of troff.
fn manual(bench: &Bench) -> Result<()> {
    let dir = bench.scratch.dir("manual")?;
    bench.creamery().run(["generate", "man"]).arg(&dir).ok()?;
    let mut names = Vec::new();
    for page in std::fs::read_dir(&dir)? {
        let page = page?.path();
        let text = std::fs::read_to_string(&page)?;
        ensure!(text.contains(".SH \"SEE ALSO\""), "{} is cut short", page.display());
        // Every line that begins with a dot or an apostrophe is a request that man(7) has.
        const REQUESTS: [&str; 13] =
            ["TH", "SH", "SS", "PP", "TP", "IP", "RS", "RE", "nf", "fi", "br", "ie", "el"];
        for line in text.lines().filter(|line| line.starts_with(['.', '\''])) {
            let request = line[1..].split_whitespace().next().unwrap_or_default();
            let is_known =
                REQUESTS.contains(&request) || line.starts_with(".ds Aq") || line.starts_with(".el");
            ensure!(is_known, "{}: {line:?}", page.display());
        }
        names.extend(page.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    for name in
        ["creamery.1", "creamery.5", "creamery-mkfs.1", "creamery-subvolume-snapshot.1", "creamery-help.1"]
    {
        ensure!(names.iter().any(|known| known == name), "{name} is missing in {names:?}");
    }
    expect_refusal(bench.creamery().run(["generate", "man"]).arg(dir.join("none")), &["generate man: "])
}
