//! What `--json` prints, against `docs/use/json.md`: each key of the one is in the other, and of a type that it says.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run};
use serde_json::Value;

use crate::support::{inside, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let judges = [Judge::Program, Judge::Root, Judge::Fuse, Judge::Tool("sfdisk")];
    vec![Case::new("json/as-documented", &judges, as_documented)]
}

/// What the page says of one key.
struct Key {
    may_be_absent: bool,
    types: String,
}

/// Whether a command prints an array, and its keys.
type JsonRow = (bool, BTreeMap<String, Key>);

/// The rows of the page.
struct Page(BTreeMap<String, JsonRow>);

impl Page {
    fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/json.md");
        let text = std::fs::read_to_string(path)?.replace("\\|", "or");
        let mut rows: BTreeMap<String, JsonRow> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [commands, document, keys] = cells[..] else { bail!("{line}: not three cells") };
            let keys: BTreeMap<String, Key> =
                without_inner(keys).split(", `").map(key).collect::<Result<_>>()?;
            for command in commands.split(", ") {
                let row = (document.starts_with("array"), keys.iter().map(copy).collect());
                rows.insert(command.trim_matches('`').to_owned(), row);
            }
        }
        // "those of" another command, whose keys are added.
        let list = rows
            .get("subvolume list")
            .context("a row of subvolume list")?
            .1
            .iter()
            .map(copy)
            .collect::<Vec<_>>();
        for name in ["subvolume show", "subvolume get-default"] {
            let row = rows.get_mut(name).with_context(|| format!("a row of {name}"))?;
            row.1.retain(|key, _| key != "subvolume list");
            row.1.extend(list.iter().map(|(name, key)| copy((name, key))));
        }
        Ok(Self(rows))
    }
}

fn copy((name, key): (&String, &Key)) -> (String, Key) {
    (name.clone(), Key { may_be_absent: key.may_be_absent, types: key.types.clone() })
}

/// Without what stands in parentheses: the keys of objects within.
fn without_inner(keys: &str) -> String {
    let mut depth = 0;
    let outer = keys.chars().filter(|&letter| {
        depth += i32::from(letter == '(');
        let is_outer = depth == 0;
        depth -= i32::from(letter == ')');
        is_outer
    });
    outer.collect()
}

fn key(text: &str) -> Result<(String, Key)> {
    let text = text.trim_start_matches("those of ").trim_start_matches('`');
    let (name, types) = text.split_once('`').with_context(|| format!("{text}: no key"))?;
    let may_be_absent = types.starts_with('?');
    Ok((name.to_owned(), Key { may_be_absent, types: types.trim_start_matches('?').trim().to_owned() }))
}

fn fits(value: &Value, types: &str) -> bool {
    types.split(" or ").any(|kind| match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "bool",
        Value::Number(_) => kind == "number",
        Value::String(text) => kind == "string" || kind == format!("\"{text}\""),
        Value::Array(_) => kind.starts_with("array"),
        Value::Object(_) => kind.starts_with("object"),
    })
}

/// Something of all that can be told, as the arguments of a call.
struct Things {
    image: String,
    disk: String,
    archive: String,
    /// An address of data.
    data: String,
}

