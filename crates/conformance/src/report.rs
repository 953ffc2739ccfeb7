//! `creamery report`: a page that a browser shows, beside what btrfs-progs and the kernel say of the same filesystem.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check};

use crate::support::{
    JUDGED, MOUNTED, expect_failure, expect_refusal, flip_byte, inside, mkfs_empty, mkfs_from,
};

pub(crate) fn cases() -> Vec<Case> {
    let with_browser = [&JUDGED[..], &[Judge::Tool("chromium")]].concat();
    let with_disks = [Judge::Program, Judge::Tool("sfdisk")];
    vec![
        Case::new("report/in-a-browser", &with_browser, in_a_browser),
        Case::new("report/chunks-and-space-as-btrfs-progs", &JUDGED, as_btrfs_progs),
        Case::new("report/damaged", &[Judge::Program, Judge::BtrfsProgs], damaged),
        Case::new("report/a-partition", &with_disks, partition),
        Case::new("report/refusals", &MOUNTED, refusals),
    ]
}

/// Names that would do something in a page, or in XML.
const HOSTILE: [&[u8]; 7] = [
    b"<script>document.title='broken'<",
    b"\"' onload='document.title=1' x=\"",
    b"a\nb<img src=x onerror=document.title=2>",
    b"]]>&lt;!--",
    b"x\xff\xfe<b>",
    "\u{202e}\u{1}\u{fffe}".as_bytes(),
    b"<svg><title><style><h1>",
];

fn report(bench: &Bench, words: &[&str], image: &Path) -> Result<String> {
    let page = bench.creamery().run(["report"]).args(words).arg(image).ok()?;
    ensure!(page.stderr.is_empty(), "something was said: {page}");
    String::from_utf8(page.stdout).context("a page of UTF-8")
}

/// A tree whose names and subvolumes want to break out of the page, and large enough files that each name is shown.
fn hostile_image(bench: &Bench) -> Result<PathBuf> {
    let (source, image) = (bench.scratch.dir("source")?, bench.scratch.file("<b>disk's.img"));
    for name in HOSTILE {
        let name = name.strip_suffix(b"<").map_or(name.to_vec(), |name| [name, b"\xff"].concat());
        fs::write(source.join(OsStr::from_bytes(&name)), vec![b'x'; 100_000])?;
    }
    mkfs_from(bench.creamery(), &["-L", "</title><script>"], &source, &image)?;
    for name in HOSTILE {
        let mut word = inside(&image, "/sub-");
        word.push(OsStr::from_bytes(name));
        bench.creamery().run(["subvolume", "snapshot"]).arg(inside(&image, "/")).arg(word).ok()?;
    }
    Ok(image)
}

const TAGS: [&str; 21] = [
    "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "ul", "li", "b", "span",
    "table", "tr", "th", "td", "svg", "rect", "text",
];
const ATTRIBUTES: [&str; 13] = [
    "lang",
    "charset",
    "name",
    "content",
    "class",
    "xmlns",
    "viewBox",
    "width",
    "height",
    "role",
    "aria-label",
    "x",
    "y",
];

/// Insists that a page asks for nothing from elsewhere and runs nothing.
fn stands_alone(page: &str) -> Result<()> {
    let addresses: BTreeSet<&str> =
        page.split("://").skip(1).filter_map(|rest| rest.split(['"', ' ', '<']).next()).collect();
    ensure!(addresses == BTreeSet::from(["www.w3.org/2000/svg"]), "addresses: {addresses:?}");
    ensure!(!page.contains("url(") && !page.contains("@import"), "its style asks for more");
    // Names have no tags of their own: each `<` begins one of these, and each of those has these attributes.
    let tags = page.split('<').skip(1).filter_map(|rest| rest.split('>').next());
    for tag in tags {
        let mut words = tag.trim_start_matches('/').split_whitespace();
        let name = words.next().unwrap_or_default();
        ensure!(TAGS.contains(&name), "the page has a tag <{tag}>");
        let attributes = tag.split('"').step_by(2).filter_map(|word| word.trim().strip_suffix('='));
        for attribute in attributes.filter_map(|words| words.split(' ').next_back()) {
            ensure!(ATTRIBUTES.contains(&attribute), "the page has an attribute {attribute}: <{tag}>");
        }
    }
    Ok(())
}

