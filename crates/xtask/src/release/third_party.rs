//! The licences of all that is linked into the program, as their authors want them handed on: found in the sources that cargo
//! has, each text once, with the crates that have it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::binary::TARGET;
use creamery_workspace::metadata_for;

/// How the names of such files begin.
const NAMES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// And in the folders of a crate, where others' code lies: of two that are offered, the one that is taken.
const NAMES_BELOW: [&str; 2] = ["LICENSE", "LICENCE"];

/// A list of the crates, and the texts.
pub(super) fn texts() -> Result<String> {
    let metadata = metadata_for(TARGET)?;
    let mut list = String::new();
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(&metadata)? {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        list += &format!("  {name}: {}\n", text("license"));
        let folder = Path::new(text("manifest_path")).parent().context("a manifest lies in a folder")?;
        for file in licences(folder)? {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            texts.entry(text.trim_end().to_owned()).or_default().insert(name.clone());
        }
    }
    let mut all = format!(
        "creamery is linked with these crates, with the standard library of Rust, and with musl (see NOTICE). Their \
         licences follow.\n\n{list}"
    );
    for (text, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        all += &format!("\n{}\n{}\n\n{text}\n", "=".repeat(80), names.join(", "));
    }
    Ok(all)
}

/// The packages of others that the program is made of, by name: what runs while it is built is none of it.
fn linked(metadata: &Value) -> Result<Vec<&Value>> {
    let packages = metadata["packages"].as_array().context("packages in cargo metadata")?;
    let by_id: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().context("nodes in cargo metadata")?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let program = packages.iter().find(|package| package["name"] == "creamery");
    let mut waiting = vec![program.and_then(|package| package["id"].as_str()).context("the program")?];
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        let package = by_id.get(id).context("a package that is not listed")?;
        if is_macro(package) || !seen.insert(id) {
            continue;
        }
        let needs = nodes.get(id).and_then(|node| node["deps"].as_array()).context("what a package needs")?;
        waiting.extend(needs.iter().filter(|need| is_linked(need)).filter_map(|need| need["pkg"].as_str()));
    }
    let others = seen.iter().filter_map(|id| by_id.get(id).copied());
    let mut others: Vec<&Value> = others.filter(|package| !package["source"].is_null()).collect();
    ensure!(!others.is_empty(), "cargo metadata names no crate that the program is linked with");
    others.sort_by_key(|package| package["name"].as_str().map(str::to_owned));
    Ok(others)
}

fn is_macro(package: &Value) -> bool {
    let targets = package["targets"].as_array().into_iter().flatten();
    targets.filter_map(|target| target["kind"].as_array()).flatten().any(|kind| kind == "proc-macro")
}

fn is_linked(need: &Value) -> bool {
    need["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

fn licences(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            for below in fs::read_dir(&path)? {
                let below = below?.path();
                if below.is_file() && is_named(&below, &NAMES_BELOW) {
                    found.push(below);
                }
            }
        } else if is_named(&path, &NAMES) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn is_named(path: &Path, beginnings: &[&str]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_uppercase();
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}