fn things(bench: &Bench) -> Result<Things> {
    let (image, disk) = (bench.scratch.file("disk.img"), bench.scratch.file("disk.raw"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let at =
        |path: &str| inside(&image, path).into_string().map_err(|_| anyhow::anyhow!("a path of the tests"));
    let run = |words: &[&str]| bench.creamery().run(words);
    for words in [["quota", "enable"], ["subvolume", "create"]] {
        let place = if words[0] == "quota" { image.display().to_string() } else { at("/sub")? };
        run(&words).arg(place).ok()?;
    }
    let content = [7; 300 << 10];
    for path in ["/f", "/g", "/sub/f"] {
        run(&["cp", "-"]).arg(at(path)?).input(content).ok()?;
    }
    run(&["ln", "-s", "f"]).arg(at("/link")?).ok()?;
    run(&["subvolume", "snapshot", "-r"]).args([at("/sub")?, at("/snapshot")?]).ok()?;
    let source = bench.scratch.dir("source")?;
    Run::new("mknod").arg(source.join("device")).args(["c", "1", "3"]).ok()?;
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"odd\xff");
    std::fs::write(source.join::<&std::ffi::OsStr>(odd), "odd")?;
    run(&["cp", "-a"]).arg(&source).arg(at("/")?).ok()?;
    let archive = bench.scratch.file("archive.tar").display().to_string();
    run(&["tar", "-c", "-f", &archive]).arg(at("/")?).ok()?;
    sparse_file(&disk, 100 << 20)?;
    Run::new("sfdisk").arg("-q").arg(&disk).input("label: gpt\nsize=50M, name=root\n").ok()?;
    run(&["cp", "-"]).arg(at("/gone")?).input("gone").ok()?;
    run(&["rm"]).arg(at("/gone")?).ok()?;
    let map = run(&["filesystem", "fiemap", "--json"]).arg(at("/f")?).ok()?.stdout_text();
    let map: Value = serde_json::from_str(&map)?;
    let data = map[0]["physical"].to_string();
    Ok(Things { image: image.display().to_string(), disk: disk.display().to_string(), archive, data })
}

fn as_documented(bench: &Bench) -> Result<()> {
    let Things { image, disk, archive, data } = things(bench)?;
    let run = |words: &[&str]| bench.creamery().run(words);
    let other = bench.scratch.file("other.img").display().to_string();
    let [root, file, sub, snapshot] = ["", "f", "sub", "snapshot"].map(|name| format!("{image}:/{name}"));
    let mount = bench.scratch.file("mount").display().to_string();
    let calls: &[(&str, &[&str])] = &[
        ("ls", &["ls", "--json", "-R", &root]),
        ("history", &["history", "--json", &image]),
        ("undelete", &["undelete", "--json", &image]),
        ("rescue scan", &["rescue", "scan", "--json", &image]),
        ("stat", &["stat", "--json", &file, &root]),
        ("find", &["find", &root, "--json"]),
        ("df", &["df", "--json", &image]),
        ("diff", &["diff", "--json", &sub, &root]),
        ("diff --stat", &["diff", "--stat", "--json", &sub, &sub]),
        ("filesystem df", &["filesystem", "df", "--json", &image]),
        ("filesystem usage", &["filesystem", "usage", "--json", &image]),
        ("device stats", &["device", "stats", "--json", &image]),
        ("device survey", &["device", "survey", "--files", "--json", &image]),
        ("scrub start", &["scrub", "start", "-B", "-r", "--json", &image]),
        ("scrub status", &["scrub", "status", "--json", &image]),
        ("scrub limit", &["scrub", "limit", "--json", &image]),
        ("filesystem du", &["filesystem", "du", "--json", &root]),
        ("filesystem fiemap", &["filesystem", "fiemap", "--json", &file]),
        ("filesystem show", &["filesystem", "show", "--json", &image]),
        ("filesystem trim", &["filesystem", "trim", "--json", &image]),
        ("check", &["check", "--json", &image]),
        ("mkfs", &["mkfs", "--json", "-b", "256M", &other]),
        ("subvolume list", &["subvolume", "list", "--json", &root]),
        ("subvolume show", &["subvolume", "show", "--json", &sub]),
        ("subvolume show", &["subvolume", "show", "--json", &snapshot]),
        ("subvolume get-default", &["subvolume", "get-default", "--json", &image]),
        ("subvolume find-new", &["subvolume", "find-new", "--json", &sub, "0"]),
        ("qgroup show", &["qgroup", "show", "--json", &image]),
        ("quota status", &["quota", "status", "--json", &image]),
        ("property get", &["property", "get", "--json", &sub, "ro"]),
        ("property list", &["property", "list", "--json", &sub]),
        (
            "inspect-internal logical-resolve -P",
            &["inspect", "logical-resolve", "-P", "--json", &data, &image],
        ),
        ("inspect-internal logical-resolve", &["inspect", "logical-resolve", "--json", &data, &image]),
        ("inode-resolve", &["inspect", "inode-resolve", "--json", "257", &image]),
        ("subvolid-resolve", &["inspect", "subvolid-resolve", "--json", "256", &image]),
        ("inspect-internal rootid", &["inspect", "rootid", "--json", &sub]),
        ("inspect-internal partitions", &["inspect", "partitions", "--json", &disk]),
        ("tar -t", &["tar", "-t", "--json", "-f", &archive]),
        ("filesystem defragment", &["filesystem", "defragment", "--json", &file]),
        ("dedupe", &["dedupe", "--json", &root]),
        ("stats", &["stats", "--json", &mount]),
        ("mounts", &["mounts", "--json"]),
    ];
    let page = Page::read()?;
    for name in page.0.keys() {
        ensure!(calls.iter().any(|(called, _)| called == name), "{name} is on the page, and not tried");
    }
    for (name, words) in calls {
        let mounted = || FuseMount::mount(bench.creamery(), Path::new(&image), Path::new(&mount), "");
        let live = matches!(*name, "stats" | "mounts").then(mounted).transpose()?;
        // What differs is the exit status of that, too.
        let finished = if *name == "diff" { run(words).output()? } else { run(words).ok()? };
        let said = finished.stdout_text();
        live.map_or(Ok(()), FuseMount::unmount)?;
        check(name, &said, &page)?;
    }
    fails_in_one_document(bench, calls)
}

/// Also what fails prints one document, or nothing.
fn fails_in_one_document(bench: &Bench, calls: &[(&str, &[&str])]) -> Result<()> {
    for (name, words) in calls {
        let words: Vec<String> = words.iter().map(|word| word.replace("disk.img", "none.img")).collect();
        let said = bench.creamery().run(words).output()?.stdout_text();
        let is_one = said.is_empty() || serde_json::from_str::<Value>(&said).is_ok();
        ensure!(is_one, "{name}, of what is not there: {said}");
    }
    Ok(())
}

fn check(name: &str, said: &str, page: &Page) -> Result<()> {
    let (is_array, keys) = page.0.get(name).with_context(|| format!("no row of {name}"))?;
    let document: Value = serde_json::from_str(said).with_context(|| format!("{name}: {said}"))?;
    let objects = match document {
        Value::Array(objects) if *is_array => objects,
        document if !is_array => vec![document],
        document => bail!("{name}: another document than the page says: {document}"),
    };
    ensure!(!objects.is_empty(), "{name}: nothing to look at");
    for object in &objects {
        let object = object.as_object().with_context(|| format!("{name}: no object: {object}"))?;
        for (key, value) in object {
            let told = keys.get(key).with_context(|| format!("{name}: the key {key} is not on the page"))?;
            ensure!(fits(value, &told.types), "{name}: {key} is {value}, and the page says {}", told.types);
        }
        let missing = keys.iter().find(|(key, told)| !told.may_be_absent && !object.contains_key(*key));
        ensure!(missing.is_none(), "{name}: no {}: {object:?}", missing.map_or("", |(key, _)| key));
    }
    Ok(())
}