/// The browser reads the page as it was meant: as many rectangles, words and rows, nothing of what the names try, no script, and its own title.
/// It draws it, for light and for dark eyes.
fn in_a_browser(bench: &Bench) -> Result<()> {
    let image = hostile_image(bench)?;
    btrfs_check(&image)?;
    let page = bench.scratch.file("page.html");
    bench.creamery().run(["report", "-o"]).arg(&page).arg(&image).ok()?;
    let text = fs::read_to_string(&page)?;
    stands_alone(&text)?;
    let home = bench.scratch.dir("home")?;
    let chromium = |words: &[&str]| {
        let run =
            Run::new("chromium").env("HOME", &home).args(["--headless", "--no-sandbox", "--disable-gpu"]);
        run.arg(format!("--user-data-dir={}", home.display()))
            .args(words)
            .arg(format!("file://{}", page.display()))
    };
    let seen = chromium(&["--dump-dom"]).ok()?.stdout_text();
    for element in ["<rect ", "<text ", "<tr>", "<li", "<svg "] {
        let (wrote, found) = (text.matches(element).count(), seen.matches(element).count());
        ensure!(
            wrote > 0 && wrote == found,
            "{element}: {wrote} in the file, {found} in the browser: {seen}"
        );
    }
    let title = seen.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    let name = image.display().to_string().replace('<', "&lt;").replace('>', "&gt;");
    ensure!(title == Some(&name), "the title is {title:?}, not {name:?}");
    for element in ["<script", "<img", "<h1>\n", "onload=\""] {
        ensure!(!seen.contains(element), "{element} was made: {seen}");
    }
    let shot = |name: &str, words: &[&str]| {
        let file = bench.scratch.file(name);
        let word = format!("--screenshot={}", file.display());
        chromium(&[&[&*word, "--window-size=1100,1600"], words].concat()).ok()?;
        fs::read(&file).context("a screenshot")
    };
    let light = shot("light.png", &[])?;
    let dark = shot("dark.png", &["--blink-settings=preferredColorScheme=0"])?;
    // An empty page of this size is one of 10 kB.
    ensure!(light.len() > 30_000 && dark.len() > 30_000 && light != dark, "{}, {}", light.len(), dark.len());
    for picture in ["map", "treemap"] {
        let svg = report(bench, &["--svg", picture], &image)?;
        fs::write(bench.scratch.file("picture.svg"), &svg)?;
        let file = format!("file://{}", bench.scratch.file("picture.svg").display());
        let seen =
            Run::new("chromium").env("HOME", &home).args(["--headless", "--no-sandbox", "--disable-gpu"]);
        let seen = seen.arg(format!("--user-data-dir={}", home.display())).arg("--dump-dom").arg(file);
        let seen = seen.ok()?.stdout_text();
        // One that is no XML shows an error instead.
        ensure!(
            !seen.contains("parsererror") && seen.matches("<rect ").count() == svg.matches("<rect ").count(),
            "{seen}"
        );
    }
    Ok(())
}

/// The words that come up at the rectangles of a picture.
fn titles(svg: &str) -> Vec<&str> {
    svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()).collect()
}

/// Each stripe of btrfs-progs' dump of the chunk tree is in the map, at its place; each directory of the kernel's `btrfs filesystem du` is in the treemap.
fn as_btrfs_progs(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "dup"], "512M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("mount"), "noatime")?;
    let steps = "
        btrfs -q subvolume create s; mkdir s/d d
        head -c 9000000 /dev/urandom > s/d/large; head -c 3000000 /dev/urandom > d/own
        cp --reflink=always s/d/large d/shared; btrfs -q subvolume snapshot s t; echo x > t/d/new; sync";
    Run::new("sh").args(["-e", "-c", steps]).within(mount.dir()).ok()?;
    let du = Run::new("btrfs").args(["filesystem", "du"]).arg(mount.dir()).ok()?.stdout_text();
    let root = mount.dir().display().to_string();
    mount.unmount()?;
    let treemap = report(bench, &["--svg", "treemap"], &image)?;
    let treemap = titles(&treemap);
    let mut compared = 0;
    for line in du.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [total, exclusive, .., path] = words[..] else { continue };
        let path = path.strip_prefix(&root).context("a path of the mount")?;
        let path = if path.is_empty() { "/" } else { path };
        let wanted = format!("{path}: {total}, of which {exclusive} are its own");
        let is_small = total.ends_with("KiB") || total == "0.00B";
        ensure!(is_small || treemap.contains(&&*wanted), "{wanted:?} is not in {treemap:#?}");
        compared += usize::from(!is_small);
    }
    ensure!(compared >= 7, "{compared} compared: {du}");

    let tree = Run::new("btrfs")
        .args(["inspect-internal", "dump-tree", "-t", "chunk"])
        .arg(&image)
        .ok()?
        .stdout_text();
    let (mut chunk, mut stripes) = ("", BTreeSet::new());
    for line in tree.lines() {
        let line = line.trim();
        if let Some((_, rest)) = line.split_once("FIRST_CHUNK_TREE CHUNK_ITEM ") {
            chunk = rest.split(')').next().unwrap_or_default();
        }
        if let Some((_, offset)) = line.split_once("devid 1 offset ").filter(|_| line.starts_with("stripe "))
        {
            stripes.insert(format!("byte {offset} of the device, logical {chunk}"));
        }
    }
    ensure!(stripes.len() >= 5, "{stripes:?}");
    let map = report(bench, &["--svg", "map"], &image)?;
    let found: BTreeSet<String> =
        titles(&map).into_iter().filter_map(|title| Some(title.split_once("; ")?.1.to_owned())).collect();
    ensure!(found == stripes, "btrfs-progs: {stripes:?}, the map: {found:?}");
    Ok(())
}

/// Where a block of a tree is lost, the rest is drawn and counted, the page names what is lost, its copies are marked, and the status is 1.
fn damaged(bench: &Bench) -> Result<()> {
    let (source, image) = (bench.scratch.dir("source")?, bench.scratch.file("disk.img"));
    for (dir, files) in [("many", 400), ("other", 1)] {
        fs::create_dir(source.join(dir))?;
        for number in 0..files {
            fs::write(source.join(dir).join(format!("file-{number}")), vec![b'x'; 20_000])?;
        }
    }
    mkfs_from(bench.creamery(), &["-m", "single"], &source, &image)?;
    let sound = report(bench, &[], &image)?;
    ensure!(sound.contains("Nothing. Data was not read.") && !sound.contains("could not be read"), "{sound}");
    ensure!(!sound.contains(": damaged at byte") && sound.contains("/other: "), "{sound}");
    let tree =
        Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?.stdout_text();
    let leaves: Vec<u64> =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok()).collect();
    ensure!(leaves.len() > 5, "{leaves:?}");
    let mut drawn = 0;
    for leaf in leaves.iter().step_by(2) {
        flip_byte(&image, leaf + 200)?;
        let page = bench.scratch.file("page.html");
        let run = bench.creamery().run(["report", "-o"]).arg(&page).arg(&image).output()?;
        let text = fs::read_to_string(&page)?;
        stands_alone(&text)?;
        let place = format!("damaged at byte {leaf}<");
        ensure!(
            text.contains(&place) && text.contains(&format!("block={leaf}")),
            "leaf {leaf} is not marked: {run}"
        );
        // Names by their hashes lie in leaves of their own, which counting does not read.
        let is_listed = text.contains("What could not be read");
        ensure!(run.code == Some(i32::from(is_listed)), "leaf {leaf}: {run}");
        drawn += usize::from(text.contains("/other: "));
        flip_byte(&image, leaf + 200)?;
    }
    ensure!(drawn * 2 > leaves.len() / 2, "{drawn} pages of {} show what is sound", leaves.len() / 2);
    // Of a subvolume whose root is lost only the files are missing.
    let root = root_of_fs_tree(&image)?;
    flip_byte(&image, root + 200)?;
    let page = bench.scratch.file("rootless.html");
    let run = bench.creamery().run(["report", "-o"]).arg(&page).arg(&image).output()?;
    ensure!(run.code == Some(1), "{run}");
    let text = fs::read_to_string(&page)?;
    stands_alone(&text)?;
    ensure!(text.contains("What could not be read") && text.contains(&format!("block={root}")), "{text}");
    ensure!(titles(&text).iter().any(|title| title.contains("logical")), "no chunk is drawn: {text}");
    flip_byte(&image, root + 200)?;
    // Without a root of the filesystem's trees there is nothing to draw.
    flip_byte(&image, tree_root(&image)? + 200)?;
    let page = bench.scratch.file("none.html");
    expect_failure(
        bench.creamery().run(["report", "-o"]).arg(&page).arg(&image),
        &["checksum mismatch", "rescue"],
    )?;
    ensure!(!page.exists(), "a page of nothing");
    Ok(())
}

fn root_of_fs_tree(image: &Path) -> Result<u64> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-r"]).arg(image).ok()?.stdout_text();
    let row = said.lines().find_map(|line| line.split_once("(FS_TREE ROOT_ITEM 0)"));
    let root = row.and_then(|(_, rest)| rest.trim().split(' ').next()?.parse().ok());
    root.with_context(|| said)
}

fn tree_root(image: &Path) -> Result<u64> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let root = said.lines().find_map(|line| line.strip_prefix("root\t")?.trim().parse().ok());
    root.with_context(|| said)
}

/// A partition is drawn in its disk, beside the others.
fn partition(bench: &Bench) -> Result<()> {
    let disk = bench.scratch.file("disk.raw");
    fs::File::create_new(&disk)?.set_len(600 << 20)?;
    let table = "label: gpt\nsize=100M, name=esp\nsize=300M, name=\"ro<o>t\"\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(table).ok()?;
    let part = bench.scratch.file("disk.raw@2");
    bench.creamery().run(["mkfs"]).arg(&part).ok()?;
    let map = report(bench, &["--svg", "map"], &part)?;
    let titles = titles(&map);
    for wanted in ["esp", "ro&lt;o&gt;t"] {
        let shown =
            titles.iter().filter(|title| title.contains(wanted) && title.contains("from byte")).count();
        ensure!(shown == 1, "{wanted} is shown {shown} times: {titles:?}");
    }
    ensure!(map.matches("class=\"ours\"").count() == 1 && map.contains("the disk, 600.00MiB"), "{map}");
    let whole = bench.scratch.file("whole.img");
    mkfs_empty(bench.creamery(), &[], "256M", &whole)?;
    let map = report(bench, &["--svg", "map"], &whole)?;
    ensure!(!map.contains("the disk, ") && !map.contains("class=\"ours\""), "a frame around no partition");
    Ok(())
}

/// The page replaces no image, makes no file of a partition's name, and shows no image that is written to.
fn refusals(bench: &Bench) -> Result<()> {
    let (image, page) = (bench.scratch.file("disk.img"), bench.scratch.file("page.html"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let report = |words: &[&str]| bench.creamery().run(["report"]).args(words);
    expect_refusal(
        report(&["-o"]).arg(&image).arg(&image),
        &["holds a Btrfs filesystem", "name another file"],
    )?;
    expect_failure(report(&["--svg", "pie"]).arg(&image), &["pie", "map", "treemap"])?;
    expect_refusal(report(&["-o"]).arg(&page).arg(bench.scratch.file("none.img")), &["no such file"])?;
    report(&["-o"]).arg(&page).arg(&image).ok()?;
    let first = fs::read(&page)?;
    report(&["-o"]).arg(&page).arg(&image).ok()?;
    ensure!(first == fs::read(&page)?, "a second page is another one");
    fs::remove_file(&page)?;
    // Also an image that opens by a copy of its superblock alone.
    let lost = bench.scratch.file("lost.img");
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&lost).ok()?;
    fs::File::options().write(true).open(&lost)?.write_all_at(&[0; 4096], 64 << 10)?;
    expect_refusal(
        report(&["-o"]).arg(&lost).arg(&image),
        &["holds a Btrfs filesystem", "name another file"],
    )?;
    bench.creamery().run(["ls"]).arg(inside(&lost, "/")).ok()?;
    // A file is replaced as a whole, or stays.
    let limited = Run::new("sh").arg("-c").arg("ulimit -f 1; trap '' XFSZ; exec \"$@\"").arg("sh");
    let limited = limited.arg(bench.creamery().path()).args(["report", "-o"]).arg(&page).arg(&image);
    fs::write(&page, "an earlier page")?;
    expect_failure(limited, &["page.html"])?;
    ensure!(fs::read_to_string(&page)? == "an earlier page", "half a page");
    fs::remove_file(&page)?;
    expect_refusal(report(&["--generation", "0"]).arg(&image), &["generation 0"])?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/one")).ok()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/two")).ok()?;
    let listed = bench.creamery().run(["history", "--json"]).arg(&image).ok()?.stdout;
    let listed: Vec<serde_json::Value> = serde_json::from_slice(&listed)?;
    let generation = listed.get(1).context("an earlier commit")?["generation"].to_string();
    let shown = report(&["--generation", &generation]).arg(&image).ok()?.stdout_text();
    ensure!(
        shown.contains(&format!("<td>{generation}</td>")) && shown.contains("a check is of the last commit"),
        "{shown}"
    );
    expect_refusal(report(&["-o"]).arg(bench.scratch.file("disk.img@1")).arg(&image), &["partition"])?;
    expect_refusal(report(&["-o", "/dev/full"]).arg(&image), &["no space left"])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    expect_refusal(report(&["-o"]).arg(&page).arg(&image), &["in use"])?;
    ensure!(!page.exists(), "a page of an image in use");
    mount.unmount()
}
